"""What clients may send to `/v1/completions`."""

from typing import Annotated, Any, TypeAlias

from msgspec import Meta

from omlx.errors import RequestError
from omlx.server.openai.generation import GenerationBody, Honoured, TopLogprobs
from omlx.text.chat import TextPrompt, TokenPrompt

TokenId: TypeAlias = Annotated[int, Meta(ge=0, lt=2**31)]


class CompletionBody(GenerationBody, frozen=True, kw_only=True):
    """The body. `prompt` is a text, a list of token ids, or a list with one of either.

    `logprobs`: of each token, and of so many of the likeliest; `true` means 0.
    """

    prompt: str | list[str | TokenId | list[TokenId]]
    logprobs: TopLogprobs | bool | None = None

    # what HONOURED bounds
    best_of: Any = None
    echo: Any = None
    suffix: Any = None

    def wanted_logprobs(self) -> int | None:
        """Return how many log probabilities are wanted beside each token's own; None for none at all."""
        if isinstance(self.logprobs, bool):
            return 0 if self.logprobs else None
        return self.logprobs


HONOURED: Honoured = {"best_of": (1,), "echo": (False,), "suffix": ("",)}


def plain_prompt(body: CompletionBody) -> TextPrompt | TokenPrompt:
    """Return the one prompt of a body. Raises RequestError for none, for several, and for a mixture."""
    match body.prompt:
        case str(text) | [str(text)]:
            return TextPrompt(text)
        case [[*tokens]] | [*tokens] if tokens and all(isinstance(token, int) for token in tokens):
            return TokenPrompt(tuple(token for token in tokens if isinstance(token, int)))
        case [] | [[]]:
            complaint = "must not be empty"
        case [str() | [*_], *_]:
            complaint = "only one prompt per request is supported; send them one by one"
        case _:
            complaint = "must be a text or a list of token ids"
    raise RequestError(f"prompt: {complaint}", param="prompt", code="invalid_value")
