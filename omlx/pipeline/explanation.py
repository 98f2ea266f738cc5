"""Explanation: what a request would do and why, as values. The same object from every door, stable JSON.

It is made by `omlx.explain` from a state whose chain has been walked up to `lookup`, whether that was a dry run
or the beginning of a real one. `version` grows when a field changes its meaning or goes; fields may be added.

Prompt text is in two places only, `Difference.ours` and `Difference.theirs`, and both are null unless asked for.
"""

from typing import Literal, TypeAlias

import msgspec

from omlx.pipeline.cost import Plan
from omlx.pipeline.stage import Lane
from omlx.text.normalize import Rewrite

#: Where a block is: in RAM, on disk, known but without its records, or not stored.
Where: TypeAlias = Literal["hot", "cold", "lost", "miss"]
#: Whose index was asked: a running server's (both tiers), or the files of the cold tier.
Source: TypeAlias = Literal["server", "disk"]


class SegmentOutlook(msgspec.Struct, frozen=True):
    """A part of the prompt: tokens `[start, end)`, of which the first `reused` are restored.

    `digest` names all tokens up to its end, under the model's fingerprint: two prompts with one digest agree up to
    there.
    """

    role: str
    label: str
    start: int
    end: int
    chars: int
    reused: int
    digest: str


class BlockOutlook(msgspec.Struct, frozen=True):
    """Tokens `[start, end)` that are stored together, or will be. `nbytes`: of its records, stored or to come."""

    start: int
    end: int
    where: Where
    nbytes: int


class StageOutlook(msgspec.Struct, frozen=True):
    """A stage of the chain. `seconds` is an estimate, null where no rate was measured yet."""

    name: str
    lane: Lane
    seconds: float | None
    what: str


class Writes(msgspec.Struct, frozen=True):
    """New blocks of the prompt (the answer's come on top)."""

    blocks: int = 0
    tokens: int = 0
    nbytes: int = 0


class Eviction(msgspec.Struct, frozen=True):
    """What has to go from a tier to make room for the writes. `refused`: there is not enough that may go."""

    tier: str
    records: int
    nbytes: int
    refused: bool = False


class Cause(msgspec.Struct, frozen=True):
    """Why prompts differ: a stable `name`, what it is in words, and what would mend it."""

    name: str
    what: str
    remedy: str


class Difference(msgspec.Struct, frozen=True):
    """The first place where a prompt leaves the nearest one that is stored (or that it is compared with).

    Attributes:
        token: its position; the tokens before it agree.
        segment: the label of the segment that holds it; `tool` the tool whose schema it is in, where it is.
        role: the segment's role.
        char: where the texts part, in the rendered prompt; `segment_char` counts from the segment's beginning.
        lost_tokens: tokens of the other prompt past this place, as far as this prompt is long: computed once,
            and of no use now.
        cause: the likely reason.
        ours: at most 20 tokens of this prompt from there on; null unless text was asked for.
        theirs: the same of the other prompt.
    """

    token: int
    segment: str
    role: str
    tool: str | None
    char: int
    segment_char: int
    lost_tokens: int
    cause: Cause
    ours: str | None = None
    theirs: str | None = None


class Explanation(msgspec.Struct, frozen=True, kw_only=True):
    """What a request would do and why.

    Attributes:
        version: of this form.
        source: whose index was asked.
        model: its configured name.
        fingerprint: the identity under which its blocks are stored.
        pipeline: the name of the chain.
        prompt_tokens: length of the prompt.
        prompt_chars: length of the rendered text; 0 for a prompt of tokens.
        rewrites: what `normalize` changed.
        segments: the parts of the prompt; contiguous.
        blocks: the prompt as blocks; contiguous.
        stages: the chain as it would run.
        plan: what would be restored and computed.
        writes: what would be stored of the prompt.
        evictions: what would go for it, by tier; null where that cannot be told.
        difference: where the prompt leaves the nearest stored one; null when it leaves none, being new from its
            first token or a continuation.
        cause: why nothing more is reused, when no difference tells: nothing stored, records evicted, no cache.
        notes: what limits the answer, in sentences.
    """

    version: int = 1
    source: Source
    model: str
    fingerprint: str
    pipeline: str
    prompt_tokens: int
    prompt_chars: int
    rewrites: tuple[Rewrite, ...]
    segments: tuple[SegmentOutlook, ...]
    blocks: tuple[BlockOutlook, ...]
    stages: tuple[StageOutlook, ...]
    plan: Plan
    writes: Writes
    evictions: tuple[Eviction, ...] | None
    difference: Difference | None
    cause: Cause | None
    notes: tuple[str, ...] = ()
