"""Speed beside mlx-lm by itself, and fairness, through the HTTP API of a server of its own.

    one stream       tokens per second / `mlx_lm.stream_generate` in this process
    after a hit      the same prompt again: the first tokens' KV comes from the cache
    N streams        tokens per second of N requests sent at once, prefill included / mlx-lm's `BatchGenerator`
    N decoding       the same while all N decode
    cold prefill     seconds to the first token without a cache (`no_cache`) / with all tiers
    cold decode      tokens per second with all tiers / without a cache
    gap              while a stream runs, a long prompt comes, then a short one that is stored: the longest silence of
                     the stream, in slices (the time of one prefill chunk of the long prompt alone)
    warm TTFT        seconds to the first token of the short one, in slices
    long prompt      seconds to its first token / alone
    N bits           tokens per second with keys and values of so many bits / with the model's own (with --bits)

Each ratio is measured with both sides in turn, in rounds; the median of the rounds is shown, and their range. Of the
speeds among them, 1 means as fast, more means faster.
"""

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

from omlx.cli.client import Reply
from omlx.cli.options import model_name
from omlx.cli.process import ServerProcess
from omlx.cli.prose import sentences
from omlx.cli.table import format_table
from omlx.config.spell import toml_key, toml_value
from omlx.errors import OmlxError
from omlx.text.tokenizer import FolderTokenizer
from omlx.types import Tokens

#: What `prefill.chunk_tokens` is by default: the size of a slice.
_SLICE_TOKENS = 512
_LONG_SLICES = 5


