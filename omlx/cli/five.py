"""Reuse in five cases, and after a crash, through the HTTP API of a server of its own.

    cold          a prompt that no one has seen
    same          the same prompt again
    other tail    its last ten tokens differ
    edit at half  one token in the middle differs
    back          the first prompt again, with a third tail
    crashed       SIGKILL, start, and the `other tail` prompt again

Prompts are sent as token ids, so that the number of differing tokens is exact.
"""

import argparse
import json
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

from omlx.cli.options import model_name
from omlx.cli.process import ServerProcess
from omlx.cli.prose import sentences
from omlx.cli.table import format_table
from omlx.text.tokenizer import FolderTokenizer
from omlx.types import Tokens, as_tokens

TAIL_TOKENS = 10


@dataclass(frozen=True)
class Row:
    """One case. `new_tokens` is what no earlier prompt of this run has at that place: the least to be prefilled."""

    case: str
    prompt_tokens: int
    new_tokens: int
    cached_tokens: int
    hot_tokens: int
    cold_tokens: int
    prefilled_tokens: int
    ttft_s: float
    ratio: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--model", required=True, metavar="FOLDER_OR_NAME", help="the model to measure")
    parser.add_argument("--tokens", type=int, default=1750, help="length of the prompt (default 1750)")
    parser.add_argument("--answer", type=int, default=8, help="tokens of each answer (default 8)")
    parser.add_argument("--pipeline", help="the pipeline to measure (default: default)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print the table."""
    with tempfile.TemporaryDirectory(prefix="omlx-five-") as scratch:
        rows = measure(options, Path(scratch))
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print(render(rows))
    return 0


def render(rows: list[Row]) -> str:
    """Return the rows as a table."""
    header = ("case", "prompt", "new", "cached", "hot", "cold", "prefilled", "TTFT s", "of cold")
    return format_table(
        header,
        [
            (
                row.case,
                row.prompt_tokens,
                row.new_tokens,
                row.cached_tokens,
                row.hot_tokens,
                row.cold_tokens,
                row.prefilled_tokens,
                f"{row.ttft_s:.3f}",
                f"{row.ratio:.3f}",
            )
            for row in rows
        ],
    )


def measure(options: argparse.Namespace, scratch: Path) -> list[Row]:
    """Run the cases against a server with an empty cache under `scratch`."""
    from omlx.models.resolve import resolve_folder  # noqa: PLC0415 - loads the BLAS and huggingface_hub: 0.5 s

    folder = resolve_folder(options.model)
    prompts = make_prompts(FolderTokenizer(folder), options.tokens)
    arguments = ["--model", str(folder), "--set", f"cache.directory={scratch / 'blocks'}"]
    if options.pipeline:
        arguments += ["--set", f"defaults.pipeline={options.pipeline}"]
    rows: list[Row] = []
    seen: list[Tokens] = []
    server = ServerProcess(arguments, scratch / "server.log")
    with server:
        _warm_up(server, folder, options.answer)
        for case, prompt in prompts.items():
            if case == "crashed":
                server.wait_written()
                server.kill()
                server.start()
                _warm_up(server, folder, options.answer)
            rows.append(_measure_case(server, folder, case, prompt, seen, rows, options.answer))
            seen.append(prompt)
    return rows


def make_prompts(tokenizer: FolderTokenizer, num_tokens: int) -> dict[str, Tokens]:
    """Return the prompt of each case: `(num_tokens,) int32`."""
    base = _tokens(tokenizer, 1, num_tokens)
    other = _tokens(tokenizer, 2, num_tokens)
    tail, third = base.copy(), base.copy()
    tail[-TAIL_TOKENS:] = _different(base[-TAIL_TOKENS:], other)
    third[-TAIL_TOKENS:] = _different(
        tail[-TAIL_TOKENS:], _different(base[-TAIL_TOKENS:], other[TAIL_TOKENS:])
    )
    edit = base.copy()
    half = num_tokens // 2
    edit[half : half + 1] = _different(base[half : half + 1], other)
    return {
        "cold": base,
        "same": base,
        "other tail": tail,
        "edit at half": edit,
        "back": third,
        "crashed": tail,
    }


def _tokens(tokenizer: FolderTokenizer, seed: int, count: int) -> Tokens:
    return tokenizer.encode(sentences(seed, count), add_special_tokens=True).tokens[:count]


def _different(tokens: Tokens, source: Tokens) -> Tokens:
    """Return tokens from `source`, each different from the one in `tokens` at its place."""
    found = [next(int(t) for t in source[i:] if t != token) for i, token in enumerate(tokens)]
    return as_tokens(found)


def _warm_up(server: ServerProcess, folder: Path, answer: int) -> None:
    """Run one short request, so that no case pays for the first use of anything."""
    body = {"model": model_name(str(folder)), "prompt": "Begin.", "max_tokens": answer, "temperature": 0}
    server.client.stream("/v1/completions", body)


def _measure_case(
    server: ServerProcess,
    folder: Path,
    case: str,
    prompt: Tokens,
    seen: list[Tokens],
    rows: list[Row],
    answer: int,
) -> Row:
    body = {
        "model": model_name(str(folder)),
        "prompt": prompt.tolist(),
        "max_tokens": answer,
        "temperature": 0,
        "ignore_eos": True,
    }
    reply = server.client.stream("/v1/completions", body)
    shared = max((common_prefix(prompt, other) for other in seen), default=0)
    return Row(
        case,
        reply.prompt_tokens,
        max(len(prompt) - shared, 1),
        reply.cached_tokens,
        reply.own["hot_tokens"],
        reply.own["cold_tokens"],
        reply.own["prefilled_tokens"],
        reply.ttft_s,
        reply.ttft_s / rows[0].ttft_s if rows else 1.0,
    )


def common_prefix(left: Tokens, right: Tokens) -> int:
    """Return how many tokens two sequences share from the start."""
    length = min(len(left), len(right))
    differing = (left[:length] != right[:length]).nonzero()[0]
    return int(differing[0]) if len(differing) else length
