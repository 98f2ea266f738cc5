"""Turn a Responses body into a neutral prompt: items of one turn become one message.

What an assistant does in one turn comes as several items: reasoning, a message, calls. A template has one place for
all of them, so they are put together in the order they come; the next item that does not fit begins a new message.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from omlx.errors import RequestError
from omlx.server.chat.prompt import NO_PARAMETERS, ROLES, effort_options, parsed_arguments
from omlx.server.responses.schema import Item, Part, ResponsesBody, ToolBody
from omlx.text.chat import ChatPrompt, Message, ToolCall

#: Types of parts that are text.
_TEXTS = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})


def responses_prompt(body: ResponsesBody) -> ChatPrompt:
    """Return the conversation in neutral form. Raises RequestError naming the item at fault."""
    items = [Item(role="user", content=body.input)] if isinstance(body.input, str) else body.input
    first = (Message("system", body.instructions),) if body.instructions else ()
    effort = body.reasoning.effort if body.reasoning else None
    return ChatPrompt(
        messages=(*first, *_messages(items)),
        tools=tuple(_tools(body.tools or ())),
        template_options=effort_options(effort) | (body.chat_template_kwargs or {}),
    )


def _messages(items: Sequence[Item]) -> Iterator[Message]:
    """Yield the messages that the items amount to."""
    turn: Message | None = None
    for index, item in enumerate(items):
        message = _message(f"input[{index}]", item)
        if message is None:
            continue
        joined = _joined(turn, message) if turn is not None and message.role == "assistant" else None
        if joined is None and turn is not None:
            yield turn
        turn = joined or message
        if turn.role != "assistant":
            yield turn
            turn = None
    if turn is not None:
        yield turn


def _joined(turn: Message, more: Message) -> Message | None:
    """Return an assistant's turn with one more item in it, or None when the item begins another turn."""
    if more.reasoning:
        return None
    if more.tool_calls:
        return msgspec.structs.replace(turn, tool_calls=(*turn.tool_calls, *more.tool_calls))
    if turn.content or turn.tool_calls:
        return None
    return msgspec.structs.replace(turn, content=more.content)


def _message(where: str, item: Item) -> Message | None:
    """Return what one item is; None for reasoning that says nothing."""
    match item.type:
        case "message":
            if item.role not in ROLES or item.role == "tool":
                raise _refused(f"{where}.role", f"{item.role!r} is not a role of a message")
            return Message(ROLES[item.role], _text(f"{where}.content", item.content))
        case "reasoning":
            thoughts = _text(f"{where}.content", item.content) or _text(f"{where}.summary", item.summary)
            return Message("assistant", reasoning=thoughts) if thoughts else None
        case "function_call":
            call = ToolCall(item.name or "", parsed_arguments(item.arguments), id=item.call_id)
            return Message("assistant", tool_calls=(call,))
        case "function_call_output":
            return Message("tool", _text(f"{where}.output", item.output), tool_call_id=item.call_id)
    raise _refused(f"{where}.type", f"items of type {item.type!r} are not supported")


def _text(where: str, content: str | Sequence[Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, part in enumerate(content):
        text = part.text if part.type in _TEXTS else part.refusal
        if text is None:
            raise _refused(f"{where}[{index}]", f"a part of type {part.type!r} is not supported; send text")
        texts.append(text)
    return "".join(texts)


def _tools(tools: Iterable[ToolBody]) -> Iterator[dict[str, Any]]:
    """Yield the functions, those of namespaces among them; tools that run elsewhere are left out."""
    for tool in tools:
        if tool.type == "namespace":
            yield from _tools(tool.tools or ())
        elif tool.type == "function" and tool.name:
            function = {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.parameters or NO_PARAMETERS,
            }
            yield {"type": "function", "function": function}


def _refused(where: str, what: str) -> RequestError:
    return RequestError(f"{where}: {what}", param=where, code="unsupported_value")
