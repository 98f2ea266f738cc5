"""What clients may send to `/v1/chat/completions`."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from omlx.errors import RequestError
from omlx.server.openai.generation import GenerationBody, Honoured, TopLogprobs


class Part(msgspec.Struct, frozen=True):
    """A piece of content. `type` "text" carries `text`, an assistant's "refusal" carries `refusal`."""

    type: str
    text: str | None = None
    refusal: str | None = None


class CalledFunction(msgspec.Struct, frozen=True):
    """`arguments`: JSON text as the API has it; some clients send the object itself."""

    name: str
    arguments: str | dict[str, Any] | None = None


class CallBody(msgspec.Struct, frozen=True):
    """A tool call that the assistant made earlier."""

    function: CalledFunction
    id: str | None = None


class MessageBody(msgspec.Struct, frozen=True):
    """A message. Clients send thoughts back as `reasoning_content` or as `reasoning`."""

    role: str
    content: str | list[Part] | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: list[CallBody] | None = None
    tool_call_id: str | None = None
    name: str | None = None


class ToolFunction(msgspec.Struct, frozen=True):
    """A function the model may call; `parameters` is a JSON Schema."""

    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None


class ToolBody(msgspec.Struct, frozen=True):
    """A tool. Only functions are known."""

    type: str = "function"
    function: ToolFunction | None = None


class ChatBody(GenerationBody, frozen=True, kw_only=True):
    """The body. `max_completion_tokens` wins over `max_tokens`, its older name; `top_logprobs` goes with `logprobs`."""

    messages: Annotated[list[MessageBody], Meta(min_length=1)]
    tools: list[ToolBody] | None = None
    max_completion_tokens: Annotated[int, Meta(ge=-1)] | None = None
    parallel_tool_calls: bool | None = None
    reasoning_effort: str | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    logprobs: bool | None = None
    top_logprobs: TopLogprobs | None = None

    # what HONOURED bounds
    tool_choice: Any = None
    response_format: Any = None
    functions: Any = None
    function_call: Any = None
    modalities: Any = None
    audio: Any = None
    web_search_options: Any = None

    def wanted_logprobs(self) -> int | None:
        """Return how many log probabilities are wanted beside each token's own; None for none at all.

        Raises RequestError for `top_logprobs` without `logprobs`.
        """
        if self.top_logprobs and not self.logprobs:
            raise RequestError(
                "top_logprobs: needs logprobs",
                param="top_logprobs",
                code="invalid_value",
                hint="add logprobs: true",
            )
        return (self.top_logprobs or 0) if self.logprobs else None


HONOURED: Honoured = {
    "tool_choice": ("auto", "none"),
    "response_format": ({"type": "text"},),
    "functions": ([],),
    "function_call": ("auto", "none"),
    "modalities": (["text"],),
    "audio": (),
    "web_search_options": (),
}
