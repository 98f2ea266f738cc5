"""What clients may send to `/v1/responses`, as far as it becomes prompt."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta


class Part(msgspec.Struct, frozen=True):
    """A piece of content, of an output or of reasoning: each kind of text is in `text`, a refusal in `refusal`."""

    type: str
    text: str | None = None
    refusal: str | None = None


class Item(msgspec.Struct, frozen=True):
    """A step of the conversation, told apart by `type`.

    message: `role`, `content`. reasoning: `content`, or `summary` where that is all there is. function_call:
    `name`, `arguments` (JSON text), `call_id`. function_call_output: `call_id`, `output`. Ids and states of items
    are no part of the prompt.
    """

    type: str = "message"
    role: str | None = None
    content: str | list[Part] | None = None
    summary: list[Part] | None = None
    name: str | None = None
    arguments: str | None = None
    call_id: str | None = None
    output: str | list[Part] | None = None


class ToolBody(msgspec.Struct, frozen=True):
    """A tool. `namespace` holds functions of its own; tools that only OpenAI can run have neither."""

    type: str
    name: str | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None
    tools: list["ToolBody"] | None = None


class ReasoningBody(msgspec.Struct, frozen=True):
    """How much to reason."""

    effort: str | None = None


class ResponsesBody(msgspec.Struct, frozen=True, kw_only=True):
    """The body."""

    input: Annotated[str, Meta(min_length=1)] | Annotated[list[Item], Meta(min_length=1)]
    model: str | None = None
    instructions: str | None = None
    tools: list[ToolBody] | None = None
    reasoning: ReasoningBody | None = None
    max_output_tokens: Annotated[int, Meta(ge=1)] | None = None
    chat_template_kwargs: dict[str, Any] | None = None
