"""Turn a chat body into a neutral prompt: one rendering for everything that means the same.

Clients vary the form of a message from request to request (a string, then a list of parts; null, then no
key), and a prefix is only found again if the form leaves no trace. So content becomes one string,
`developer` becomes `system`, arguments become the object they spell, tools keep the keys that a template
reads, and every message stays where it is.
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from omlx.errors import RequestError
from omlx.server.chat.schema import CallBody, ChatBody, MessageBody, Part, ToolBody
from omlx.text.chat import ChatPrompt, Message, ToolCall

#: Role on the wire -> role in the prompt. Templates drop or misprint `developer`, which means the same.
ROLES = {"system": "system", "developer": "system", "user": "user", "assistant": "assistant", "tool": "tool"}
#: What a function without parameters takes.
NO_PARAMETERS: dict[str, Any] = {"type": "object", "properties": {}}


def chat_prompt(body: ChatBody) -> ChatPrompt:
    """Return the conversation in neutral form. Raises RequestError naming the message and part at fault."""
    return ChatPrompt(
        messages=tuple(_message(f"messages[{i}]", message) for i, message in enumerate(body.messages)),
        tools=tuple(_tool(f"tools[{i}]", tool) for i, tool in enumerate(body.tools or ())),
        template_options=effort_options(body.reasoning_effort) | (body.chat_template_kwargs or {}),
    )


def _message(where: str, body: MessageBody) -> Message:
    if body.role not in ROLES:
        known = ", ".join(ROLES)
        message = f"{where}.role: {body.role!r} is not a role; use one of {known}"
        raise RequestError(message, param=f"{where}.role", code="invalid_value")
    return Message(
        role=ROLES[body.role],
        content=_content(f"{where}.content", body.content),
        reasoning=body.reasoning_content or body.reasoning or None,
        tool_calls=tuple(_tool_call(call) for call in body.tool_calls or ()),
        tool_call_id=body.tool_call_id,
        name=body.name,
    )


def _content(where: str, content: str | Sequence[Part] | None) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    return "".join(_text(f"{where}[{i}]", part) for i, part in enumerate(content))


def _text(where: str, part: Part) -> str:
    text = {"text": part.text, "refusal": part.refusal}.get(part.type)
    if text is None:
        message = f"{where}: a part of type {part.type!r} is not supported; send text parts"
        raise RequestError(message, param=where, code="unsupported_value")
    return text


def _tool_call(call: CallBody) -> ToolCall:
    return ToolCall(name=call.function.name, arguments=parsed_arguments(call.function.arguments), id=call.id)


def parsed_arguments(given: str | dict[str, Any] | None) -> dict[str, Any] | str:
    """Return the object that `given` spells, or its text if it spells none: a slip is history, too."""
    if not isinstance(given, str):
        return given or {}
    if not given.strip():
        return {}
    try:
        return msgspec.json.decode(given, type=dict[str, Any])
    except (msgspec.DecodeError, RecursionError):
        return given


def _tool(where: str, tool: ToolBody) -> dict[str, Any]:
    if tool.type != "function" or tool.function is None:
        message = f"{where}: only tools of type 'function' are supported"
        raise RequestError(message, param=where, code="unsupported_value")
    function = {
        "name": tool.function.name,
        "description": tool.function.description or "",
        "parameters": tool.function.parameters or NO_PARAMETERS,
    }
    return {"type": "function", "function": function}


def effort_options(effort: str | None) -> dict[str, Any]:
    """Return what a template is told for how much to reason."""
    options: dict[str, Any] = {"reasoning_effort": effort} if effort else {}
    if effort == "none":
        options["enable_thinking"] = False
    return options
