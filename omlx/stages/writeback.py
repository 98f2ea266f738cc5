"""writeback: store what was computed, as it is computed.

    stored before ──────┐        ┌── computed so far (offset)
    ├─────────┬─────────┼───┬────┤ ─ ─ ─ ─ ─ ─
                        └ new blocks, cut at segment ends and at most block_tokens long

It runs after each prefill chunk and each decode step. What is stored already is asked of the store each time, so a
block that another request has written meanwhile is not written again, and a hole left by a lost record is filled.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import ClassVar

import structlog

from omlx.config.settings import PositiveInt
from omlx.errors import CacheError
from omlx.pipeline.stage import Lane, Services, Stage, Steps, Store
from omlx.pipeline.state import State, Written
from omlx.pipeline.work import Capture
from omlx.prefix.hasher import Chain
from omlx.prefix.match import Match
from omlx.store.record import Record
from omlx.types import RecordKind, Tier, Tokens

log = structlog.get_logger()


class WritebackStage(Stage, frozen=True, tag="writeback"):
    """Store new blocks: in the hot tier at once, on disk soon after.

    Options:
        block_tokens: the longest block.
        tiers: where to keep blocks. The hot tier alone survives no restart; the cold tier alone keeps no RAM.
    """

    requires: ClassVar[tuple[str, ...]] = ("request", "model", "tokens", "sequence")
    uses: ClassVar[tuple[str, ...]] = ("segments", "answer")
    assigns: ClassVar[tuple[str, ...]] = ("written",)
    lane: ClassVar[Lane] = "device"
    during: ClassVar[tuple[str, ...]] = ("prefill", "decode")

    block_tokens: PositiveInt = 256
    tiers: tuple[Tier, ...] = ("hot", "cold")

    def run(self, state: State, services: Services) -> Steps:
        """Store the blocks that are complete now; at the end of the request, whatever is left."""
        written, sequence = state.written, state.sequence
        if services.store is None or state.model.layout is None or written.stopped:
            return
        if sequence.offset - written.until < self._wait_tokens(state):
            return
        tokens = sequence.tokens[: sequence.offset]
        match = services.store.match(state.model.fingerprint, tokens, state.model.layout, limit=len(tokens))
        cuts = [segment.end for segment in state.segments]
        ranges = list(block_ranges(match.stored, len(tokens), self.block_tokens, cuts))
        if state.answer is not None:
            services.store.resubmit(step.block.name for step in match.steps)
        if not ranges:
            state.written = Written(written.blocks, written.nbytes, len(tokens))
            return
        try:
            records = yield Capture(sequence, ranges)
            blocks, nbytes = _put(services.store, state, tokens, match, zip(ranges, records, strict=True))
        except CacheError as error:
            log.warning("writeback stopped", request=state.request.id, reason=str(error))
            state.written = Written(written.blocks, written.nbytes, written.until, stopped=True)
            return
        state.written = Written(written.blocks + blocks, written.nbytes + nbytes, len(tokens))

    def _wait_tokens(self, state: State) -> int:
        """Return how many computed tokens to wait for: during decode a whole block, else none."""
        sequence = state.sequence
        if state.answer is not None or state.cancelled or sequence.offset < sequence.prompt_tokens:
            return 1
        return min(self.block_tokens, sequence.capture_within or self.block_tokens)


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
    captured: Iterable[tuple[tuple[int, int], Mapping[RecordKind, Record]]],
) -> tuple[int, int]:
    """Give captured records to the store, head first; return how many blocks and bytes it kept.

    Stops at the first block that is refused: a block without its parent could never be found.
    """
    layout = state.model.layout
    assert layout is not None  # checked by the caller
    chain = Chain(state.model.fingerprint, tokens[: match.stored], match.parent(match.stored))
    blocks = nbytes = 0
    for (start, end), records in captured:
        placement = store.put(chain.cut(tokens[start:end]), records, layout)
        if not (placement.hot or placement.cold):
            break
        blocks += 1
        nbytes += sum(record.nbytes for record in records.values())
    return blocks, nbytes
