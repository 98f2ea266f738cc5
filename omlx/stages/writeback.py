"""writeback: store what was computed, as it is computed.

    stored before ──────┐        ┌── computed so far (offset)
    ├─────────┬─────────┼───┬────┤ ─ ─ ─ ─ ─ ─
                        └ new blocks, cut at segment ends and at most block_tokens long

It runs after each prefill chunk and each decode step. What is stored already is asked of the store each time, so a
block that another request has written meanwhile is not written again, and a hole left by a lost record is filled.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from collections.abc import Sequence as Series
from dataclasses import dataclass, replace
from typing import ClassVar

import structlog

from omlx.config.settings import PositiveInt
from omlx.errors import CacheError
from omlx.pipeline.stage import Lane, Services, Stage, Steps, Store
from omlx.pipeline.state import State, Written
from omlx.pipeline.work import Capture
from omlx.prefix.hasher import Chain
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match
from omlx.store.record import Record
from omlx.types import RecordKind, Tier, Tokens

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class NewBlock:
    """A token range to be stored, and the kinds of record to keep of it."""

    range: tuple[int, int]
    kinds: frozenset[RecordKind]


@dataclass(frozen=True, slots=True)
class Kept:
    """What the store took: blocks and bytes."""

    blocks: int
    nbytes: int


class WritebackStage(Stage, frozen=True, tag="writeback"):
    """Store new blocks: in the hot tier at once, on disk soon after.

    Options:
        block_tokens: the longest block.
        state_every_tokens: recurrent layers: a snapshot is kept at every multiple of this, besides those where reuse
            happens (segment ends, the end of prompt and answer, the point where the prompt left a stored one).
        tiers: where to keep blocks. The hot tier alone survives no restart; the cold tier alone keeps no RAM.
    """

    requires: ClassVar[tuple[str, ...]] = ("request", "model", "tokens", "sequence")
    uses: ClassVar[tuple[str, ...]] = ("segments", "plan", "keep_until", "answer")
    assigns: ClassVar[tuple[str, ...]] = ("written",)
    lane: ClassVar[Lane] = "device"
    during: ClassVar[tuple[str, ...]] = ("prefill", "decode")

    block_tokens: PositiveInt = 256
    state_every_tokens: PositiveInt = 2048
    tiers: tuple[Tier, ...] = ("hot", "cold")

    def run(self, state: State, services: Services) -> Steps:
        """Store the blocks that are complete now; at the end of the request, whatever is left."""
        written, sequence, layout = state.written, state.sequence, state.model.layout
        if services.store is None or layout is None or written.stopped:
            return
        if state.answer is not None:  # all but the answer's end is stored
            spent = state.watch.seconds.get(self.name(), 0.0)
            services.costs.observe(state.model.fingerprint, "store", written.nbytes, spent)
        end = sequence.offset if state.keep_until is None else min(sequence.offset, state.keep_until)
        if end - written.until < self._wait_tokens(state):
            return
        tokens = sequence.tokens[:end]
        match = services.store.match(state.model.fingerprint, tokens, layout, end, tiers=self.tiers)
        if state.answer is not None and "cold" in self.tiers:
            services.store.resubmit(step.block.name for step in match.steps)
        blocks = self._blocks(state, layout, match, end)
        try:
            records = yield Capture(sequence, [block.range for block in blocks])
            captured = list(zip(blocks, records, strict=True))
            kept = _put(services.store, state, tokens, match, captured, tiers=self.tiers)
        except CacheError as error:
            log.warning("writeback stopped", request=state.request.id, reason=str(error))
            state.written = replace(written, stopped=True)
            return
        state.written = Written(written.blocks + kept.blocks, written.nbytes + kept.nbytes, end)

    def _wait_tokens(self, state: State) -> int:
        """Return how many computed tokens to wait for: during decode a whole block, else none."""
        sequence = state.sequence
        if state.answer is not None or state.cancelled or sequence.offset < sequence.prompt_tokens:
            return 1
        return min(self.block_tokens, sequence.capture_within or self.block_tokens)

    def _blocks(self, state: State, layout: Layout, match: Match, end: int) -> list[NewBlock]:
        """Return the blocks to store now: what is not stored before `end`, and a wanted state at `end`."""
        kinds = layout.kinds()
        wanted = "state" not in kinds or self.wants_state(state, end)
        kept = frozenset(kinds if wanted else [kind for kind in kinds if kind != "state"])
        blocks = [NewBlock(span, kept) for span in self.ranges(state, match.stored, end)]
        if not blocks and "state" in kinds and wanted and match.resume < end:
            start = max((step.block.start for step in match.steps if step.block.start < end), default=0)
            blocks = [NewBlock((start, end), frozenset({"state"}))]
        return [block for block in blocks if block.kinds]

    def ranges(self, state: State, start: int, end: int) -> Iterator[tuple[int, int]]:
        """Yield the token ranges of new blocks in `[start, end)`, as far as the sequence has been run."""
        if state.model.layout is not None and state.model.layout.kinds() == ("state",):
            # a block of a model that is all state holds nothing but the snapshot at its end: cut there only
            return block_ranges(start, end, end, ())
        return block_ranges(start, end, self.block_tokens, [segment.end for segment in state.segments])

    def wants_state(self, state: State, end: int) -> bool:
        """Tell whether a snapshot at `end` is likely to be resumed from."""
        if state.model.layout is not None and state.model.layout.kinds() == ("state",):
            return True
        if (
            state.keep_until is not None
        ):  # exact: chunks end on the grid alone, and any of them may be stepped back to
            return True
        points = {segment.end for segment in state.segments} | {len(state.tokens) - 1}
        if state.plan is not None:
            points.add(state.plan.matched_tokens)
        return (
            end in points or state.answer is not None or state.cancelled or end % self.state_every_tokens == 0
        )


def block_ranges(start: int, end: int, block_tokens: int, cuts: Iterable[int]) -> Iterator[tuple[int, int]]:
    """Yield the token ranges of new blocks in `[start, end)`: cut at `cuts`, none longer than `block_tokens`."""
    for cut in [*sorted(cut for cut in set(cuts) if start < cut < end), end]:
        while start < cut:
            stop = min(start + block_tokens, cut)
            yield start, stop
            start = stop


def _put(
    store: Store,
    state: State,
    tokens: Tokens,
    match: Match,
    captured: Series[tuple[NewBlock, Mapping[RecordKind, Record]]],
    *,
    tiers: Collection[Tier],
) -> Kept:
    """Give captured records to the store, head first; return what it kept.

    Stops at the first block that is refused: a block without its parent could never be found.
    """
    layout = state.model.layout
    if layout is None or not captured:
        return Kept(0, 0)
    first = captured[0][0].range[0]
    chain = Chain(state.model.fingerprint, tokens[:first], match.parent(first))
    blocks = nbytes = 0
    for block, records in captured:
        kept = {kind: record for kind, record in records.items() if kind in block.kinds}
        placement = store.put(chain.cut(tokens[slice(*block.range)]), kept, layout, tiers=tiers)
        if not (placement.hot or placement.cold):
            break
        blocks += 1
        nbytes += sum(record.nbytes for record in kept.values())
    return Kept(blocks, nbytes)
