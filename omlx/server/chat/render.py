"""Word the neutral stream as chat completions.

A tool call travels whole, in one delta: clients need not put fragments together.

`tool_choice: "none"` leaves the tools in the prompt, where they stood in every earlier turn, because
without them no cached prefix would match. A call that the model makes all the same is delivered as text,
never as a call. `parallel_tool_calls: false` delivers the first call alone.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import msgspec

from omlx.server.boundary import fault_of
from omlx.server.openai.call import call_as_text
from omlx.server.openai.errors import error_body
from omlx.server.openai.logprobs import ChatLogprobs, chat_logprobs, logprobs_of
from omlx.server.openai.usage import UsageBody, usage_body
from omlx.server.sse import DONE, frame
from omlx.text.delta import Delta, Failed, Finished, ReasoningDelta, Started, TextDelta, ToolCallDelta


class FunctionBody(msgspec.Struct, frozen=True):
    """`arguments` is JSON text, as the model wrote it."""

    name: str
    arguments: str


class CallDelta(msgspec.Struct, frozen=True):
    """A whole tool call in a stream."""

    index: int
    id: str
    type: str
    function: FunctionBody


class CallMade(msgspec.Struct, frozen=True):
    """A tool call in a complete message."""

    id: str
    type: str
    function: FunctionBody


class DeltaBody(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chunk adds."""

    role: str | None = None
    content: str | None = None
    reasoning_content: str | None = None
    tool_calls: tuple[CallDelta, ...] | None = None


class ChunkChoice(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a chunk adds to one choice; `logprobs` only where they were asked for."""

    index: int
    delta: DeltaBody
    finish_reason: str | None
    logprobs: ChatLogprobs | None = None


class Chunk(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[ChunkChoice, ...]
    usage: UsageBody | None = None


class _Said(msgspec.Struct, frozen=True, omit_defaults=True):
    reasoning_content: str | None = None
    tool_calls: tuple[CallMade, ...] | None = None


class MessageSaid(_Said, frozen=True, omit_defaults=True, kw_only=True):
    """The assistant's message. `content` is null only beside tool calls."""

    role: str
    content: str | None


class Choice(msgspec.Struct, frozen=True):
    """One choice of a complete answer."""

    index: int
    message: MessageSaid
    logprobs: ChatLogprobs | None
    finish_reason: str


class Completion(msgspec.Struct, frozen=True):
    """A complete answer."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[Choice, ...]
    usage: UsageBody


@dataclass(frozen=True, slots=True)
class ChatDialect:
    """Words the answer to one chat request. `created` is in seconds since 1970."""

    id: str
    model: str
    created: int
    include_usage: bool = False
    calls_as_text: bool = False
    one_call: bool = False
    logprobs: bool = False

    def frames(self, delta: Delta, choice: int = 0) -> Iterable[bytes]:
        """Return the events that a delta of one choice becomes on a stream."""
        if isinstance(delta, Failed):
            return (frame(error_body(fault_of(delta.error))), DONE)
        return [
            frame(self._head((added,)))
            for each in self._allowed(delta)
            for added in self._added(each, choice)
        ]

    def closing(self, ends: Sequence[Finished]) -> Iterable[bytes]:
        """Return the events after every choice has ended."""
        return (frame(self._head((), usage_body(ends))), DONE) if self.include_usage else (DONE,)

    def whole(self, answers: Sequence[Sequence[Delta]]) -> Completion:
        """Return the body of a complete answer; the last delta of each choice is a Finished."""
        choices = tuple(self._choice(index, deltas) for index, deltas in enumerate(answers))
        usage = usage_body([end for deltas in answers for end in deltas if isinstance(end, Finished)])
        return Completion(self.id, "chat.completion", self.created, self.model, choices, usage)

    def _choice(self, index: int, deltas: Sequence[Delta]) -> Choice:
        said = [allowed for delta in deltas for allowed in self._allowed(delta)]
        finished = said[-1]
        assert isinstance(finished, Finished)
        logprobs = chat_logprobs(logprobs_of(said)) if self.logprobs else None
        return Choice(index, _message(said), logprobs, finished.reason)

    def _allowed(self, delta: Delta) -> Iterator[Delta]:
        """Yield `delta` as the request's tool choice lets it through."""
        match delta:
            case ToolCallDelta() if self.calls_as_text:
                yield TextDelta(call_as_text(delta))
            case Finished(reason="tool_calls") if self.calls_as_text:
                yield replace(delta, reason="stop")
            case ToolCallDelta() if self.one_call and delta.index > 0:
                return
            case _:
                yield delta

    @staticmethod
    def _added(delta: Delta, choice: int) -> Iterator[ChunkChoice]:
        match delta:
            case Started():
                yield ChunkChoice(choice, DeltaBody(role="assistant"), None)
            case TextDelta(text=text, logprobs=logprobs):
                yield ChunkChoice(choice, DeltaBody(content=text), None, chat_logprobs(logprobs))
            case ReasoningDelta(text=text, logprobs=logprobs):
                yield ChunkChoice(choice, DeltaBody(reasoning_content=text), None, chat_logprobs(logprobs))
            case ToolCallDelta():
                function = FunctionBody(delta.name, delta.arguments)
                call = CallDelta(delta.index, delta.id, "function", function)
                yield ChunkChoice(choice, DeltaBody(tool_calls=(call,)), None)
            case Finished(reason=reason):
                yield ChunkChoice(choice, DeltaBody(), reason)

    def _head(self, choices: tuple[ChunkChoice, ...], usage: UsageBody | None = None) -> Chunk:
        return Chunk(self.id, "chat.completion.chunk", self.created, self.model, choices, usage)


def _message(said: Sequence[Delta]) -> MessageSaid:
    text = "".join(delta.text for delta in said if isinstance(delta, TextDelta))
    thoughts = "".join(delta.text for delta in said if isinstance(delta, ReasoningDelta))
    calls = tuple(
        CallMade(delta.id, "function", FunctionBody(delta.name, delta.arguments))
        for delta in said
        if isinstance(delta, ToolCallDelta)
    )
    return MessageSaid(
        role="assistant",
        content=text or (None if calls else ""),
        reasoning_content=thoughts or None,
        tool_calls=calls or None,
    )
