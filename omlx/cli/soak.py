"""Wear a server out: many mixed requests on small random models, and what is left of them afterwards.

Clients in parallel send chats and texts of many lengths, streamed and whole, with prefixes in common, to two models;
some leave while they wait, in prefill or while an answer comes, some send what must be refused. Memory, threads and
open files of the server's process are sampled all the while. Half-way and in the end everybody waits until the
server is at rest, and what it holds then is compared:

- memory: the straight line through the samples of the last half may rise by --most-growth at the most;
- threads and open files: eight more than half-way at the most, for pools of workers fill up as they are needed;
- what /health counts of running work, of pins, leases and rows: nothing, and it has to count them.

Exit code 1 when one of these does not hold, or when an answer was not what its request should get.
"""

import argparse
import itertools
import json
import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omlx.cli.process import ServerProcess
from omlx.cli.vitals import Vitals, read_vitals
from omlx.cli.wear import Client, make_request
from omlx.errors import OmlxError
from omlx.units import format_size, parse_size

_MODELS = ("first", "second")
#: Names under which /health counts what must be gone when nobody asks.
_AT_REST = {
    *("running", "queued", "waiting", "reserved", "reserved_bytes", "leases", "leased"),
    *("pinned_blocks", "rows", "live_rows", "sequences_bytes", "pending_bytes"),
}
#: How many more threads or files there may be.
_SLACK = 8
#: What it must count at the least.
_COUNTED = ("running", "queued", "pinned_blocks", "leases", "rows")


@dataclass(frozen=True)
class Worn:
    """What came of it. `trouble` holds a sentence for each thing that is not as it should be."""

    requests: int
    seconds: float
    kinds: dict[str, int]
    samples: tuple[Vitals, ...]
    growth_bytes: float
    left: dict[str, float]
    trouble: tuple[str, ...]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--requests", type=int, default=2000, help="how many (default 2000)")
    parser.add_argument("--clients", type=int, default=4, help="how many at once (default 4)")
    parser.add_argument(
        "--seed", type=int, default=1, help="the same seed sends the same requests (default 1)"
    )
    parser.add_argument("--most-growth", default="24MiB", help="of memory over the last half (default 24MiB)")
    parser.add_argument("--log", type=Path, help="keep the server's log in this file")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Wear a server out and print what is left."""
    with tempfile.TemporaryDirectory(prefix="omlx-soak-") as scratch:
        worn = wear_out(options, Path(scratch))
    print(json.dumps(asdict(worn), indent=2) if options.json else render(worn))
    return 1 if worn.trouble else 0


def render(worn: Worn) -> str:
    """Return the samples in ten lines, then the verdict."""
    kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(worn.kinds.items()))
    step = max(1, len(worn.samples) // 10)
    lines = [f"{worn.requests} requests in {worn.seconds:.0f} s: {kinds}", ""]
    lines += [
        f"after {each.requests:6d}: {format_size(each.rss_bytes):>10}, {each.threads} threads, {each.files} files"
        for each in [*worn.samples[:-1:step], worn.samples[-1]]
    ]
    lines += ["", f"memory over the last half: {worn.growth_bytes / 2**20:+.1f} MiB"]
    return "\n".join([*lines, *(worn.trouble or ("nothing is left behind",))])


def wear_out(options: argparse.Namespace, scratch: Path) -> Worn:
    """Run everything against a server of its own."""
    from omlx.testing.thin import write_thin_model  # noqa: PLC0415 - tokenizers and the other fakes: 0.15 s

    arguments = []
    for number, name in enumerate(_MODELS):
        arguments += ["--model", str(write_thin_model(scratch / name, seed=number, window_tokens=8192))]
    for setting in ("cache.hot=16MiB", "cache.cold=64MiB", f"cache.directory={scratch / 'blocks'}"):
        arguments += ["--set", setting]
    started = time.monotonic()
    with ServerProcess(arguments, options.log or scratch / "server.log") as server:
        wear = _Wear(server, options.requests, options.clients, options.seed)
        wear.send(options.requests // 2)
        first = wear.rest()
        wear.send(options.requests - options.requests // 2)
        last = wear.rest()
        health = server.health()
    growth = rise(
        [(each.requests, each.rss_bytes) for each in wear.samples if each.requests >= options.requests / 2]
    )
    left = {name: value for name, value in counted(health) if value}
    known = {name.rpartition(".")[2] for name, _ in counted(health)}
    trouble = [
        *wear.trouble,
        *(f"at rest the server still counts {name}: {value:g}" for name, value in left.items()),
        *(f"the server does not count {name}" for name in _COUNTED if name not in known),
    ]
    trouble += _more("threads", first.threads, last.threads) + _more("open files", first.files, last.files)
    if growth > parse_size(options.most_growth):
        trouble.append(f"memory rose by {format_size(int(growth))} over the last half of the requests")
    return Worn(
        options.requests,
        round(time.monotonic() - started, 1),
        dict(wear.kinds),
        tuple(wear.samples),
        growth,
        left,
        tuple(trouble),
    )


def _more(what: str, first: int, last: int) -> list[str]:
    return [f"{last} {what} at rest, {first} half-way"] if last > first + _SLACK else []


def rise(points: Sequence[tuple[float, float]]) -> float:
    """Return by how much the line of least squares through points rises from the first to the last."""
    if len(points) < 2:
        return 0.0
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    slope = sum((x - mean_x) * (y - mean_y) for x, y in points) / spread if spread else 0.0
    return slope * (points[-1][0] - points[0][0])


def counted(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Yield what /health counts that must be nothing at rest, by its path."""
    if isinstance(value, list):
        value = {str(index): inner for index, inner in enumerate(value)}
    if not isinstance(value, Mapping):
        return
    for name, inner in value.items():
        if name in _AT_REST and isinstance(inner, int | float):
            yield f"{path}{name}", inner
        yield from counted(inner, f"{path}{name}.")


