"""Word the neutral stream as plain completions: whatever the model says is text."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import msgspec

from omlx.server.boundary import fault_of
from omlx.server.openai.call import call_as_text
from omlx.server.openai.errors import error_body
from omlx.server.openai.logprobs import TextLogprobs, logprobs_of, text_logprobs
from omlx.server.openai.usage import UsageBody, usage_body
from omlx.server.sse import DONE, frame
from omlx.text.delta import Delta, Failed, Finished, ReasoningDelta, TextDelta, ToolCallDelta


class TextChoice(msgspec.Struct, frozen=True):
    """One choice of an answer, or what a chunk adds to it."""

    index: int
    text: str
    logprobs: TextLogprobs | None
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
    """Words the answer to one plain completion. `created` is in seconds since 1970.

    With `logprobs` it remembers how many characters of each choice it has said: the API counts them.
    """

    id: str
    model: str
    created: int
    include_usage: bool = False
    logprobs: bool = False
    _said: dict[int, int] = field(default_factory=dict)

    def frames(self, delta: Delta, choice: int = 0) -> Iterable[bytes]:
        """Return the events that a delta of one choice becomes on a stream."""
        if isinstance(delta, Failed):
            return (frame(error_body(fault_of(delta.error))), DONE)
        added = self._choice(choice, (delta,))
        return (frame(self._head((added,))),) if added.text or added.logprobs or added.finish_reason else ()

    def closing(self, ends: Sequence[Finished]) -> Iterable[bytes]:
        """Return the events after every choice has ended."""
        return (frame(self._head((), usage_body(ends))), DONE) if self.include_usage else (DONE,)

    def whole(self, answers: Sequence[Sequence[Delta]]) -> TextCompletion:
        """Return the body of a complete answer; the last delta of each choice is a Finished."""
        choices = tuple(self._choice(index, deltas) for index, deltas in enumerate(answers))
        usage = usage_body([end for deltas in answers for end in deltas if isinstance(end, Finished)])
        return self._head(choices, usage)

    def _choice(self, index: int, deltas: Sequence[Delta]) -> TextChoice:
        """Return what the deltas add to a choice."""
        reasons = [_reason(delta) for delta in deltas if isinstance(delta, Finished)]
        logprobs = None
        if self.logprobs and (known := logprobs_of(deltas)):
            logprobs = text_logprobs(known, self._said.get(index, 0))
            self._said[index] = logprobs.end
        return TextChoice(index, "".join(map(_text, deltas)), logprobs, reasons[0] if reasons else None)

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
