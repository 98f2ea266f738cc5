"""Clue: what is known of a difference, and the questions that can be asked of it. Pure."""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

#: How far back the beginning of a JSON object is looked for.
_BACK_CHARS, _BACK_BRACES = 20_000, 40
#: The most text that a template puts before a message.
_WRAPPER_CHARS = 40
#: A tool's own name in a list of schemas.
_TOOL_NAME = re.compile(r'"function":\s*\{(?:\s*"description":\s*"(?:[^"\\]|\\.)*",)?\s*"name":\s*"([^"]+)"')
_BLANK = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Clue:
    """Two texts that part.

    Attributes:
        role: of the segment in which they do.
        tool: the tool whose schema it is in, or None.
        tools: the names of our tools, in order.
        before: the segment's text up to there; the same on both sides.
        ours: our text from there to the end of the prompt.
        theirs: the other prompt's text from there on, or a good part of it.
        is_last: nothing but a generation prompt follows the segment.
        rest: how much text of ours is left of the segment from there on.
        shared_chars: how much text the prompts share.
    """

    role: str
    tool: str | None
    tools: tuple[str, ...]
    before: str
    ours: str
    theirs: str
    is_last: bool
    rest: int = 0
    shared_chars: int = 10_000

    def line_says(self, words: str) -> bool:
        """Tell whether the line in which the texts part contains these words, on either side."""
        begin = self.before.rpartition("\n")[2]
        return any(words in begin + side.partition("\n")[0] for side in (self.ours, self.theirs))

    def inside(self, pattern: re.Pattern[str]) -> bool:
        """Tell whether the place lies in a match of the pattern, or at its end, on both sides."""
        return all(_covers(pattern, self.before[-48:], side[:48]) for side in (self.ours, self.theirs))

    def near(self, pattern: re.Pattern[str]) -> tuple[bool, bool]:
        """Return whether the pattern is found around the place, on our side and on the other."""
        around = self.before[-24:]
        return bool(pattern.search(around + self.ours[:24])), bool(pattern.search(around + self.theirs[:24]))

    def same_but_spaces(self) -> bool:
        """Tell whether the sides agree for a while once white space is left out."""
        ours, theirs = (_BLANK.sub("", side[:400])[:80] for side in (self.ours, self.theirs))
        length = min(len(ours), len(theirs))
        return length >= 8 and ours[:length] == theirs[:length]

    def comes_later(self) -> bool:
        """Tell whether what stands here in the other prompt comes in a later segment of ours."""
        return _found_in(self.theirs, self.ours) >= max(self.rest, 1)

    def came_later(self) -> bool:
        """Tell whether a segment that begins here in ours comes later in the other prompt."""
        return len(self.before) <= _WRAPPER_CHARS and _found_in(self.ours, self.theirs) > 0

    def same_object(self) -> bool:
        """Tell whether the place lies in a JSON object that says the same on both sides."""
        return any(_canonical(ours) == _canonical(theirs) for ours, theirs in self._objects())

    def their_tools(self) -> tuple[str, ...]:
        """Return the names of the other prompt's tools, as far as they can be read off its text."""
        return tuple(_TOOL_NAME.findall(self.before + self.theirs))

    def our_tools(self) -> tuple[str, ...]:
        """Return the names of our tools, read off the text in the same way."""
        return tuple(_TOOL_NAME.findall(self.before + self.ours))

    def _objects(self) -> Iterator[tuple[Any, Any]]:
        """Yield the JSON objects that both sides have around the place, innermost first."""
        decoder = json.JSONDecoder()
        tail = self.before[-_BACK_CHARS:]
        braces = [match.start() for match in re.finditer(r"\{", tail)][-_BACK_BRACES:]
        for at in reversed(braces):
            try:
                ours, end = decoder.raw_decode(tail + self.ours[:_BACK_CHARS], at)
                theirs, _ = decoder.raw_decode(tail + self.theirs[:_BACK_CHARS], at)
            except (ValueError, RecursionError):
                continue
            if end > len(tail):
                yield ours, theirs


def _covers(pattern: re.Pattern[str], before: str, side: str) -> bool:
    at = len(before)
    return any(match.start() <= at <= match.end() for match in pattern.finditer(before + side))


def _found_in(text: str, other: str) -> int:
    """Return where the beginning of a text stands in another one, past its own; -1 when it does not."""
    probe = text[:160].strip()
    return other.find(probe, 1) if len(probe) >= 32 else -1


def _canonical(value: Any) -> Any:
    """Return a value without the order that JSON objects, and lists of names, do not have."""
    if isinstance(value, dict):
        return {key: _canonical(inner) for key, inner in value.items()}
    if isinstance(value, list):
        inner = [_canonical(each) for each in value]
        return sorted(inner) if all(isinstance(each, str) for each in inner) else inner
    return value
