"""Remember how conversations were taken apart: one that goes on is taken apart from where it was left.

    remembered   tools  system  user  assistant  user
    next turn    tools  system  user  assistant  user  assistant  user
                 └─ same messages, same text ──────┘  └ rendered with probes

An agent's conversation has hundreds of messages, and rendering it again takes as long as all else that is done to it
before prefill. What is remembered is used as far as messages, tools, options and the text itself are the same.
"""

import threading
import weakref
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import NamedTuple

from omlx.text.chat import ChatPrompt
from omlx.text.parts import Part
from omlx.text.seams import Tokenizer
from omlx.text.segment import SegmentRole
from omlx.text.wrappers import Rendered

#: What is remembered of all conversations with one tokenizer: some 50 of 24,000 tokens.
MEMO_CHARS = 4 * 1024**2


class Cut(NamedTuple):
    """A segment begins at this character."""

    at: int
    role: SegmentRole
    label: str


@dataclass(frozen=True, slots=True)
class Talk:
    """A conversation, its text and parts; of each part the cuts that were made when it was reached.

    `rendered` is what its wrappers were measured on. Nothing here holds the tokenizer.
    """

    prompt: ChatPrompt
    text: str
    parts: Sequence[Part]
    cuts: Sequence[tuple[Cut, ...]]
    rendered: Rendered


class TalkMemo:
    """Conversations by tokenizer, the latest last; the oldest are forgotten first. Safe on any thread.

    Why weak references: an unloaded model's tokenizer takes 100 MB and more.

    Args:
        most_chars: the most characters of text that are held of one tokenizer's.
    """

    def __init__(self, most_chars: int = MEMO_CHARS) -> None:
        self._most_chars = most_chars
        self._talks: weakref.WeakKeyDictionary[Tokenizer, list[Talk]] = weakref.WeakKeyDictionary()
        self._lock = threading.Lock()

    def num_talks(self) -> int:
        """Return how many conversations are remembered."""
        with self._lock:
            return sum(len(talks) for talks in self._talks.values())

    def head(self, tokenizer: Tokenizer, prompt: ChatPrompt, text: str) -> Talk | None:
        """Return what is remembered of a conversation's beginning, up to a part with a content; None for nothing."""
        with self._lock:
            talks = list(self._talks.get(tokenizer, ()))
        known = [(_num_shared(talk.prompt, prompt), talk) for talk in reversed(talks)]
        shared, talk = max(known, key=lambda pair: pair[0], default=(0, None))
        if talk is None or not shared:
            return None
        parts = _settled(talk, text, shared)
        return replace(talk, parts=parts, cuts=talk.cuts[: len(parts)]) if parts else None

    def keep(self, tokenizer: Tokenizer, talk: Talk) -> None:
        """Remember a conversation, instead of those that it goes on with."""
        with self._lock:
            others = self._talks.get(tokenizer, [])
            kept = [
                each for each in others if _num_shared(each.prompt, talk.prompt) < len(each.prompt.messages)
            ]
            kept.append(talk)
            while kept and sum(len(each.text) for each in kept) > self._most_chars:
                del kept[0]
            self._talks[tokenizer] = kept


def _num_shared(one: ChatPrompt, other: ChatPrompt) -> int:
    """Return how many leading messages are the same in both; 0 when tools or options differ."""
    pairs = zip(one.messages, other.messages, strict=False)
    shared = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    same = one.template_options == other.template_options and one.tools == other.tools
    return shared if shared and same else 0


def _settled(talk: Talk, text: str, shared: int) -> Sequence[Part]:
    """Return the first parts, of all of the first messages and no others, that stand in `text` where they stood."""
    parts = [*takewhile(lambda part: part.number < shared, talk.parts)]
    seen = [number for number, part in enumerate(parts) if part.end is not None]
    alike = bisect_left(seen, True, key=lambda number: not _same(talk.text, text, parts[number].end))
    parts = parts[: seen[alike - 1] + 1] if alike else []
    numbers = [part.number for part in parts if part.number >= 0]
    return parts if parts and parts[-1].number >= 0 and numbers == list(range(len(numbers))) else []


def _same(text: str, other: str, end: int | None) -> bool:
    return text[:end] == other[:end]
