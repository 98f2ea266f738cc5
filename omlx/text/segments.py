r"""Find the segments of a prompt: which tokens are tools, system, each message, the generation prompt.

Render the conversation once more with a unique word (a probe) at both ends of every content, check that
taking the probes out gives back exactly the plain text, and read the positions off. So it is exact for any
template, and a template that trims, drops, moves or merges contents costs segments, never correctness.

The text between two contents belongs partly to each: `<|im_end|>\n` closes a message, `<|im_start|>user\n`
opens the next. The gap is cut where the wrapper of the message before ends (`omlx.text.wrappers`). A boundary
therefore depends on what comes before it; on what follows only where the template gives no other hold: tools
and tool calls, whose text has no probe at its end.

Cost: one full render per prompt, and at most a dozen renders of a few words.
"""

import re
from collections.abc import Iterator
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec
import numpy as np

from omlx.errors import RequestError
from omlx.text.chat import ChatPrompt, Message, Prompt
from omlx.text.seams import Encoding, Tokenizer
from omlx.text.segment import Segment, SegmentRole
from omlx.text.wrappers import Kind, Wrappers


class _Part(NamedTuple):
    """A part of the prompt; `start` and `end` are the characters of its content, None where not rendered.

    `lead` and `tail` are the white space around the content, which a template may keep or trim.
    """

    kind: Kind
    role: SegmentRole
    label: str
    start: int | None = None
    end: int | None = None
    lead: str = ""
    tail: str = ""


class _Cut(NamedTuple):
    """A segment begins at this character."""

    at: int
    role: SegmentRole
    label: str


def find_segments(tokenizer: Tokenizer, prompt: Prompt, text: str, encoding: Encoding) -> tuple[Segment, ...]:
    """Return the segments of `prompt`, contiguous from token 0 to the last; none for no tokens.

    `text` is the rendered prompt and `encoding` its tokens. A prompt that cannot be taken apart is one
    segment of role `prompt`, with the generation prompt apart where that is certain.
    """
    whole = _Cut(0, "prompt", "prompt")
    if not isinstance(prompt, ChatPrompt):
        return _segments([whole], encoding, text)
    wrappers = Wrappers(tokenizer, prompt.template_options)
    parts = _located(tokenizer, prompt, text)
    cuts = list(_cuts(parts, text, wrappers)) or [whole]
    generation = _generation_start(parts, text, wrappers)
    if generation is not None:
        cuts.append(_Cut(generation, "generation", "generation prompt"))
    return _segments(cuts, encoding, text)


def _located(tokenizer: Tokenizer, prompt: ChatPrompt, text: str) -> list[_Part]:
    """Return the parts in the order of the text, or none when the probes changed more than themselves."""
    probe = "zqprobe"
    while probe in text:
        probe += "q"
    try:
        probed = tokenizer.render(_probed(prompt, probe))
    except RequestError:
        return []
    pattern = re.compile(rf"{probe}(\d{{6}})([SE])")
    found: dict[tuple[int, str], list[int]] = {}
    removed = 0
    for match in pattern.finditer(probed):
        found.setdefault((int(match[1]), match[2]), []).append(match.start() - removed)
        removed += len(match[0])
    if pattern.sub("", probed) != text:
        return []
    return _ordered(prompt, found)


def _ordered(prompt: ChatPrompt, found: dict[tuple[int, str], list[int]]) -> list[_Part]:
    """Return the parts by position; a message without content stands after the one before it."""
    leading = sum(1 for _ in takewhile(lambda message: message.role == "system", prompt.messages))
    placed: list[tuple[int, int, _Part]] = []
    last = -1
    for index, message in enumerate(prompt.messages):
        starts, ends = found.get((index, "S"), []), found.get((index, "E"), [])
        if len(starts) > 1 or len(ends) > 1:
            return []
        part = _message_part(index, message, index < leading)
        if ends:
            last = ends[0]
            lead, _, tail = _around(message.content)
            part = part._replace(start=starts[0] if starts else None, end=last, lead=lead, tail=tail)
        placed.append((last, index, part))
    tools = [at for side in "SE" for at in found.get((len(prompt.messages), side), [])]
    if tools:
        placed.append((max(tools), -1, _Part("tools", "tools", "tools", min(tools), max(tools))))
    parts = [part for _, _, part in sorted(placed, key=lambda row: row[:2])]
    edges = [edge for part in parts for edge in (part.start, part.end) if edge is not None]
    return parts if edges == sorted(edges) else []


def _message_part(index: int, message: Message, leading: bool) -> _Part:
    label = f"message {index} ({message.role})"
    match message.role:
        case "system":
            return _Part("system" if leading else "late", "system", label if index else "system")
        case "assistant":
            return _Part("calls" if message.tool_calls else "assistant", "assistant", label)
        case "tool":
            return _Part("tool", "tool", label)
        case _:
            return _Part("user", "user", label)


def _cuts(parts: list[_Part], text: str, wrappers: Wrappers) -> Iterator[_Cut]:
    """Yield where each part begins. Parts without content between two others are one segment."""
    before: _Part | None = None
    unseen: list[_Part] = []
    for part in parts:
        if part.end is None:
            unseen.append(part)
        else:
            yield from _gap_cuts(_Gap(text, before, part, wrappers), unseen, part)
            before, unseen = part, []
    if before is not None and unseen:
        yield _joint(unseen, _Gap(text, before, None, wrappers).closed)


