"""Verify: is what the cache restores what a cold run computes? Asked of one model on this machine.

    prompt   ├──────────── cut ───────────┤       random tokens, cut at random places, half of them on the grid
    edits    ├──────────── cut ─ ─ ─ ─ ┤          prompts that leave it there

    hot         two edits, then the prompt again, over a store that has seen the prompt
    cold        another edit and the prompt, without the tier in RAM
    restarted   another edit and the prompt, after the store was closed and opened anew

Each run's logits are compared with those of a run of the same prompt without any store, from where it was resumed.

Why two bounds. A resume at a grid point runs the shapes of a cold run: on a CPU its logits have the same bits. A
resume elsewhere differs by rounding, as a cold run does whose chunks end elsewhere: that is measured too, and a
restored run may differ by `SLACK` times as much (or by 1e-4, where that is more). Rounding may tip a choice of
experts or a step of quantization, with or without a cache, and then one token jumps: there the median over the
tokens is held to the bound, not the largest difference.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from omlx.engine.recorder import Logits, computes_on_cpu
from omlx.errors import ModelLoadError, UsageError
from omlx.pipeline.stage import Services, Stage
from omlx.runtime.bare import NO_STORE, BareChain
from omlx.stages.lookup import LookupStage
from omlx.stages.prefill import PrefillStage
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.text.chat import TokenPrompt
from omlx.types import Tokens, as_tokens

#: Bound of the contract on float32 logits between grid points.
BOUND = 1e-4
#: How much more than a cold run with other chunk ends a restored run may differ.
SLACK = 4.0

_TIER_BYTES = 8 * 1024**3
_FLUSH_S = 120.0
_EDITS = 4

Tier: TypeAlias = Literal["hot", "cold", "restarted"]
Place: TypeAlias = Literal["grid", "between"]

_ORDER: tuple[Tier, ...] = ("hot", "cold", "restarted")


class Extent(msgspec.Struct, frozen=True):
    """How much to try: that many triples, of prompts of at most that many tokens, with answers of that many."""

    triples: int = 50
    tokens: int = 1200
    answer: int = 4
    seed: int = 0


class Row(msgspec.Struct, frozen=True):
    """What was found in one tier at one kind of place.

    Attributes:
        tier: where the records came from.
        place: whether runs were resumed on the grid or between its points.
        runs: how many runs were resumed.
        reused: how many tokens were restored, of those that could be.
        compared: how many tokens' logits were compared.
        largest: the largest difference of a logit.
        median: the median over tokens of a token's largest difference.
        bound: what `largest` (or `median`, for models whose choices rounding may tip) must not exceed.
        differing: runs whose greedy answers differ.
        first_differing: the earliest token of an answer that differs, counted from 0.
        kept: the contract is kept.
    """

    tier: Tier
    place: Place
    runs: int
    reused: float
    compared: int
    largest: float
    median: float
    bound: float
    differing: int
    first_differing: int | None
    kept: bool


class Report(msgspec.Struct, frozen=True):
    """What was found. `largest_cold` and `median_cold` are what a cold run moves when its chunks end elsewhere."""

    model: str
    device: Literal["cpu", "gpu"]
    exact: bool
    tips: bool
    largest_cold: float
    median_cold: float
    rows: tuple[Row, ...]

    @property
    def kept(self) -> bool:
        """Tell whether the contract is kept everywhere."""
        return all(row.kept for row in self.rows)


@dataclass(frozen=True)
class Triple:
    """A prompt, where it is cut, and edits: prompts that agree with it up to the cut."""

    prompt: Tokens
    cut: int
    edits: tuple[Tokens, ...]


@dataclass(frozen=True)
class Run:
    """One finished run: where it was resumed, the logits from there on, and the answer."""

    resumed: int
    logits: Logits
    answer: Tokens


@dataclass
class Tally:
    """Differences of many runs. Mutable."""

    runs: int = 0
    reused: int = 0
    reusable: int = 0
    by_token: list[Logits] = field(default_factory=list)
    differing: list[int] = field(default_factory=list)

    def add(self, run: Run, cold: Run, reusable: int) -> None:
        """Compare a run with the cold run of the same prompt, as far as both ran the same tokens."""
        parted = np.flatnonzero(run.answer != cold.answer)
        if len(parted):
            self.differing.append(int(parted[0]))
        alike = len(cold.logits) - run.resumed
        if len(parted):
            alike -= len(cold.answer) - 1 - int(parted[0])
        rows = cold.logits[run.resumed : run.resumed + alike]
        self.by_token.append(np.abs(run.logits[:alike] - rows).max(axis=1))
        self.runs += run.resumed > 0
        self.reused += run.resumed
        self.reusable += reusable

    @property
    def largest(self) -> float:
        """Return the largest difference."""
        return float(max((part.max() for part in self.by_token), default=0.0))

    @property
    def median(self) -> float:
        """Return the median over the tokens."""
        return float(np.median(np.concatenate(self.by_token))) if self.by_token else 0.0


def verify(chain: BareChain, directory: Path, extent: Extent) -> Report:
    """Return what the cache changes for the chain's model, with stores under `directory`.

    Raises ModelLoadError for a model that runs uncached, UsageError for a chain that has nothing to verify.
    """
    if chain.model.layout is None:
        raise ModelLoadError(f"{chain.model.name} runs uncached: {chain.model.uncached_reason}")
    return _Verifier(chain, directory, extent).report()


def make_triples(extent: Extent, grid: int, least: int, vocabulary: int) -> Iterator[Triple]:
    """Yield triples whose cuts lie after `least` tokens, every other one on the grid."""
    rng = np.random.default_rng(extent.seed)
    shortest = max(grid, least) + 3
    if extent.tokens <= shortest:
        raise UsageError(f"prompts need more than {shortest} tokens", hint="raise --tokens")
    for number in range(extent.triples):
        length = int(rng.integers(max(shortest, extent.tokens // 2), extent.tokens + 1))
        prompt = as_tokens(rng.integers(0, vocabulary, length))
        cut = int(rng.integers(least, length - 2))
        if number % 2 == 0:
            cut = grid * int(rng.integers(-(-least // grid), (length - 3) // grid + 1))
        yield Triple(prompt, cut, tuple(_edit(rng, prompt, cut, vocabulary) for _ in range(_EDITS)))


def _edit(rng: np.random.Generator, prompt: Tokens, cut: int, vocabulary: int) -> Tokens:
    """Return a prompt that leaves another one at the cut."""
    tail = rng.integers(0, vocabulary, int(rng.integers(2, len(prompt) - cut + 1)))
    if tail[0] == prompt[cut]:
        tail[0] = (tail[0] + 1) % vocabulary
    return as_tokens(np.concatenate([prompt[:cut], tail]))


def tips(config: Any) -> bool:
    """Tell whether a model's config speaks of choices that rounding may tip: experts, or tokens picked by a score."""
    if not isinstance(config, dict):
        return False
    named = any(("expert" in key or "topk" in key) and bool(value) for key, value in config.items())
    return named or any(tips(value) for value in config.values())


