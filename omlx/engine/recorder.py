"""Keep the logits that a model computes, to compare runs by more than the tokens they chose."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from omlx.engine.sequence import RunningSequence

Logits = npt.NDArray[np.float32]


class Recorder:
    """Stand in for a model's module: run it, and keep the logits of every token of every sequence.

    It evaluates what it keeps and changes nothing of what the module computes. Device thread only.

    Args:
        module: the weights, called as `module(tokens, cache=caches)`.
        most_columns: of a larger vocabulary that many evenly spread entries are kept.
    """

    def __init__(self, module: Any, *, most_columns: int = 4096) -> None:
        self._module = module
        self._most_columns = most_columns
        self._kept: dict[int, tuple[Sequence[Any], list[Logits]]] = {}
        self.vocabulary = 0

    def __call__(self, tokens: mx.array, cache: Sequence[Any]) -> mx.array:
        """Return the logits `(1, tokens, vocabulary)`, as the module does."""
        logits: mx.array = self._module(tokens, cache=cache)
        self.vocabulary = logits.shape[-1]
        stride = -(-self.vocabulary // self._most_columns)
        rows = logits[0, :, ::stride].astype(mx.float32)
        mx.eval(rows, logits)
        # the list of caches is kept, so that its id stays its own
        self._kept.setdefault(id(cache), (cache, []))[1].append(np.array(rows))
        return logits

    def take(self, sequence: RunningSequence) -> Logits:
        """Return and forget what one sequence computed: `(tokens run, columns)`, from where it was resumed."""
        _, parts = self._kept.pop(id(sequence.caches))
        return np.concatenate(parts)


def computes_on_cpu() -> bool:
    """Tell whether MLX computes on the CPU, where runs of equal shape have equal bits."""
    return bool(mx.default_device() == mx.Device(mx.cpu))