@dataclass(frozen=True)
class Row:
    """One ratio over all rounds."""

    name: str
    median: float
    least: float
    most: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--model", required=True, metavar="FOLDER_OR_NAME", help="the model to measure")
    parser.add_argument("--tokens", type=int, default=300, help="length of the prompts (default 300)")
    parser.add_argument("--answer", type=int, default=64, help="tokens of each answer (default 64)")
    parser.add_argument(
        "--streams", type=int, nargs="*", default=[4, 8], help="requests at once (default 4 8)"
    )
    parser.add_argument(
        "--bits",
        type=int,
        nargs="*",
        default=[],
        metavar="N",
        help="kv_bits to measure: 2, 4, 8 (default none)",
    )
    parser.add_argument("--rounds", type=int, default=3, help="rounds of each ratio (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print the table."""
    with tempfile.TemporaryDirectory(prefix="omlx-speed-") as scratch:
        rows = measure(options, Path(scratch))
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print(render(rows))
    return 0


def render(rows: list[Row]) -> str:
    """Return the rows as a table."""
    cells = [(row.name, f"{row.median:.3f}", f"{row.least:.3f}", f"{row.most:.3f}") for row in rows]
    return format_table(("ratio", "median", "least", "most"), cells)


def measure(options: argparse.Namespace, scratch: Path) -> list[Row]:
    """Measure with two servers under `scratch`, one of them without a cache, and mlx-lm in this process."""
    from omlx.models.resolve import resolve_folder  # noqa: PLC0415 - loads the BLAS and huggingface_hub: 0.5 s

    # isort: split
    from omlx.engine.peer import Peer  # noqa: PLC0415 - imports mlx-lm: 2 s

    folder = resolve_folder(options.model)
    cached = ServerProcess(
        ["--model", str(folder), "--set", f"cache.directory={scratch / 'blocks'}"], scratch / "cached.log"
    )
    plain = ServerProcess(
        ["--model", str(folder), "--set", "defaults.pipeline=no_cache"], scratch / "plain.log"
    )
    quantized = {bits: _quantized(folder, bits, scratch) for bits in options.bits}
    with ExitStack() as stack:
        for server in (cached, plain, *quantized.values()):
            stack.enter_context(server)
        bench = _Bench(options, folder, cached, plain, quantized, Peer(folder))
        bench.warm_up()
        return bench.rows()


def _quantized(folder: Path, bits: int, scratch: Path) -> ServerProcess:
    """Return a server of the same model that quantizes keys and values to `bits`, with blocks of its own."""
    file = scratch / f"{bits}-bits.toml"
    file.write_text(
        f"[models.{toml_key(model_name(str(folder)))}]\n"
        f"path = {toml_value(str(folder))}\n"
        f"stages.prefill.kv_bits = {bits}\n",
        encoding="utf-8",
    )
    given = ["--models", str(file), "--set", f"cache.directory={scratch / f'{bits}-bits'}"]
    return ServerProcess(given, scratch / f"{bits}-bits.log")


def decoding_tps(replies: Sequence[Reply]) -> float:
    """Return the tokens per second of several answers, from the first token of the last to begin to the first end.

    A token may show with a later one: pieces of text are scaled to tokens. Raises OmlxError when there is no such time.
    """
    begin = max(reply.came_s[0] for reply in replies)
    end = min(reply.came_s[-1] for reply in replies)
    if end <= begin:
        raise OmlxError("at no time did all of them decode", hint="raise --answer")
    return sum(
        sum(begin < moment <= end for moment in reply.came_s) * reply.completion_tokens / len(reply.came_s)
        for reply in replies
    ) / (end - begin)


class _Bench:
    """Asks both servers and mlx-lm, with a prompt that nobody has seen each time."""

    def __init__(
        self,
        options: argparse.Namespace,
        folder: Path,
        cached: ServerProcess,
        plain: ServerProcess,
        quantized: dict[int, ServerProcess],
        peer: Any,
    ) -> None:
        self._options = options
        self._name = model_name(str(folder))
        self._cached, self._plain, self._quantized, self._peer = cached, plain, quantized, peer
        self._tokenizer = FolderTokenizer(folder)
        self._seed = 0

    def warm_up(self) -> None:
        """Let every side compute once."""
        for _ in range(2):
            prompt = self._prompt(self._options.tokens)
            for server in (self._cached, self._plain, *self._quantized.values()):
                self._ask(server, prompt, 8)
            self._peer.stream_tps(prompt, 8)

    def rows(self) -> list[Row]:
        """Return every ratio."""
        found = self._rounds("one stream", "after a hit", measured=self._one_stream)
        for streams in self._options.streams:
            names = (f"{streams} streams", f"{streams} decoding")
            found += self._rounds(*names, measured=partial(self._together, streams))
        found += self._rounds("cold prefill", "cold decode", measured=self._tiers)
        found += self._rounds("gap", "warm TTFT", "long prompt", measured=self._fairness)
        widths = [f"{bits} bits" for bits in self._quantized]
        return found + (self._rounds(*widths, measured=self._widths) if widths else [])

    def _rounds(self, *names: str, measured: Callable[[], tuple[float, ...]]) -> list[Row]:
        columns = zip(*(measured() for _ in range(self._options.rounds)), strict=True)
        return [
            Row(name, statistics.median(column), min(column), max(column))
            for name, column in zip(names, columns, strict=True)
        ]

    def _one_stream(self) -> tuple[float, ...]:
        prompt, answer = self._prompt(self._options.tokens), self._options.answer
        fresh = self._ask(self._cached, prompt, answer).decode_tps
        alone = self._peer.stream_tps(prompt, answer)
        hit = self._ask(self._cached, prompt, answer)
        assert hit.cached_tokens == len(prompt) - 1
        return fresh / alone, hit.decode_tps / alone

    def _together(self, streams: int) -> tuple[float, ...]:
        prompts = [self._prompt(self._options.tokens) for _ in range(streams)]
        started = time.perf_counter()
        with ThreadPoolExecutor(streams) as pool:
            replies = list(pool.map(lambda p: self._ask(self._cached, p, self._options.answer), prompts))
        spent = time.perf_counter() - started
        ours = sum(reply.completion_tokens for reply in replies) / spent
        theirs, their_decoding = self._peer.together_tps(prompts, self._options.answer)
        return ours / theirs, decoding_tps(replies) / their_decoding

    def _tiers(self) -> tuple[float, ...]:
        prompt = self._prompt(4 * self._options.tokens)
        ours = self._ask(self._cached, prompt, self._options.answer)
        without = self._ask(self._plain, prompt, self._options.answer)
        return without.ttft_s / ours.ttft_s, ours.decode_tps / without.decode_tps

    def _fairness(self) -> tuple[float, ...]:
        length = _LONG_SLICES * _SLICE_TOKENS
        alone = self._ask(self._cached, self._prompt(length), 1).ttft_s
        stored = self._prompt(self._options.tokens)
        self._ask(self._cached, stored, 1)
        stream, long = self._prompt(self._options.tokens), self._prompt(length)
        slice_s = alone / _LONG_SLICES
        with ThreadPoolExecutor(3) as pool:
            running = pool.submit(self._ask, self._cached, stream, 8 * self._options.answer)
            time.sleep(slice_s)
            delayed = pool.submit(self._ask, self._cached, long, 1)
            time.sleep(slice_s)
            short = pool.submit(self._ask, self._cached, stored, 1)
            gap, warm, whole = running.result().largest_gap_s, short.result().ttft_s, delayed.result().ttft_s
        return gap / slice_s, warm / slice_s, whole / alone

    def _widths(self) -> tuple[float, ...]:
        prompt, answer = self._prompt(4 * self._options.tokens), self._options.answer
        own = self._ask(self._cached, prompt, answer).decode_tps
        return tuple(
            self._ask(server, prompt, answer).decode_tps / own for server in self._quantized.values()
        )

    def _prompt(self, tokens: int) -> Tokens:
        self._seed += 1
        return self._tokenizer.encode(sentences(self._seed, tokens), add_special_tokens=True).tokens[:tokens]

    def _ask(self, server: ServerProcess, prompt: Tokens, answer: int) -> Reply:
        body = {
            "model": self._name,
            "prompt": prompt.tolist(),
            "max_tokens": answer,
            "temperature": 0,
            "ignore_eos": True,
        }
        return server.client.stream("/v1/completions", body)