class _Wear:
    """Sends requests from several threads and samples the server. Mutable."""

    def __init__(self, server: ServerProcess, total: int, clients: int, seed: int) -> None:
        self._server = server
        self._clients = clients
        self._random = random.Random(seed)  # noqa: S311 - requests, not secrets
        self._lock = threading.Lock()
        self._every = max(1, total // 100)
        self._sent = 0
        self.kinds: Counter[str] = Counter()
        self.samples: list[Vitals] = []
        self.trouble: list[str] = []

    def send(self, count: int) -> None:
        """Send that many requests and wait for all of them."""
        left = itertools.islice(itertools.count(), count)
        threads = [threading.Thread(target=self._work, args=(left,)) for _ in range(self._clients)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def rest(self, timeout_s: float = 60.0) -> Vitals:
        """Wait until the server counts nothing; return how it is then. What stays is reported by who looks."""
        deadline = time.monotonic() + timeout_s
        self._server.wait_written()
        while any(value for _, value in counted(self._server.health())) and time.monotonic() < deadline:
            time.sleep(0.05)
        time.sleep(0.2)  # the threads of closed connections
        return read_vitals(self._server.pid, self._sent)

    def _work(self, left: Iterable[int]) -> None:
        client = Client(self._server.port)
        for number in self._numbers(left):
            with self._lock:
                asked = make_request(self._random, _MODELS)
            try:
                wrong = client.send(asked)
            except (OSError, OmlxError, ValueError) as error:
                wrong = f"{type(error).__name__}: {error}"
            with self._lock:
                self._sent += 1
                self.kinds[asked.kind] += 1
                if wrong:
                    self.trouble.append(f"request {number} ({asked.kind}): {wrong}")
                if self._sent % self._every == 0:
                    self.samples.append(read_vitals(self._server.pid, self._sent))

    def _numbers(self, left: Iterable[int]) -> Iterator[int]:
        """Yield numbers of requests from what all threads share."""
        while True:
            with self._lock:
                number = next(iter(left), None)
            if number is None:
                return
            yield number
