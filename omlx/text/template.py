r"""What a chat template can take, found by trying it, and the conversation put into that form.

Templates differ in what they refuse, drop or move: a system message in mid-conversation, two user messages in
a row, tool results, arguments as a mapping. `probe_shape` renders a few one-word conversations once per
template and notes what came back; `template_rows` then gives a template only what it renders in place.

Why by trying: a template is a program; whether it hoists a late system message cannot be read off its text.

What a template does not take is written inline, and always append-only, so that a longer conversation renders
to a text that begins with the shorter one's:

- a late system message becomes a user message `<system>\n...\n</system>` where it stands;
- a leading system message of a template without that role becomes the head of the first user message;
- tool calls and results of a template without tools become `<tool_call>` and `<tool_response>` text;
- messages of one role in a row are joined by an empty line where roles must alternate.

Tool call ids never reach the prompt as sent (clients rewrite them). A template that reads ids gets
`call00001`, `call00002`, ... by position: nine letters and digits, the one form the strictest template takes;
one that writes `<|tool_calls_section_begin|>` gets the `functions.NAME:INDEX` its model was trained on.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

import msgspec

from omlx.text.chat import Message, ToolCall

#: One message as a chat template reads it.
Row: TypeAlias = dict[str, Any]
#: Render rows without a generation prompt; None when the template refuses them.
TryRender: TypeAlias = Callable[[list[Row]], str | None]


@dataclass(frozen=True, slots=True)
class TemplateShape:
    """What a chat template renders in place.

    Attributes:
        system: where a system message may stand.
        alternates: two messages of one role in a row are refused or lost.
        calls: an assistant's tool calls are rendered, all or only one in a message; inline when not.
        results: messages of role tool are rendered; inline when not.
        arguments: the form of a call's arguments.
        ids: the form of call ids, or none when the template reads none.
        reasoning: the key under which the template looks for reasoning.
    """

    system: Literal["anywhere", "first", "never"] = "anywhere"
    alternates: bool = False
    calls: Literal["rendered", "single", "inline"] = "rendered"
    results: Literal["rendered", "inline"] = "rendered"
    arguments: Literal["mapping", "text"] = "mapping"
    ids: Literal["none", "short", "indexed"] = "none"
    reasoning: str = "reasoning_content"


def probe_shape(source: str, try_render: TryRender) -> TemplateShape:
    """Return the shape of the template `source`, by rendering at most eight one-word conversations."""
    shape = TemplateShape(ids=_ids(source), reasoning=_reasoning_key(source))
    shape = _probe_system(shape, try_render)
    again = _shows(try_render, shape, _USER, Message("user", "zqagain"))
    return _probe_calls(replace(shape, alternates=not again), try_render)


_USER, _LATE, _FIRST = Message("user", "zquser"), Message("system", "zqlate"), Message("system", "zqfirst")
_ANSWER, _RESULT = Message("assistant", "zqanswer"), Message("tool", "zqresult")
_CALL = ToolCall("zqname", {"zqkey": "zqvalue"})


def _probe_system(shape: TemplateShape, try_render: TryRender) -> TemplateShape:
    if _shows(try_render, shape, _FIRST, _LATE, _USER, _LATE, _ANSWER, _LATE, _USER):
        return shape
    return replace(shape, system="first" if _shows(try_render, shape, _FIRST, _USER) else "never")


def _probe_calls(shape: TemplateShape, try_render: TryRender) -> TemplateShape:
    """Find how calls and results are rendered; a mapping joined to text comes out as Python's repr."""

    def takes(shape: TemplateShape, *calls: ToolCall) -> bool:
        text = try_render(_rows((_USER, Message("assistant", tool_calls=calls)), shape))
        shown = text is not None and _CALL.name in text and text.count("zqvalue") >= len(calls)
        return shown and "'zqkey'" not in (text or "")

    if not takes(shape, _CALL):
        as_text = replace(shape, arguments="text")
        shape = as_text if takes(as_text, _CALL) else replace(shape, calls="inline")
    if shape.calls == "rendered" and not takes(shape, _CALL, _CALL):
        shape = replace(shape, calls="single")
    called = _ANSWER if shape.calls == "inline" else Message("assistant", tool_calls=(_CALL,))
    shown = _shows(try_render, shape, _USER, called, _RESULT)
    return shape if shown else replace(shape, results="inline")


def _shows(try_render: TryRender, shape: TemplateShape, *messages: Message) -> bool:
    """Tell whether every content is rendered, in order."""
    text, at = try_render(_rows(messages, shape)) or "", 0
    for message in messages:
        at = text.find(message.content, at)
        if at < 0 or not text:
            return False
        at += len(message.content)
    return True


