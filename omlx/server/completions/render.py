"""Word the neutral stream as plain completions: whatever the model says is text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import msgspec

from omlx.server.boundary import fault_of
from omlx.server.openai.call import call_as_text
from omlx.server.openai.errors import error_body
from omlx.server.openai.usage import UsageBody, usage_body
from omlx.server.sse import DONE, frame
from omlx.text.delta import Delta, Failed, Finished, ReasoningDelta, TextDelta, ToolCallDelta


class TextChoice(msgspec.Struct, frozen=True):
    """The one choice of an answer or a chunk."""

    index: int
    text: str
    logprobs: None
    finish_reason: str | None


class TextCompletion(msgspec.Struct, frozen=True, omit_defaults=True):
    """A complete answer, or one event of a stream."""

    id: str
    object: str
    created: int
    model: str
    choices: tuple[TextChoice, ...]
    usage: UsageBody | None = None


@dataclass(frozen=True, slots=True)
class CompletionDialect:
    """Words the answer to one plain completion. `created` is in seconds since 1970."""

    id: str
    model: str
    created: int
    include_usage: bool = False

    def frames(self, delta: Delta) -> Iterable[bytes]:
        """Return the events that `delta` becomes on a stream."""
        match delta:
            case Failed(error=error):
                return (frame(error_body(fault_of(error))), DONE)
            case Finished():
                last = frame(self._body("", _reason(delta)))
                usage = (frame(self._head((), usage_body(delta))),) if self.include_usage else ()
                return (last, *usage, DONE)
        text = _text(delta)
        return (frame(self._body(text, None)),) if text else ()

    def whole(self, deltas: Sequence[Delta]) -> TextCompletion:
        """Return the body of a complete answer; the last delta is a Finished."""
        finished = deltas[-1]
        assert isinstance(finished, Finished)
        return self._body("".join(map(_text, deltas)), _reason(finished), usage_body(finished))

    def _body(self, text: str, reason: str | None, usage: UsageBody | None = None) -> TextCompletion:
        return self._head((TextChoice(0, text, None, reason),), usage)

    def _head(self, choices: tuple[TextChoice, ...], usage: UsageBody | None = None) -> TextCompletion:
        return TextCompletion(self.id, "text_completion", self.created, self.model, choices, usage)


def _text(delta: Delta) -> str:
    match delta:
        case TextDelta(text=text) | ReasoningDelta(text=text):
            return text
        case ToolCallDelta():
            return call_as_text(delta)
    return ""


def _reason(finished: Finished) -> str:
    return "stop" if finished.reason == "tool_calls" else finished.reason
