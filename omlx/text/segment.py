"""Segments: the parts of a prompt, each with a role and a token range."""

from typing import Literal, TypeAlias

import msgspec

SegmentRole: TypeAlias = Literal["prompt", "tools", "system", "user", "assistant", "tool", "generation"]


class Segment(msgspec.Struct, frozen=True):
    """Tokens `[start, end)` of a prompt that belong together.

    `label` names it for people: `system`, `tools`, `message 7 (user)`, `generation prompt`.
    """

    role: SegmentRole
    label: str
    start: int
    end: int
