"""Match (API draft; filled in soon)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from omlx.prefix.block import Block
from omlx.prefix.layout import Layout
from omlx.types import BlockName, Fingerprint, RecordKind, Tier

#: Which records of a block can be had, and from which tier.
Presence = Callable[[BlockName], Mapping[RecordKind, Tier]]


@dataclass(frozen=True, slots=True)
class Step:
    """A block whose first `shared` tokens (at least 1) stand in the prompt at the block's position."""

    block: Block
    shared: int


@dataclass(frozen=True, slots=True)
class Piece:
    """Records that a restore takes from one block: its tokens `[block.start, block.start + used)`.

    `tiers` names the record kinds to take, and where each is. Of the pieces that name one kind of `kv` or
    `window`, in order, each begins where the one before it ends, and the last ends at `resume`; those of `kv`
    begin at 0, those of `window` at or before `resume - window`. One piece names `state`; its block ends at
    `resume`.
    """

    block: Block
    used: int
    tiers: Mapping[RecordKind, Tier]


@dataclass(frozen=True, slots=True)
class Shortfall:
    """Why a match is shorter than the tokens that agreed: `str()` gives the words for a trace."""

    kind: RecordKind | None  # None: the limit (the last token of a prompt is always computed)
    position: int


@dataclass(frozen=True, slots=True)
class Match:
    """What a prompt can reuse."""

    fingerprint: Fingerprint
    limit: int
    resume: int  # longest position at which every layer has what it needs
    matched: int  # tokens that agreed with stored tokens, records or not
    stored: int  # like resume, but without the limit and the states: write-back has no kv or window to write before it
    pieces: tuple[Piece, ...]
    hot_tokens: int
    cold_tokens: int  # hot_tokens + cold_tokens == resume
    shortfall: Shortfall | None
    steps: tuple[Step, ...]  # every block of which tokens agreed, by start

    def parent(self, position: int) -> BlockName | None:
        """Return the block that holds the token before `position` (at most `matched`): parent of a new block there."""
        raise NotImplementedError


def plan_match(
    fingerprint: Fingerprint, steps: Sequence[Step], layout: Layout, presence: Presence, limit: int
) -> Match:
    """Return the longest restore that needs no record which is absent."""
    raise NotImplementedError
