"""Log probabilities as OpenAI's two APIs word them.

They are those of every token of an answer but the one that ends it: reasoning and tool calls included, which have no
place of their own. Each is natural and of the model's own distribution, before a request's sampling changes it.
"""

from collections.abc import Iterable, Sequence
from itertools import accumulate

import msgspec

from omlx.text.delta import Delta, ReasoningDelta, TextDelta, TokenLogprob

#: What JSON has for a token that is impossible.
_LEAST = -9999.0


class TokenBody(msgspec.Struct, frozen=True):
    """A token: its text (with U+FFFD for a part of a character), its log probability and its bytes."""

    token: str
    logprob: float
    bytes: tuple[int, ...]


class ChosenBody(TokenBody, frozen=True):
    """A token of the answer, with the likeliest in its place."""

    top_logprobs: tuple[TokenBody, ...]


class ChatLogprobs(msgspec.Struct, frozen=True):
    """What a chat choice, or a chunk of it, has."""

    content: tuple[ChosenBody, ...]
    refusal: None = None


class TextLogprobs(msgspec.Struct, frozen=True):
    """What a completion's choice, or a chunk of it, has. `text_offset`: the answer's character where each begins."""

    text_offset: tuple[int, ...]
    token_logprobs: tuple[float, ...]
    tokens: tuple[str, ...]
    top_logprobs: tuple[dict[str, float], ...] | None

    @property
    def end(self) -> int:
        """Return where the token after these begins."""
        return self.text_offset[-1] + len(self.tokens[-1])


def logprobs_of(deltas: Iterable[Delta]) -> tuple[TokenLogprob, ...]:
    """Return the log probabilities in a stream."""
    return tuple(
        each for delta in deltas if isinstance(delta, TextDelta | ReasoningDelta) for each in delta.logprobs
    )


def chat_logprobs(tokens: Sequence[TokenLogprob]) -> ChatLogprobs | None:
    """Return the body for a chat; None when nothing is known."""
    content = tuple(
        ChosenBody(_text(each), _number(each), tuple(each.spelling), tuple(map(_body, each.top)))
        for each in tokens
    )
    return ChatLogprobs(content) if content else None


def text_logprobs(tokens: Sequence[TokenLogprob], start: int) -> TextLogprobs:
    """Return the body for a completion; the first token begins at character `start` of the answer."""
    texts = [_text(each) for each in tokens]
    offsets = list(accumulate(map(len, texts[:-1]), initial=start))
    top = tuple({_text(other): _number(other) for other in each.top} for each in tokens)
    return TextLogprobs(tuple(offsets), tuple(map(_number, tokens)), tuple(texts), top if any(top) else None)


def _body(token: TokenLogprob) -> TokenBody:
    return TokenBody(_text(token), _number(token), tuple(token.spelling))


def _text(token: TokenLogprob) -> str:
    return token.spelling.decode("utf-8", "replace")


def _number(token: TokenLogprob) -> float:
    return max(token.logprob, _LEAST)
