"""What the grid costs: prefill whose chunks end where segments end, too, against chunks of one size.

A chat without anything stored is computed both ways in turn. Ending a chunk at each message is what makes prompts
that share messages share their blocks bit for bit; it costs smaller matrix products.
"""

import argparse
import json
import statistics
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from omlx.cli.local import local_model
from omlx.cli.prose import sentences
from omlx.pipeline.chunks import chunk_ends
from omlx.pipeline.stage import Stage
from omlx.pipeline.state import State
from omlx.stages.prefill import PrefillStage
from omlx.telemetry import configure_logging
from omlx.text.chat import ChatPrompt, Message

if TYPE_CHECKING:
    from omlx.runtime.bare import BareChain

#: Tokens of one sentence of the benchmark's prose, about.
_SENTENCE_TOKENS = 11


@dataclass(frozen=True)
class Cost:
    """Seconds of prefill with chunks that end at segments too (`grid_s`), and without (`free_s`), run by run."""

    prompt_tokens: int
    grid_chunks: int
    free_chunks: int
    grid_s: tuple[float, ...]
    free_s: tuple[float, ...]

    @property
    def ratios(self) -> list[float]:
        """Return how much longer the grid took, of each pair of runs."""
        return [grid / free for grid, free in zip(self.grid_s, self.free_s, strict=True)]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--model", required=True, metavar="FOLDER_OR_NAME", help="the model to measure")
    parser.add_argument(
        "--models", metavar="FILE", help="the models.toml to use (default: ./models.toml, if there)"
    )
    parser.add_argument(
        "--tokens", type=int, default=1700, help="about the length of the chat (default 1700)"
    )
    parser.add_argument("--messages", type=int, default=20, help="messages of the chat (default 20)")
    parser.add_argument("--runs", type=int, default=7, help="pairs of runs (default 7)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print."""
    configure_logging(level="error")
    cost = measure(options)
    if options.json:
        print(json.dumps({**asdict(cost), "ratios": cost.ratios}, indent=2))
    else:
        print(render(cost))
    return 0


def render(cost: Cost) -> str:
    """Return the cost in a few lines."""
    ratios = sorted(cost.ratios)
    return (
        f"{cost.prompt_tokens} tokens, {len(ratios)} pairs of runs\n"
        f"chunks at grid and segment ends: {cost.grid_chunks}, median {statistics.median(cost.grid_s):.3f} s\n"
        f"chunks of one size:              {cost.free_chunks}, median {statistics.median(cost.free_s):.3f} s\n"
        f"ratio: median {statistics.median(ratios):.3f}, from {ratios[0]:.3f} to {ratios[-1]:.3f}"
    )


def chat(messages: int, tokens: int) -> ChatPrompt:
    """Return a chat of that many messages, about equally long."""
    each = max(1, round(tokens / messages / _SENTENCE_TOKENS))
    roles = ["system", *("assistant" if number % 2 else "user" for number in range(messages - 1))]
    return ChatPrompt(tuple(Message(role, sentences(number, each)) for number, role in enumerate(roles)))


def measure(options: argparse.Namespace) -> Cost:
    """Compute the chat both ways, one after the other, as often as asked."""
    # loading MLX and mlx-lm takes 2 to 5 s
    from omlx.runtime.bare import BareChain  # noqa: PLC0415

    local = local_model(argparse.Namespace(models=options.models, overrides=(), model=options.model))
    chain = BareChain(local.settings, local.name, Path(local.base))
    try:
        return _measure(chain, chat(options.messages, options.tokens), options.runs)
    finally:
        chain.close()


def _measure(chain: "BareChain", prompt: ChatPrompt, runs: int) -> Cost:
    cut = chain.stages
    free = tuple(stage for stage in cut if stage.name() != "segment")
    for stages in (cut, free):
        chain.run(prompt, stages=stages)  # the first run of a shape compiles and allocates
    with_grid, without = [], []
    for _ in range(runs):
        with_grid.append(chain.run(prompt, stages=cut))
        without.append(chain.run(prompt, stages=free))
    return Cost(
        prompt_tokens=len(with_grid[0].tokens),
        grid_chunks=_num_chunks(cut, with_grid[0]),
        free_chunks=_num_chunks(free, without[0]),
        grid_s=tuple(state.sequence.device_s["prefill"] for state in with_grid),
        free_s=tuple(state.sequence.device_s["prefill"] for state in without),
    )


def _num_chunks(stages: tuple[Stage, ...], state: State) -> int:
    """Return in how many chunks a prompt was computed."""
    prefill = next(stage for stage in stages if isinstance(stage, PrefillStage))
    return len(list(chunk_ends(0, len(state.tokens) - 1, prefill.chunk_tokens, prefill.cuts(state))))
