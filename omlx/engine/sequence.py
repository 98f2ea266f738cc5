"""A running sequence: its tokens, its caches, and how its next token is chosen. Device thread only."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import mlx.core as mx
import numpy as np

from omlx.engine.chances import LazyChances
from omlx.engine.chooser import TokenChooser
from omlx.kv.sliding import put_in_order
from omlx.models.loaded import LoadedModel
from omlx.pipeline.request import Sampling
from omlx.pipeline.work import Chances
from omlx.types import Tokens


class RunningSequence:
    """Mutable: `prefill` runs the model on it alone; `omlx.engine.batch.Batch` decodes it, alone or in company.

    Args:
        loaded: the model that runs it.
        caches: one mlx-lm cache a layer, holding the first `resume` tokens.
        tokens: the prompt, `(n,) int32`.
        sampling: how the next token is chosen.
        resume: how many tokens the caches hold.
        num_likeliest: how many of the likeliest tokens to tell of beside each chosen one; None to tell nothing.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        caches: Sequence[Any],
        tokens: Tokens,
        sampling: Sampling,
        resume: int,
        num_likeliest: int | None = None,
    ) -> None:
        self.loaded = loaded
        self.prompt = tokens
        self.prompt_tokens = len(tokens)
        self.resumed = resume
        self.device_s: dict[str, float] = {}
        self.choose = TokenChooser(sampling)
        self.chosen: mx.array | None = (
            None  # `(1,)`: the next token, when a batch has been left before it was said
        )
        self.num_likeliest = num_likeliest
        self.weighed: LazyChances | None = None  # of the token that was chosen and not said yet
        self.chances: Chances | None = None
        self._caches: Sequence[Any] | Callable[[], Sequence[Any]] = list(caches)
        self._generated: list[int] = []
        self._offset = resume

    @property
    def caches(self) -> Sequence[Any]:
        """Return its caches; while a batch holds it, views of its row, to be dropped before the next step."""
        return self._caches() if callable(self._caches) else self._caches

    @property
    def tokens(self) -> Tokens:
        """Return all tokens so far, prompt and answer: `(n,) int32`."""
        return np.concatenate([self.prompt, np.array(self._generated, dtype=np.int32)])

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
        chunk = mx.array(self.prompt[self._offset : end])
        caches = self.caches
        self.loaded.module(chunk[None], cache=caches)
        if len(chunk) == 1:
            put_in_order(caches)
        mx.eval([cache.state for cache in caches])
        self._offset = end
        self.spend("prefill", started)

    def lend(self, look: Callable[[], Sequence[Any]]) -> None:
        """Give the caches to a batch; `look` returns views of the row there."""
        self._caches = look

    def take_back(self, caches: Sequence[Any]) -> None:
        """Hold caches of its own again."""
        self._caches = caches

    def ran(self) -> None:
        """Note that one more token was given to the model."""
        self._offset += 1

    def say(self, token: int, weighed: LazyChances | None = None) -> None:
        """Add a generated token, and what is told of how likely it was."""
        self._generated.append(token)
        self.chances = weighed.read() if weighed else None

    def spend(self, part: str, started: float) -> None:
        """Add the time since `started` to a part of `device_s`."""
        self.device_s[part] = self.device_s.get(part, 0.0) + time.perf_counter() - started
