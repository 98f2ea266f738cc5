"""A conversation and its parameters in neutral form: what every API dialect is turned into.

The server's dialects differ in shape; the chain sees these values only. They are normalised at the edge:
content is one string, tool arguments are parsed JSON, ids play no part in rendering.
"""

from typing import Any, TypeAlias

import msgspec


class ToolCall(msgspec.Struct, frozen=True):
    """One call an assistant made. `arguments` is the parsed JSON object, or the raw text if it was not JSON."""

    name: str
    arguments: dict[str, Any] | str
    id: str | None = None


class Message(msgspec.Struct, frozen=True, omit_defaults=True):
    """One message of a conversation.

    `role` is one of system, user, assistant, tool (a dialect's `developer` has become system).
    """

    role: str
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[ToolCall, ...] = ()
    tool_call_id: str | None = None
    name: str | None = None


class ChatPrompt(msgspec.Struct, frozen=True, tag="chat"):
    """Messages to be rendered with the model's chat template.

    `tools` are JSON Schema function tools in the OpenAI form
    (`{"type": "function", "function": {"name", "description", "parameters"}}`).
    """

    messages: tuple[Message, ...]
    tools: tuple[dict[str, Any], ...] = ()
    template_options: dict[str, Any] = {}


class TextPrompt(msgspec.Struct, frozen=True, tag="text"):
    """Plain text, tokenized as it stands."""

    text: str


class TokenPrompt(msgspec.Struct, frozen=True, tag="tokens"):
    """Token ids, used as they stand."""

    tokens: tuple[int, ...]


Prompt: TypeAlias = ChatPrompt | TextPrompt | TokenPrompt
