"""A running sequence: its tokens, its caches, and how its next token is chosen. Device thread only."""

import random
import time
from collections.abc import Callable, Sequence
from typing import Any, cast

import mlx.core as mx
import numpy as np
from mlx_lm.sample_utils import make_logits_processors, make_sampler

from omlx.models.loaded import LoadedModel
from omlx.pipeline.request import Sampling
from omlx.types import Tokens

Sampler = Callable[[mx.array], mx.array]
Processor = Callable[[mx.array, mx.array], mx.array]


class RunningSequence:
    """Mutable: `step` and `prefill` run the model and move `offset`.

    Args:
        loaded: the model that runs it.
        caches: one mlx-lm cache a layer, holding the first `resume` tokens.
        tokens: the prompt, `(n,) int32`.
        sampling: how the next token is chosen.
        resume: how many tokens the caches hold.
    """

    def __init__(
        self, loaded: LoadedModel, caches: Sequence[Any], tokens: Tokens, sampling: Sampling, resume: int
    ) -> None:
        self.loaded = loaded
        self.caches = list(caches)
        self.prompt_tokens = len(tokens)
        self.resumed = resume
        self._model = loaded.module
        self._prompt = tokens
        self._generated: list[int] = []
        self._offset = resume
        self._ahead: mx.array | None = None
        self.device_s: dict[str, float] = {}
        self._choose = TokenChooser(sampling)

    @property
    def tokens(self) -> Tokens:
        """Return all tokens so far, prompt and answer: `(n,) int32`."""
        return np.concatenate([self._prompt, np.array(self._generated, dtype=np.int32)])

    @property
    def capture_within(self) -> int | None:
        """Return the smallest window of the sliding layers, or None."""
        layout = self.loaded.layout
        windows = [group.window for group in layout.groups if group.window] if layout else []
        return min(windows, default=None)

    @property
    def offset(self) -> int:
        """Return how many tokens have been run through the model."""
        return self._offset

    def prefill(self, end: int) -> None:
        """Run prompt tokens `[offset, end)`; evaluated on return."""
        started = time.perf_counter()
        chunk = mx.array(self._prompt[self._offset : end])
        self._model(chunk[None], cache=self.caches)
        mx.eval([cache.state for cache in self.caches])
        self._offset = end
        self.spend("prefill", started)

    def step(self, *, last: bool) -> int:
        """Return the next token. Unless it is the `last`, the one after it is already being computed.

        Source: the loop of `mlx_lm.generate.generate_step`, which overlaps the device with the host the same way.
        """
        started = time.perf_counter()
        token = self._ahead if self._ahead is not None else self._launch(mx.array(self._prompt[-1:]))
        if last:
            mx.eval(token)
        else:
            self._ahead = self._launch(token)
        value = cast(int, token.item())
        self._generated.append(value)
        self.spend("decode", started)
        return value

    def spend(self, part: str, started: float) -> None:
        """Add the time since `started` to a part of `device_s`."""
        self.device_s[part] = self.device_s.get(part, 0.0) + time.perf_counter() - started

    def _launch(self, token: mx.array) -> mx.array:
        """Start running one token `(1,)`; return the one that follows it, not evaluated yet."""
        logits = self._model(token[None], cache=self.caches)[:, -1, :]
        following = self._choose(self._prompt, token, logits)
        mx.async_eval(following)  # type: ignore[no-untyped-call]
        self._offset += 1
        return following


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

    def __call__(self, prompt: Tokens, token: mx.array, logits: mx.array) -> mx.array:
        """Return the next token `(1,)` for logits `(1, vocabulary)`. Lazy."""
        if self._processors:
            logits = self._processed(prompt, token, logits)
        if not self._greedy:
            mx.random.seed(self._random.getrandbits(63))
        return self._sample(logits - mx.logsumexp(logits, axis=-1, keepdims=True))

    def _processed(self, prompt: Tokens, token: mx.array, logits: mx.array) -> mx.array:
        before = mx.array(prompt[:-1]) if self._context is None else self._context
        self._context = mx.concatenate([before, token])
        for processor in self._processors:
            logits = processor(self._context, logits)
        return logits
