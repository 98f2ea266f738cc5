"""The fields that chat and plain completions share, and what is refused of them.

Unknown fields are ignored and null counts as absent. Fields that clients send as a matter of course and
that do not change what the answer means (`user`, `metadata`, `store`, `service_tier`, `min_tokens`,
`cache_prompt`, `return_token_ids`) are unknown here on purpose. A field whose neglect would give the client
something else than it asked for is listed with the values that can be honoured, and any other value is
refused by name.
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypeAlias

import msgspec
from msgspec import Meta

from omlx.errors import RequestError
from omlx.pipeline.request import Sampling

#: Field -> the values, besides null, that the server can honour.
Honoured = Mapping[str, Sequence[object]]


#: How many of the likeliest tokens may be asked for.
TopLogprobs: TypeAlias = Annotated[int, Meta(ge=0, le=20)]
#: How many answers one request may ask for: each takes a place among the running requests.
MAX_CHOICES = 16


class StreamOptions(msgspec.Struct, frozen=True):
    """`include_usage`: send one more chunk with the usage before the end."""

    include_usage: bool | None = None


class GenerationBody(msgspec.Struct, frozen=True, kw_only=True):
    """How to generate. Values that are not given are left to the model's settings.

    `max_tokens`: -1 means no bound, as other local servers have it; so does leaving it out.
    `top_k`: 0 and -1 mean all.
    `stop`: any number of strings; empty ones can match nothing and are dropped.
    `n`: how many answers; their prompt is computed once. With a `seed` each draws from its own, which follow it.
    """

    model: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    max_tokens: Annotated[int, Meta(ge=-1)] | None = None
    stop: str | list[str] | None = None
    temperature: Annotated[float, Meta(ge=0)] | None = None
    top_p: Annotated[float, Meta(gt=0, le=1)] | None = None
    top_k: Annotated[int, Meta(ge=-1)] | None = None
    min_p: Annotated[float, Meta(ge=0, le=1)] | None = None
    repetition_penalty: Annotated[float, Meta(gt=0)] | None = None
    presence_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    frequency_penalty: Annotated[float, Meta(ge=-2, le=2)] | None = None
    logit_bias: dict[int, Annotated[float, Meta(ge=-100, le=100)]] | None = None
    seed: int | None = None
    ignore_eos: bool | None = None
    n: Annotated[int, Meta(ge=1, le=MAX_CHOICES)] | None = None

    @property
    def wants_usage(self) -> bool:
        """Whether a stream ends with a usage chunk."""
        return bool(self.stream_options and self.stream_options.include_usage)

    def sampling(self) -> Sampling:
        """Return how to choose tokens, as far as the request says."""
        return Sampling(
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=None if self.top_k is None else max(self.top_k, 0),
            min_p=self.min_p,
            repetition_penalty=self.repetition_penalty,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            logit_bias=self.logit_bias,
            seed=None if self.seed is None else self.seed % 2**63,
        )

    def stop_strings(self) -> tuple[str, ...]:
        """Return the strings that end an answer."""
        given = [self.stop] if isinstance(self.stop, str) else self.stop or []
        return tuple(text for text in given if text)


def token_limit(**fields: int | None) -> int | None:
    """Return the first limit that is given; None for no bound. Raises RequestError for zero."""
    for name, value in fields.items():
        if value == 0:
            raise RequestError(f"{name}: must be at least 1", param=name, code="invalid_value")
        if value is not None:
            return None if value < 0 else value
    return None


def refuse_unsupported(body: msgspec.Struct, honoured: Honoured) -> None:
    """Raise RequestError for the first field whose value the server cannot honour."""
    for name, values in honoured.items():
        value = getattr(body, name)
        if value is not None and not any(_same(value, known) for known in values):
            raise _refusal(name, values)


def _same(value: Any, known: object) -> bool:
    """Compare as JSON does: 0 is not false."""
    return type(value) is type(known) and bool(value == known)


def _refusal(name: str, values: Sequence[object]) -> RequestError:
    only = " or ".join(msgspec.json.encode(value).decode() for value in values)
    message = f"{name}: only {only} is supported" if values else f"{name} is not supported"
    return RequestError(message, param=name, code="unsupported_value", hint="leave it out")