class _Verifier:
    """Run the triples and count."""

    def __init__(self, chain: BareChain, directory: Path, extent: Extent) -> None:
        self._chain = chain
        self._directory = directory
        self._extent = extent
        self._prefill = next((s for s in chain.stages if isinstance(s, PrefillStage)), PrefillStage())
        self._least = max((s.min_reuse_tokens for s in chain.stages if isinstance(s, LookupStage)), default=1)
        self._tallies: dict[tuple[Tier, Place], Tally] = {}
        self._own = Tally()

    def report(self) -> Report:
        """Run everything and judge."""
        grid = self._prefill.chunk_tokens
        self._run(as_tokens([1]), NO_STORE)  # to learn how many logits there are
        for number, triple in enumerate(
            make_triples(self._extent, grid, self._least, self._chain.vocabulary)
        ):
            self._try(triple, self._directory / str(number))
        if not any(tally.runs for tally in self._tallies.values()):
            raise UsageError("nothing was reused", hint="name a pipeline with lookup, fetch and writeback")
        config = msgspec.json.decode((self._chain.folder / "config.json").read_bytes())
        may_tip = tips(config) or self._prefill.kv_bits is not None
        order = sorted(self._tallies, key=lambda key: (_ORDER.index(key[0]), key[1] != "grid"))
        rows = tuple(self._row(tier, place, may_tip) for tier, place in order)
        return Report(
            model=self._chain.model.name,
            device="cpu" if computes_on_cpu() else "gpu",
            exact=self._prefill.exact,
            tips=may_tip,
            largest_cold=self._own.largest,
            median_cold=self._own.median,
            rows=rows,
        )

    def _try(self, triple: Triple, directory: Path) -> None:
        """Run one triple through every tier."""
        cold = self._run(triple.prompt, NO_STORE)
        self._own.add(self._run(triple.prompt, NO_STORE, self._elsewhere()), cold, 0)
        first, *edits = triple.edits
        with _open(directory, hot=True) as store:
            services = Services(store)
            self._compare("hot", triple, triple.prompt, services, cold, 0)
            self._compare("hot", triple, first, services, self._run(first, NO_STORE), triple.cut)
            self._both("hot", triple, edits[0], services, cold)
            store.flush(_FLUSH_S)
            with _open(directory, hot=False) as alone:
                self._both("cold", triple, edits[1], Services(alone), cold)
        with _open(directory, hot=True) as store:
            self._both("restarted", triple, edits[2], Services(store), cold)

    def _both(self, tier: Tier, triple: Triple, edit: Tokens, services: Services, cold: Run) -> None:
        """Run an edit that the store has not seen, and the prompt itself, which it has."""
        self._compare(tier, triple, edit, services, self._run(edit, NO_STORE), triple.cut)
        self._compare(tier, triple, triple.prompt, services, cold, len(triple.prompt) - 1)

    def _compare(
        self, tier: Tier, triple: Triple, tokens: Tokens, services: Services, cold: Run, reusable: int
    ) -> None:
        """Run a prompt over a store and count how it differs from its cold run."""
        on_grid = tokens is triple.prompt or triple.cut % self._prefill.chunk_tokens == 0
        tally = self._tallies.setdefault((tier, "grid" if on_grid else "between"), Tally())
        tally.add(self._run(tokens, services), cold, reusable)

    def _run(self, tokens: Tokens, services: Services, stages: tuple[Stage, ...] | None = None) -> Run:
        prompt = TokenPrompt(tuple(tokens.tolist()))
        state = self._chain.run(prompt, services, stages=stages, max_tokens=self._extent.answer)
        sequence = state.sequence
        return Run(sequence.resumed, self._chain.logits(state), sequence.tokens[len(tokens) :])

    def _elsewhere(self) -> tuple[Stage, ...]:
        """Return the chain with chunks that end elsewhere."""
        moved = msgspec.structs.replace(self._prefill, chunk_tokens=-(-self._prefill.chunk_tokens * 3 // 4))
        return tuple(moved if stage is self._prefill else stage for stage in self._chain.stages)

    def _row(self, tier: Tier, place: Place, may_tip: bool) -> Row:
        tally = self._tallies[tier, place]
        found, own = (tally.median, self._own.median) if may_tip else (tally.largest, self._own.largest)
        bound = max(BOUND, SLACK * own)
        if computes_on_cpu() and (place == "grid" or self._prefill.exact):
            found, bound = tally.largest, 0.0
        return Row(
            tier=tier,
            place=place,
            runs=tally.runs,
            reused=tally.reused / tally.reusable if tally.reusable else 0.0,
            compared=sum(len(part) for part in tally.by_token),
            largest=tally.largest,
            median=tally.median,
            bound=bound,
            differing=len(tally.differing),
            first_differing=min(tally.differing, default=None),
            kept=found <= bound,
        )


@contextmanager
def _open(directory: Path, *, hot: bool) -> Iterator[BlockStore]:
    """Open a store on a directory, with or without a tier in RAM."""
    cold = ColdTier(directory, _TIER_BYTES, min_free_bytes=0)
    with closing(BlockStore(HotTier(_TIER_BYTES) if hot else None, cold)) as store:
        yield store
