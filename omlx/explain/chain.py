"""The chain as it would run: blocks, segments, stages, writes and evictions of one prompt. Pure."""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from omlx.pipeline.chunks import chunk_ends, grid_floor
from omlx.pipeline.cost import Plan
from omlx.pipeline.explanation import (
    BlockOutlook,
    Eviction,
    SegmentOutlook,
    Where,
    Writes,
)
from omlx.pipeline.pipeline import Pipeline
from omlx.pipeline.stage import Services
from omlx.pipeline.state import State
from omlx.prefix.hasher import PrefixHasher
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match, Piece
from omlx.stages.prefill import PrefillStage
from omlx.stages.writeback import WritebackStage, block_ranges
from omlx.store.eviction import Cost
from omlx.store.preview import TierView, preview
from omlx.types import Tier

Range = tuple[int, int]


def segments(state: State, reused: int) -> tuple[SegmentOutlook, ...]:
    """Return the parts of the prompt with their size, digest and how much of each is restored."""
    assert state.starts is not None  # tokenize has run
    hasher = PrefixHasher(state.model.fingerprint)
    found = []
    for segment in state.segments:
        hasher.update(state.tokens[segment.start : segment.end])
        char, end = char_at(state, segment.start), char_at(state, segment.end)
        kept = min(max(reused - segment.start, 0), segment.end - segment.start)
        digest = hasher.digest().hex()
        found.append(
            SegmentOutlook(segment.role, segment.label, segment.start, segment.end, end - char, kept, digest)
        )
    return tuple(found)


def char_at(state: State, token: int) -> int:
    """Return the character of the rendered text at which a token begins."""
    assert state.starts is not None  # tokenize has run
    return int(state.starts[token]) if token < len(state.tokens) else len(state.text)


@dataclass(frozen=True, slots=True)
class Planned:
    """What `writeback` would store of a prompt: token ranges, and how many states of recurrent layers."""

    ranges: tuple[Range, ...] = ()
    states: int = 0


def planned(state: State, match: Match | None, plan: Plan, pipeline: Pipeline, services: Services) -> Planned:
    """Return what would be stored of the prompt, cut as `writeback` cuts it while it is computed.

    The prompt's last token is run by the first decode step, so it is stored with the answer.
    """
    writeback, prefill = pipeline.stage(WritebackStage), pipeline.stage(PrefillStage)
    layout = state.model.layout
    if match is None or layout is None:
        return Planned()
    if not isinstance(writeback, WritebackStage) or not isinstance(prefill, PrefillStage):
        return Planned()
    kinds = layout.kinds()
    found: list[Range] = []
    until, states = _stored_until(match, state, layout, services, writeback.tiers), 0
    for end in _chunks(state, plan, prefill):
        found += writeback.ranges(state, until, end)
        until = max(until, end)
        states += "state" in kinds and writeback.wants_state(state, end)
    return Planned(tuple(found), states)


def _stored_until(
    match: Match, state: State, layout: Layout, services: Services, tiers: Collection[Tier]
) -> int:
    """Return up to where nothing need be written again, as the tiers that `writeback` keeps have it."""
    if services.store is None:
        return match.stored
    return services.store.match(match.fingerprint, state.tokens, layout, match.limit, tiers=tiers).stored


def _chunks(state: State, plan: Plan, prefill: PrefillStage) -> Iterator[int]:
    """Yield where chunks of prefill end, as far as they are stored."""
    cuts, end = prefill.cuts(state), len(state.tokens) - 1
    kept = grid_floor(end, prefill.chunk_tokens) if prefill.exact else end
    return (chunk for chunk in chunk_ends(plan.resume, end, prefill.chunk_tokens, cuts) if chunk <= kept)


