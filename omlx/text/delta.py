"""The neutral stream of an answer. Each API renders it by a pure function."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from omlx.errors import OmlxError

FinishReason: TypeAlias = Literal["stop", "length", "tool_calls", "cancelled"]


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token by its bytes, its natural log probability, and those of the likeliest tokens in its place."""

    spelling: bytes
    logprob: float
    top: tuple["TokenLogprob", ...] = ()


@dataclass(frozen=True, slots=True)
class TextDelta:
    """More visible text. Never empty.

    `logprobs`, when the request asks for them: of the tokens since the last delta that had any. They may be all there
    is, at the end of an answer: the text is empty then.
    """

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """More reasoning text. Never empty. `logprobs` as of a TextDelta."""

    text: str
    logprobs: tuple[TokenLogprob, ...] = ()


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """One whole tool call. `arguments` is JSON text."""

    index: int
    id: str
    name: str
    arguments: str


@dataclass(frozen=True, slots=True)
class Usage:
    """Token counts of one request. `prompt_tokens = cached_tokens + prefilled_tokens` once prefill is done."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    hot_tokens: int = 0
    cold_tokens: int = 0
    prefilled_tokens: int = 0
    completion_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Started:
    """The request has passed every check and goes to the device. First in the stream, at most once.

    `seconds` maps each part that is over (queue, load, stages) to the time spent in it.
    """

    usage: Usage
    seconds: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Finished:
    """The answer is complete. `seconds` maps a stage's name to the time spent in it.

    `explanation` is the `omlx.pipeline.explanation.Explanation` of a request that asked for one, else None.
    """

    reason: FinishReason
    usage: Usage
    seconds: dict[str, float] = field(default_factory=dict)
    explanation: object = None


@dataclass(frozen=True, slots=True)
class Failed:
    """The request failed; nothing follows."""

    error: OmlxError


#: What a parser makes of tokens.
AnswerDelta: TypeAlias = TextDelta | ReasoningDelta | ToolCallDelta
#: What a request's stream carries: Started, any number of answer deltas, then one Finished; or Failed at any time.
Delta: TypeAlias = Started | AnswerDelta | Finished | Failed
