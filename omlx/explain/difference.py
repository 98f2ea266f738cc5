"""Where a prompt leaves another one: the token, the character, the part of the prompt, both sides' text. Pure.

Two texts that part inside a token part a few characters after the token begins, so both sides are decoded from a
little before it, and compared once more as text.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from omlx.explain.causes import likely_cause
from omlx.explain.chain import char_at
from omlx.explain.clue import Clue
from omlx.pipeline.explanation import Difference
from omlx.pipeline.inflight import common_prefix
from omlx.pipeline.state import State
from omlx.text.chat import ChatPrompt
from omlx.text.segment import Segment
from omlx.types import Tokens

#: The most tokens that are shown of a side.
SHOWN_TOKENS = 20
#: Tokens decoded before the place where tokens part, and of the other side after it.
_BEFORE_TOKENS, _AFTER_TOKENS = 8, 16_384


def compare(ours: State, theirs: State, *, show_text: bool = False) -> Difference | None:
    """Return where one prompt leaves another; None when it continues it or is contained in it."""
    position = common_prefix(ours.tokens, theirs.tokens)
    return difference(ours, position, theirs.tokens[position:], show_text=show_text)


def difference(state: State, position: int, theirs: Tokens, *, show_text: bool = False) -> Difference | None:
    """Return what is different at a position, where another prompt goes on with `theirs`.

    None when either side ends there: then one continues the other.
    """
    if position >= len(state.tokens) or len(theirs) == 0:
        return None
    segment = _segment_at(state.segments, position, len(state.tokens))
    char, other = _parting(state, position, theirs)
    begin = char_at(state, segment.start)
    before = state.text[begin:char] if state.text else state.model.tokenizer.decode(state.tokens[:position])
    tools = _tools(state)
    tool = tool_at(tools, state.text[begin:], char - begin) if segment.role == "tools" else None
    clue = Clue(
        role=segment.role,
        tool=tool,
        tools=tuple(tools),
        before=before,
        ours=state.text[char:] if state.text else state.model.tokenizer.decode(state.tokens[position:]),
        theirs=other,
        is_last=_is_last(state.segments, segment),
        rest=max(0, char_at(state, segment.end) - char),
        shared_chars=char,
    )
    return Difference(
        token=position,
        segment=segment.label,
        role=segment.role,
        tool=tool,
        char=char,
        segment_char=char - begin,
        lost_tokens=min(len(state.tokens) - position, len(theirs)),
        cause=likely_cause(clue),
        ours=_shown(state, state.tokens[position:]) if show_text else None,
        theirs=_shown(state, theirs) if show_text else None,
    )


def _segment_at(segments: Sequence[Segment], position: int, total: int) -> Segment:
    inside = (segment for segment in segments if segment.start <= position < segment.end)
    return next(inside, Segment("prompt", "prompt", 0, total))


def _is_last(segments: Sequence[Segment], segment: Segment) -> bool:
    """Tell whether nothing but a generation prompt follows."""
    contents = [each for each in segments if each.role != "generation"]
    return not contents or segment.start >= contents[-1].start


def _parting(state: State, position: int, theirs: Tokens) -> tuple[int, str]:
    """Return the character at which the texts part, and the other side's text from there."""
    begin = max(0, position - _BEFORE_TOKENS)
    decode = state.model.tokenizer.decode
    ahead = min(_AFTER_TOKENS, len(theirs))
    left = decode(state.tokens[begin : position + _BEFORE_TOKENS])
    right = decode(np.concatenate([state.tokens[begin:position], theirs[:ahead]]))
    shared = _common(left, right)
    return char_at(state, begin) + shared, right[shared:]


def _common(left: str, right: str) -> int:
    length = min(len(left), len(right))
    return next((at for at in range(length) if left[at] != right[at]), length)


def _tools(state: State) -> list[str]:
    prompt = state.prompt or state.request.prompt
    tools = prompt.tools if isinstance(prompt, ChatPrompt) else ()
    return [name for tool in tools if (name := _name(tool))]


def _name(tool: dict[str, Any]) -> str:
    function = tool.get("function")
    return str(function.get("name") or "") if isinstance(function, dict) else ""


def tool_at(names: Sequence[str], text: str, char: int) -> str | None:
    """Return the tool whose schema is at a character of the text of all schemas; the first one before any name."""
    found, at = names[0] if names else None, 0
    for name in names:
        quoted = text.find(f'"{name}"', at)
        begin = quoted if quoted >= 0 else text.find(name, at)
        if begin < 0 or begin > char:
            break
        found, at = name, begin + len(name)
    return found


def _shown(state: State, tokens: Tokens) -> str:
    return state.model.tokenizer.decode(tokens[:SHOWN_TOKENS])