def blocks(state: State, match: Match | None, new: Planned, block_tokens: int) -> tuple[BlockOutlook, ...]:
    """Return the prompt as blocks: what is restored, what is known but gone, what is new."""
    layout, total = state.model.layout, len(state.tokens)
    found = list(_stored(match, layout)) if match is not None and layout is not None else []
    position = found[-1].end if found else 0
    matched = min(match.matched, total) if match is not None else 0
    if matched > position and layout is not None:
        # the last token of a prompt is always computed, stored or not
        where: Where = "miss" if matched == total == position + 1 else "lost"
        found.append(BlockOutlook(position, matched, where, 0))
        position = matched
    for start, end in _missing(position, new.ranges, total, block_tokens):
        found.append(BlockOutlook(start, end, "miss", _bytes(layout, end - start)))
    return tuple(found)


def _missing(position: int, ranges: Iterable[Range], total: int, block_tokens: int) -> Iterator[Range]:
    """Yield what is not stored, as it will be; what will not be stored, by the length of a block."""
    for start, end in ranges:
        if end > position:
            yield from block_ranges(position, start, block_tokens, ())
            yield max(position, start), end
            position = end
    yield from block_ranges(position, total, block_tokens, ())


def _stored(match: Match, layout: Layout) -> Iterator[BlockOutlook]:
    """Yield what a restore takes, by position: the pieces of one kind cover it, the others lie over them."""
    covers: list[Range] = []
    position = 0
    for piece in match.pieces:
        end = piece.block.start + piece.used
        if end > position:
            covers.append((position, end))
            position = end
    for start, end in covers:
        over = [piece for piece in match.pieces if _lies_in(piece, start, end)]
        touching = [p for p in match.pieces if p.block.start < end and p.block.start + p.used > start]
        cold = any("cold" in piece.tiers.values() for piece in touching)
        nbytes = sum(
            layout.record_bytes(kind, piece.block.num_tokens) for piece in over for kind in piece.tiers
        )
        yield BlockOutlook(start, end, "cold" if cold else "hot", nbytes)


def _lies_in(piece: Piece, start: int, end: int) -> bool:
    """Tell whether a piece ends in a range: each piece ends in exactly one."""
    return start < piece.block.start + piece.used <= end


def _bytes(layout: Layout | None, num_tokens: int) -> int:
    return layout.token_bytes() * num_tokens if layout is not None else 0


def writes(new: Planned, layout: Layout | None) -> Writes:
    """Return what the new blocks of the prompt come to."""
    tokens = sum(end - start for start, end in new.ranges)
    states = new.states * layout.record_bytes("state", 1) if layout is not None and new.states else 0
    return Writes(len(new.ranges), tokens, _bytes(layout, tokens) + states)


def evictions(
    views: Iterable[TierView], match: Match | None, new: Planned, state: State
) -> tuple[Eviction, ...]:
    """Return what would go from each tier for the new blocks."""
    layout = state.model.layout
    if layout is None or not new.ranges:
        return ()
    keep = {step.block.name for step in match.steps} if match is not None else set()
    found = []
    for view in views:
        gone = preview(view, [_cost(view, layout, end - start) for start, end in new.ranges], keep)
        if gone.evicted or gone.refused:
            found.append(Eviction(view.tier, len(gone.evicted), gone.nbytes, gone.refused))
    return tuple(found)


def _cost(view: TierView, layout: Layout, num_tokens: int) -> Cost:
    """Return what a block of that length takes in a tier: on disk whole pages and a header for each file."""
    kinds = [kind for kind in layout.kinds() if kind != "state"]
    sizes = [layout.record_bytes(kind, num_tokens) for kind in kinds]
    if view.tier == "hot":
        return Cost(sum(sizes), sum(len(list(layout.tensors(kind))) for kind in kinds))
    return Cost(sum(-(-(size + _HEADER_BYTES) // _PAGE_BYTES) * _PAGE_BYTES for size in sizes))


_PAGE_BYTES = 4096
#: About the size of a safetensors header with a few tensors.
_HEADER_BYTES = 512
