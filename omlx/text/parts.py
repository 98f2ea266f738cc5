r"""Where the contents of a conversation stand in its rendered text.

Render the conversation once more with a unique word (a probe) at both ends of every content, check that taking the
probes out gives back exactly the plain text, and read the positions off. So it is exact for any template, and a
template that trims, drops, moves or merges contents costs parts, never correctness.

    text     <|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\nhello<|im_end|>\n
    probed   <|im_start|>user\n▲hi▼<|im_end|>\n<|im_start|>assistant\n▲hello▼<|im_end|>\n

Of a conversation that goes on only its end is rendered with probes: the part from the last message that is known, with
the user's message it belongs to in front of it. What follows the known content there must be what follows it in the
whole text; when it is not, for a template that words the end by the beginning, the whole is rendered.
"""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Any, NamedTuple

import msgspec

from omlx.errors import RequestError
from omlx.text.chat import ChatPrompt, Message
from omlx.text.seams import Tokenizer
from omlx.text.segment import SegmentRole
from omlx.text.wrappers import Kind

#: Where each probe was found: by the number of the message and the side of its content.
_Found = dict[tuple[int, str], list[int]]


class _Probed(NamedTuple):
    """A text that was rendered with probes, without them, and where they were."""

    text: str
    found: _Found


class Part(NamedTuple):
    """A part of the prompt; `start` and `end` are the characters of its content, None where not rendered.

    `number` is the message's, -1 of the tools. `lead` and `tail` are the white space around the content, which
    a template may keep or trim.
    """

    number: int
    kind: Kind
    role: SegmentRole
    label: str
    start: int | None = None
    end: int | None = None
    lead: str = ""
    tail: str = ""


def locate(tokenizer: Tokenizer, prompt: ChatPrompt, text: str) -> list[Part]:
    """Return the parts in the order of the text, or none when the probes changed more than themselves."""
    probed = _render_probed(tokenizer, prompt, text)
    if probed is None or probed.text != text:
        return []
    placed = _placed(prompt, probed.found)
    if placed is None:
        return []
    tools = [at for side in "SE" for at in probed.found.get((len(prompt.messages), side), [])]
    if tools:
        placed.append((max(tools), Part(-1, "tools", "tools", "tools", min(tools), max(tools))))
    return _ordered(placed)


def locate_more(
    tokenizer: Tokenizer, prompt: ChatPrompt, text: str, known: Sequence[Part]
) -> list[Part] | None:
    """Return the parts that follow the known ones, as `locate` would find them; None when it cannot be told so.

    `known` are the parts of the first messages, of which the last has a content; up to its end the text is as it was.
    """
    last, end = known[-1].number, known[-1].end
    numbers = _ending(prompt.messages, last)
    ending = msgspec.structs.replace(prompt, messages=tuple(prompt.messages[i] for i in numbers), tools=())
    probed = _render_probed(tokenizer, ending, text) if numbers else None
    ends = probed.found.get((numbers.index(last), "E"), []) if probed else []
    if probed is None or end is None or len(ends) != 1 or probed.text[ends[0] :] != text[end:]:
        return None
    found: _Found = {}
    for (number, side), places in probed.found.items():
        if numbers[number] > last:
            found[numbers[number], side] = [end + at - ends[0] for at in places]
            if min(places) < ends[0]:
                return None
    placed = _placed(prompt, found, last + 1, end)
    parts = _ordered(placed) if placed is not None else []
    return parts if len(parts) == len(prompt.messages) - 1 - last else None


def _ending(messages: Sequence[Message], last: int) -> list[int]:
    """Return the numbers of the messages to render: a user's, and all from the last assistant's up to `last` on."""
    user = next((i for i in range(last, -1, -1) if messages[i].role == "user"), None)
    if user is None:
        return []
    answer = next((i for i in range(last, user, -1) if messages[i].role == "assistant"), user + 1)
    return [user, *range(answer, len(messages))]


def _render_probed(tokenizer: Tokenizer, prompt: ChatPrompt, text: str) -> _Probed | None:
    """Render a prompt with probes that are not in `text`; None when the template refuses it."""
    probe = "zqprobe"
    while probe in text:
        probe += "q"
    try:
        probed = tokenizer.render(_probed(prompt, probe))
    except RequestError:
        return None
    pattern = re.compile(rf"{probe}(\d{{6}})([SE])")
    found: _Found = {}
    removed = 0
    for match in pattern.finditer(probed):
        found.setdefault((int(match[1]), match[2]), []).append(match.start() - removed)
        removed += len(match[0])
    return _Probed(pattern.sub("", probed), found)


def _placed(prompt: ChatPrompt, found: _Found, first: int = 0, at: int = -1) -> list[tuple[int, Part]] | None:
    """Return where each message from `first` on stands, and its part; None when a content stands at two places.

    A message without content stands where the one before it ends, the first at `at`.
    """
    leading = sum(1 for _ in takewhile(lambda message: message.role == "system", prompt.messages))
    placed = []
    for index, message in enumerate(prompt.messages[first:], first):
        starts, ends = found.get((index, "S"), []), found.get((index, "E"), [])
        if len(starts) > 1 or len(ends) > 1:
            return None
        part = _message_part(index, message, index < leading)
        if ends:
            at = ends[0]
            lead, _, tail = _around(message.content)
            part = part._replace(start=starts[0] if starts else None, end=at, lead=lead, tail=tail)
        placed.append((at, part))
    return placed


def _ordered(placed: list[tuple[int, Part]]) -> list[Part]:
    """Return the parts by position, or none when one lies inside another."""
    parts = [part for _, part in sorted(placed, key=lambda row: (row[0], row[1].number))]
    edges = [edge for part in parts for edge in (part.start, part.end) if edge is not None]
    return parts if edges == sorted(edges) else []


def _message_part(index: int, message: Message, leading: bool) -> Part:
    label = f"message {index} ({message.role})"
    match message.role:
        case "system":
            return Part(index, "system" if leading else "late", "system", label if index else "system")
        case "assistant":
            return Part(index, "calls" if message.tool_calls else "assistant", "assistant", label)
        case "tool":
            return Part(index, "tool", "tool", label)
        case _:
            return Part(index, "user", "user", label)


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
