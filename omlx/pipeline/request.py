"""Request: what a client asked for, in neutral form."""

import msgspec

from omlx.text.chat import Prompt
from omlx.types import RequestId


class Sampling(msgspec.Struct, frozen=True):
    """How the next token is chosen. None means: not said here, ask the next source."""

    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    logit_bias: dict[int, float] | None = None
    seed: int | None = None

    def over(self, other: "Sampling") -> "Sampling":
        """Return these values, and `other`'s where this says nothing."""
        mine = {name: value for name, value in msgspec.structs.asdict(self).items() if value is not None}
        return msgspec.structs.replace(other, **mine)


class Request(msgspec.Struct, frozen=True, kw_only=True):
    """One request.

    `max_tokens` bounds the answer; None leaves it to the model's settings and window. `top_logprobs` asks for the log
    probability of each token of the answer and of that many of the likeliest in its place; None for neither. `explain`
    asks for an `Explanation` with the answer.
    """

    id: RequestId
    model: str
    prompt: Prompt
    sampling: Sampling = Sampling()
    max_tokens: int | None = None
    stop: tuple[str, ...] = ()
    ignore_eos: bool = False
    top_logprobs: int | None = None
    explain: bool = False
