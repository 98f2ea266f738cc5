"""What a dry run foretells beside what then happens: seconds of each stage, on a server of its own.

    cold      prompts that no one has seen, of several lengths
    repeated  the same prompts again: from RAM
    edited    the same prompts, from their middle on another text
    restart   the cold prompts once more, after the server was stopped and started: from disk

A first prompt is run unmeasured, so that the rates are known which an estimate needs. Each request is explained
(`POST /v1/trace`), sent, and looked at (`GET /v1/trace/last`). The table has, by stage and case, the ratio of real to
estimated seconds: 1 is a perfect estimate, 2 means that it took twice as long.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from omlx.cli.asking import Server
from omlx.cli.client import Reply
from omlx.cli.options import model_name
from omlx.cli.process import ServerProcess
from omlx.cli.prose import sentences
from omlx.cli.table import format_table
from omlx.errors import OmlxError
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.timeline import RequestTrace

_PATH = "/v1/completions"
#: Estimates below this are noise of the clock: a ratio says nothing.
_LEAST_S = 0.0002
#: The name under which the whole way to the answer is listed.
ANSWER = "to the answer"
#: Lengths of the prompts, as shares of the longest.
_SHARES = (0.25, 0.5, 1.0)


@dataclass(frozen=True)
class Measured:
    """One stage of one request. `tokens` were computed."""

    case: str
    stage: str
    tokens: int
    estimated_s: float
    real_s: float

    @property
    def ratio(self) -> float:
        """Return real to estimated."""
        return self.real_s / self.estimated_s


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--model", required=True, metavar="FOLDER_OR_NAME", help="the model to measure")
    parser.add_argument(
        "--tokens", type=int, default=1024, help="length of the longest prompt (default 1024)"
    )
    parser.add_argument("--requests", type=int, default=6, help="requests of each case (default 6)")
    parser.add_argument("--answer", type=int, default=8, help="tokens of each answer (default 8)")
    parser.add_argument("--pipeline", help="the pipeline to measure (default: default)")
    parser.add_argument("--json", action="store_true", help="print every measurement as JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print the table."""
    with tempfile.TemporaryDirectory(prefix="omlx-estimates-") as scratch:
        found = measure(options, Path(scratch))
    print(json.dumps([asdict(each) for each in found], indent=2) if options.json else render(found))
    return 0


def render(found: Sequence[Measured]) -> str:
    """Return the distribution of each stage in each case."""
    header = ("stage", "case", "n", "estimated s", "real s", "real/estimated p10", "median", "p90")
    groups: dict[tuple[str, str], list[Measured]] = {}
    for each in found:
        groups.setdefault((each.stage, each.case), []).append(each)
    rows = []
    for (stage, case), group in groups.items():
        ratios = [each.ratio for each in group]
        shown = (f"{percentile(ratios, part):.2f}" for part in (0.1, 0.5, 0.9))
        estimated, real = (
            percentile([getattr(each, name) for each in group], 0.5) for name in ("estimated_s", "real_s")
        )
        rows.append((stage, case, len(group), f"{estimated:.4f}", f"{real:.4f}", *shown))
    return format_table(header, rows)


def percentile(values: Sequence[float], part: float) -> float:
    """Return the value below which a part of the values lies, between the two nearest."""
    ordered = sorted(values)
    at = part * (len(ordered) - 1)
    low = int(at)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (at - low) * (ordered[high] - ordered[low])


def measure(options: argparse.Namespace, scratch: Path) -> list[Measured]:
    """Run all cases against a server with an empty cache under `scratch`."""
    from omlx.models.resolve import resolve_folder  # noqa: PLC0415 - loads the BLAS and huggingface_hub: 0.5 s

    folder = resolve_folder(options.model)
    arguments = ["--model", str(folder), "--set", f"cache.directory={scratch / 'blocks'}"]
    if options.pipeline:
        arguments += ["--set", f"defaults.pipeline={options.pipeline}"]
    texts = list(_prompts(options))
    edited = [
        text[: len(text) // 2] + _text(1000 + at, len(text.split()) // 2) for at, text in enumerate(texts)
    ]
    found: list[Measured] = []
    server = ServerProcess(arguments, scratch / "server.log")
    with server:
        bench = _Bench(server, model_name(str(folder)), options.answer)
        bench.warm_up(options.tokens)
        for case, prompts in (("cold", texts), ("repeated", texts), ("edited", edited)):
            found += bench.case(case, prompts)
        server.wait_written()
        server.stop()
        server.start()
        found += bench.case("restart", texts)
    return sorted(found, key=lambda each: each.stage == ANSWER)


def _prompts(options: argparse.Namespace) -> Iterator[str]:
    """Yield texts of which no two begin alike; about as many tokens as words."""
    for number in range(options.requests):
        yield _text(number + 1, int(options.tokens * _SHARES[number % len(_SHARES)]))


def _text(seed: int, words: int) -> str:
    """Return so many words, and 32 at least."""
    return " ".join(sentences(seed, words).split()[: max(32, words)])


def _kept(server: Server, name: str, timeout_s: float = 5.0) -> bytes:
    """Return the trace of a request that has ended: it is kept just after its last word was sent."""
    deadline = time.monotonic() + timeout_s
    while True:
        try:
            return server.get(f"/v1/trace/{name}")
        except OmlxError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


@dataclass(frozen=True)
class _Bench:
    """Asks one server, and compares."""

    server: ServerProcess
    model: str
    answer: int

    def warm_up(self, tokens: int) -> None:
        """Run one long prompt twice: the rates of computing, storing and restoring are known then."""
        for _ in range(2):
            self._send(_text(999, tokens))

    def case(self, case: str, prompts: Iterable[str]) -> list[Measured]:
        """Run each prompt; return what was foretold beside what happened."""
        return [each for prompt in prompts for each in self._compared(case, prompt)]

    def _compared(self, case: str, prompt: str) -> Iterator[Measured]:
        asked = Server(f"http://127.0.0.1:{self.server.port}")
        raw = msgspec.json.encode(self._body(prompt))
        planned = msgspec.json.decode(asked.post("/v1/trace", raw, {"path": _PATH}), type=Explanation)
        reply = self._send(prompt)
        done = msgspec.json.decode(_kept(asked, reply.id), type=RequestTrace)
        spent = {span.stage: span.busy_s for span in done.spans}
        tokens = planned.prompt_tokens - planned.plan.resume
        estimates = {stage.name: stage.seconds or 0.0 for stage in planned.stages}
        for stage, seconds in estimates.items():
            if (
                stage != "decode" and seconds >= _LEAST_S and stage in spent
            ):  # of decoding, the first token is told
                yield Measured(case, stage, tokens, seconds, spent[stage])
        yield Measured(case, ANSWER, tokens, max(sum(estimates.values()), _LEAST_S), reply.ttft_s)

    def _send(self, prompt: str) -> Reply:
        return self.server.client.stream(_PATH, self._body(prompt))

    def _body(self, prompt: str) -> dict[str, Any]:
        asked = {"model": self.model, "prompt": prompt, "max_tokens": self.answer}
        return {**asked, "temperature": 0, "ignore_eos": True}