def template_rows(messages: tuple[Message, ...], shape: TemplateShape) -> list[Row]:
    """Return the rows that a template of this shape renders, in the order of `messages`.

    Contents stay in the order of their messages; where messages are joined there are fewer rows.
    """
    placed: list[Message] = []
    for message in _placed(messages, shape):
        if placed and _joins(placed[-1], message, shape):
            placed[-1] = _joined(placed[-1], message)
        else:
            placed.append(message)
    return _rows(placed, shape)


def _placed(messages: tuple[Message, ...], shape: TemplateShape) -> Iterator[Message]:
    leading = True
    for message in messages:
        leading = leading and message.role == "system"
        if message.role == "system" and shape.system != "anywhere":
            yield _placed_system(message, shape, leading)
        elif message.role == "tool" and shape.results == "inline":
            yield Message("user", f"<tool_response>\n{message.content}\n</tool_response>")
        elif message.tool_calls and shape.calls == "inline":
            texts = [message.content] if message.content else []
            content = "\n".join([*texts, *(_call_text(call) for call in message.tool_calls)])
            yield Message("assistant", content, reasoning=message.reasoning)
        elif len(message.tool_calls) > 1 and shape.calls == "single":
            yield msgspec.structs.replace(message, tool_calls=message.tool_calls[:1])
            yield from (Message("assistant", tool_calls=(call,)) for call in message.tool_calls[1:])
        else:
            yield message


def _placed_system(message: Message, shape: TemplateShape, leading: bool) -> Message:
    if not leading:
        return Message("user", f"<system>\n{message.content}\n</system>")
    return message if shape.system == "first" else Message("user", message.content)


def _joins(before: Message, message: Message, shape: TemplateShape) -> bool:
    if before.role != message.role or before.tool_calls or message.tool_calls:
        return False
    if message.role == "system":
        return shape.system == "first"
    return shape.alternates and message.role in {"user", "assistant"}


def _joined(before: Message, message: Message) -> Message:
    content = "\n\n".join(text for text in (before.content, message.content) if text)
    return Message(before.role, content, reasoning=message.reasoning or before.reasoning)


def _call_text(call: ToolCall) -> str:
    text = json.dumps({"name": call.name, "arguments": call.arguments}, ensure_ascii=False)
    return f"<tool_call>\n{text}\n</tool_call>"


def _rows(messages: Iterable[Message], shape: TemplateShape) -> list[Row]:
    numbers = _CallNumbers(shape)
    return [_row(message, shape, numbers) for message in messages]


def _row(message: Message, shape: TemplateShape, numbers: "_CallNumbers") -> Row:
    row: Row = {"role": message.role, "content": message.content}
    if message.reasoning and message.role == "assistant":
        row[shape.reasoning] = message.reasoning
    if message.tool_calls:
        row["tool_calls"] = [_call_row(call, shape, numbers) for call in message.tool_calls]
    if message.role == "tool":
        number, name = numbers.answered(message)
        if name := message.name or name:
            row["name"] = name
        if number:
            row["tool_call_id"] = number
    elif message.name:
        row["name"] = message.name
    return row


def _call_row(call: ToolCall, shape: TemplateShape, numbers: "_CallNumbers") -> Row:
    arguments: object = call.arguments
    if shape.arguments == "text" and not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    row: Row = {"type": "function", "function": {"name": call.name, "arguments": arguments}}
    if number := numbers.called(call):
        row["id"] = number
    return row


class _CallNumbers:
    """Number the calls of a conversation, and find the call that a result answers.

    A client may use one id again in a later turn, so the latest call of that id is meant. A result without a
    known id answers the oldest open call; one without any call gets number 0.
    """

    def __init__(self, shape: TemplateShape) -> None:
        self._ids = shape.ids
        self._num_calls = 0
        self._open: list[tuple[str | None, str, str]] = []

    def called(self, call: ToolCall) -> str:
        self._num_calls += 1
        number = self._number(call.name, self._num_calls)
        self._open.append((call.id, number, call.name))
        return number

    def answered(self, message: Message) -> tuple[str, str]:
        if not self._open:
            return self._number(message.name or "unknown", 0), ""
        same = [i for i, (id_, _, _) in enumerate(self._open) if id_ and id_ == message.tool_call_id]
        _, number, name = self._open.pop(same[-1] if same else 0)
        return number, name

    def _number(self, name: str, number: int) -> str:
        if self._ids == "none":
            return ""
        # the trained form counts from 0
        return f"call{number:05d}" if self._ids == "short" else f"functions.{name}:{max(number - 1, 0)}"


def _ids(source: str) -> Literal["none", "short", "indexed"]:
    if "<|tool_calls_section_begin|>" in source:
        return "indexed"
    return "short" if re.search(r"tool_call_id|\.id\b|\[['\"]id['\"]\]", source) else "none"


def _reasoning_key(source: str) -> str:
    keys = ("reasoning_content", "thinking", "reasoning")
    return next((key for key in keys if re.search(rf"\.{key}\b|['\"]{key}['\"]", source)), keys[0])
