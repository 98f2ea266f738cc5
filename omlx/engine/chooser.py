"""How the next token is chosen from logits: mlx-lm's samplers and processors, one chooser a sequence."""

import random
from collections.abc import Callable, Sequence

import mlx.core as mx
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from omlx.pipeline.request import Sampling
from omlx.types import Tokens

Sampler = Callable[[mx.array], mx.array]
Processor = Callable[[mx.array, mx.array], mx.array]


class TokenChooser:
    """Choose the next token from logits by mlx-lm's samplers and processors.

    Each draw is seeded from the sequence's own generator, so that requests do not disturb each other's choices and
    a request with a `seed` repeats itself.
    """

    def __init__(self, sampling: Sampling) -> None:
        self._greedy = not sampling.temperature
        self._sample: Sampler = make_sampler(
            temp=sampling.temperature or 0.0,
            top_p=sampling.top_p or 0.0,
            min_p=sampling.min_p or 0.0,
            top_k=sampling.top_k or 0,
        )
        self._processors: list[Processor] = make_logits_processors(
            logit_bias=sampling.logit_bias,
            repetition_penalty=sampling.repetition_penalty,
            presence_penalty=sampling.presence_penalty,
            frequency_penalty=sampling.frequency_penalty,
        )
        self._random = random.Random(sampling.seed)  # noqa: S311 - sampling text, not secrets
        self._context: mx.array | None = None

    @property
    def takes_the_best(self) -> bool:
        """Tell whether the choice is the largest logit and nothing else: such rows are chosen for in one call."""
        return self._greedy and not self._processors

    def __call__(self, prompt: Tokens, token: mx.array, logits: mx.array) -> mx.array:
        """Return the next token `(1,)` for logits `(1, vocabulary)` of `token` `(1,)`. Lazy."""
        if self._processors:
            logits = self._processed(prompt, token, logits)
        if self._greedy:
            return best(logits)
        mx.random.seed(self._random.getrandbits(63))
        return self._sample(logits - mx.logsumexp(logits, axis=-1, keepdims=True))

    def _processed(self, prompt: Tokens, token: mx.array, logits: mx.array) -> mx.array:
        before = mx.array(prompt[:-1]) if self._context is None else self._context
        self._context = mx.concatenate([before, token])
        for processor in self._processors:
            logits = processor(self._context, logits)
        return logits


def best(logits: mx.array) -> mx.array:
    """Return the tokens `(rows,)` with the largest of logits `(rows, vocabulary)`. Lazy."""
    return mx.argmax(logits, axis=-1)


def joined(tokens: Sequence[mx.array]) -> mx.array:
    """Return the tokens of several rows, each `(n,)`, as one array."""
    if not tokens:
        return mx.zeros((0,), mx.uint32)
    return tokens[0] if len(tokens) == 1 else mx.concatenate(list(tokens))