class _Gap:
    """The text between two contents.

    Attributes:
        closed: the character where the part before ends, as far as its wrapper can be seen.
        sure: its whole wrapper was seen.
        opened: the character where the part after begins, or None when its wrapper is not seen.
    """

    def __init__(self, text: str, before: _Part | None, after: _Part | None, wrappers: Wrappers) -> None:
        self.before = before
        begin = (before.end if before else None) or 0
        stop = len(text) if after is None else after.end if after.start is None else after.start
        gap = text[begin:stop]
        closing = wrappers.closing(before.kind) if before and before.kind != "calls" else ""
        closings = [closing, before.tail + closing] if before and closing else []
        whole = [len(closing) for closing in closings if gap.startswith(closing)]
        self.sure = bool(whole)
        self.closed = begin + max(whole or [_common(gap, closing) for closing in closings], default=0)
        opening = wrappers.opening(after.kind) if after and after.start is not None else ""
        openings = [opening, opening + after.lead] if after and opening else []
        self.opened = next(
            (begin + len(gap) - len(opening) for opening in openings if gap.endswith(opening)), None
        )
        if before and before.kind == "tools" and self.opened is None:
            self.closed = begin + len(gap)  # the rest of the schemas


def _common(text: str, other: str) -> int:
    """Return how many characters the two begin with alike."""
    pairs = zip(text, other, strict=False)
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))


def _gap_cuts(gap: _Gap, unseen: list[_Part], part: _Part) -> Iterator[_Cut]:
    """Yield the cuts between two contents, or up to the first one."""
    own = _Cut(gap.opened or 0, part.role, part.label)
    apart = gap.opened is not None and gap.opened > gap.closed
    if gap.before is None:
        # before the first user message a template may put a system message of its own
        before = _joint(unseen, 0) if unseen else _Cut(0, "system", "system (of the template)")
        yield from (before, own) if apart else (_joint([*unseen, part], 0),)
    elif unseen:
        yield from (_joint(unseen, gap.closed), own) if apart else (_joint([*unseen, part], gap.closed),)
    elif gap.opened is None or gap.sure:
        yield own._replace(at=gap.closed)
    else:
        yield own


def _joint(parts: list[_Part], at: int) -> _Cut:
    first, last = parts[0], parts[-1]
    label = first.label if first is last else f"{first.label} to {last.label}"
    return _Cut(at, first.role, label)


def _generation_start(parts: list[_Part], text: str, wrappers: Wrappers) -> int | None:
    """Return the character where the generation prompt begins, or None when it cannot be told."""
    floor = max((part.end or 0 for part in parts), default=0)
    generation = wrappers.generation()
    if generation and text.endswith(generation) and len(text) - len(generation) >= floor:
        return len(text) - len(generation)
    if parts and parts[-1].end is not None:
        gap = _Gap(text, parts[-1], None, wrappers)
        return gap.closed if gap.sure else None
    return None


def _segments(cuts: list[_Cut], encoding: Encoding, text: str) -> tuple[Segment, ...]:
    """Return the cuts as token ranges; empty ones and a lone first token (beginning of text) are left out."""
    num_tokens = len(encoding.tokens)
    starts = _tokens_at([cut.at for cut in cuts], encoding, text)
    if len(cuts) > 1 and starts[1] == 1:
        cuts, starts = cuts[1:], [0, *starts[2:]]
    segments = []
    for cut, start, end in zip(cuts, starts, [*starts[1:], num_tokens], strict=True):
        if start < end:
            segments.append(Segment(cut.role, cut.label, start, end))
    return tuple(segments)


def _tokens_at(chars: list[int], encoding: Encoding, text: str) -> list[int]:
    """Return for each character the first token that begins there, or the one that the character lies inside."""
    if not len(encoding.starts):
        return [0] * len(chars)
    around = np.searchsorted(encoding.starts, chars, side="right") - 1
    first = np.searchsorted(encoding.starts, encoding.starts[around], side="left")
    first[np.asarray(chars) <= 0] = 0
    first[np.asarray(chars) >= len(text)] = len(encoding.tokens)
    return [int(token) for token in first]


def _probed(prompt: ChatPrompt, probe: str) -> ChatPrompt:
    """Return the prompt with probes inside the white space that surrounds each content."""
    messages = tuple(
        msgspec.structs.replace(message, content=_wrapped(message.content, probe, index, "SE"))
        for index, message in enumerate(prompt.messages)
    )
    tools = list(prompt.tools)
    for at, side in ((0, "S"), (-1, "E")) if tools else ():
        tools[at] = _probed_tool(tools[at], probe, len(messages), side)
    return msgspec.structs.replace(prompt, messages=messages, tools=tuple(tools))


def _probed_tool(tool: dict[str, Any], probe: str, index: int, side: str) -> dict[str, Any]:
    function = tool.get("function")
    if not isinstance(function, dict):
        return tool
    key = next((key for key in ("description", "name") if isinstance(function.get(key), str)), None)
    if key is None:
        return tool
    return {**tool, "function": {**function, key: _wrapped(function[key], probe, index, side)}}


def _wrapped(text: str, probe: str, index: int, sides: str) -> str:
    """Return `text` with a probe at its start (`S`) and end (`E`); blank text as it is."""
    lead, core, tail = _around(text)
    if not core:
        return text
    opening = f"{probe}{index:06d}S" if "S" in sides else ""
    closing = f"{probe}{index:06d}E" if "E" in sides else ""
    return f"{lead}{opening}{core}{closing}{tail}"


def _around(text: str) -> tuple[str, str, str]:
    """Return the white space before the content, the content, and the white space after it."""
    core = text.strip()
    begin = text.find(core)
    return text[:begin], core, text[begin + len(core) :]
