"""What clients may send to `/v1/messages`, as far as it becomes prompt."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class Block(msgspec.Struct, frozen=True):
    """A piece of content, told apart by `type`.

    text: `text`. thinking: `thinking`. tool_use: `id`, `name`, `input`. tool_result: `tool_use_id`, `content`.
    Signatures, cache marks and the order of keys are no part of the prompt.
    """

    type: str
    text: str | None = None
    thinking: str | None = None
    id: str | None = None
    name: str | None = None
    input: dict[str, Any] | None = None
    tool_use_id: str | None = None
    content: "str | list[Block] | None" = None


class MessageBody(msgspec.Struct, frozen=True):
    """A message; `system` in mid-conversation is a reminder and stays where it is."""

    role: str
    content: str | list[Block]


class ToolBody(msgspec.Struct, frozen=True):
    """A tool; one that only the service itself can run has no `input_schema`."""

    name: str
    description: str | None = None
    input_schema: dict[str, Any] | None = None


class ThinkingBody(msgspec.Struct, frozen=True):
    """Whether to reason: enabled, adaptive or disabled."""

    type: str = "enabled"


class MessagesBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body."""

    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    model: str | None = None
    system: str | list[Block] | None = None
    tools: list[ToolBody] | None = None
    thinking: ThinkingBody | None = None
    max_tokens: Annotated[int, Meta(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
