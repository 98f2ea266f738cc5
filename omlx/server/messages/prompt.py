"""Turn an Anthropic Messages body into a neutral prompt.

A user's message may hold results of tools and text: each result becomes a message of its own, where it stands.
Texts of one message are joined by an empty line, whether they come as one string or as blocks.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Any

from omlx.errors import RequestError
from omlx.server.chat.prompt import NO_PARAMETERS
from omlx.server.messages.schema import Block, MessageBody, MessagesBody, ToolBody
from omlx.text.chat import ChatPrompt, Message, ToolCall

_ROLES = frozenset({"user", "assistant", "system"})


def messages_prompt(body: MessagesBody) -> ChatPrompt:
    """Return the conversation in neutral form. Raises RequestError naming the block at fault."""
    system = _text("system", body.system)
    first = (Message("system", system),) if system else ()
    rest = (message for i, each in enumerate(body.messages) for message in _messages(f"messages[{i}]", each))
    quiet = {"enable_thinking": False} if body.thinking and body.thinking.type == "disabled" else {}
    return ChatPrompt(
        messages=(*first, *rest),
        tools=tuple(_tools(body.tools or ())),
        template_options=quiet | (body.chat_template_kwargs or {}),
    )


def _messages(where: str, body: MessageBody) -> Iterator[Message]:
    if body.role not in _ROLES:
        raise _refused(
            f"{where}.role", f"{body.role!r} is not a role; use one of {', '.join(sorted(_ROLES))}"
        )
    if isinstance(body.content, str):
        yield Message(body.role, body.content)
    elif body.role == "assistant":
        yield _answer(f"{where}.content", body.content)
    else:
        yield from _said(f"{where}.content", body.role, body.content)


def _answer(where: str, blocks: Sequence[Block]) -> Message:
    """Return an assistant's message: thoughts, text, calls."""
    calls = tuple(
        ToolCall(block.name or "", block.input or {}, id=block.id)
        for block in blocks
        if block.type == "tool_use"
    )
    thoughts = "\n\n".join(block.thinking or "" for block in blocks if block.type == "thinking")
    texts = [block for block in blocks if block.type not in {"tool_use", "thinking", "redacted_thinking"}]
    return Message("assistant", _text(where, texts), reasoning=thoughts or None, tool_calls=calls)


def _said(where: str, role: str, blocks: Sequence[Block]) -> Iterator[Message]:
    """Yield a user's message in the order of its blocks: each result by itself, texts in a row together."""
    for is_result, group in groupby(blocks, key=lambda block: block.type == "tool_result"):
        if not is_result:
            yield Message(role, _text(where, list(group)))
            continue
        for block in group:
            yield Message("tool", _text(f"{where}.content", block.content), tool_call_id=block.tool_use_id)


def _text(where: str, content: str | Sequence[Block] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for index, block in enumerate(content):
        if block.type != "text" or block.text is None:
            raise _refused(
                f"{where}[{index}]", f"a block of type {block.type!r} is not supported here; send text"
            )
        texts.append(block.text)
    return "\n\n".join(texts)


def _tools(tools: Iterable[ToolBody]) -> Iterator[dict[str, Any]]:
    """Yield the functions; tools that run elsewhere are left out."""
    for tool in tools:
        if tool.input_schema is not None:
            function = {
                "name": tool.name,
                "description": tool.description or "",
                "parameters": tool.input_schema or NO_PARAMETERS,
            }
            yield {"type": "function", "function": function}


def _refused(where: str, what: str) -> RequestError:
    return RequestError(f"{where}: {what}", param=where, code="unsupported_value")
