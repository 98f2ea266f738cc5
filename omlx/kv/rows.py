"""Rows of a batch: join the caches of sequences, take rows away, look at one of them.

    two sequences                       one batch: (rows, heads, tokens, dim), padded on the left
    aaaaaaaa                            aaaaaaaa
    bbbbb                 join ->       ...bbbbb
                                             └ the next token of every row goes here

mlx-lm's batch caches do the joining. What a row holds is computed from how many tokens it has run, so that looking
at it waits for nothing.
"""

from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import mlx.core as mx
import numpy as np
from mlx_lm.models.cache import (
    ArraysCache,
    BatchKVCache,
    BatchRotatingKVCache,
    CacheList,
    KVCache,
    RotatingKVCache,
)

_BY_SLOT = "it attends by blocks of its cache, which the padding of a batch moves"

#: Models of mlx-lm (0.32) whose rows would compute something else in company, which no short trial shows.
ALONE: dict[str, str] = {
    "mlx_lm.models.minimax_m3_vl": _BY_SLOT,
    "mlx_lm.models.phi3small": _BY_SLOT,
}

#: Tokens in the caches of two trial rows: of different length, so that one is padded.
_TRIAL_TOKENS = (4, 2)
#: Logits of a row in company may differ from those alone by this part of the largest: by rounding, not more.
_TRIAL_TOLERANCE = 0.05
#: What code of models and caches raises for what it does not foresee.
_REFUSALS = (ValueError, TypeError, AttributeError, LookupError, RuntimeError, StopIteration, AssertionError)


def join(rows: Sequence[Sequence[Any]]) -> list[Any]:
    """Return batch caches that hold copies of the caches of each row, in order. Lazy."""
    return [members[0].merge(members) for members in zip(*rows, strict=True)]


def extend(caches: Sequence[Any], others: Sequence[Any]) -> None:
    """Append the rows of other batch caches. Mutates `caches`."""
    for cache, other in zip(caches, others, strict=True):
        cache.extend(other)


def keep(caches: Sequence[Any], rows: Sequence[int]) -> None:
    """Keep these rows only. Mutates `caches`."""
    chosen = mx.array(list(rows))
    for cache in caches:
        cache.filter(chosen)


def look(caches: Sequence[Any], row: int, offset: int) -> list[Any]:
    """Return plain caches of one row that has run `offset` tokens: views of the batch, lazy.

    While they are held, the next step of the batch copies its buffers instead of writing into them.
    """
    return [view(cache, row, offset) for cache in caches]


@singledispatch
def view(cache: Any, row: int, offset: int) -> Any:  # noqa: ARG001 - the signature of all kinds
    """Return a plain cache of one row. Raises TypeError for a class that has no rows."""
    raise TypeError(f"{type(cache).__name__} has no rows")


@view.register
def _(cache: BatchKVCache, row: int, offset: int) -> KVCache:
    plain = KVCache()
    if cache.keys is not None:
        end = cache._idx  # noqa: SLF001 - where the next token of every row goes
        plain.keys = cache.keys[row : row + 1, :, end - offset : end]
        plain.values = cache.values[row : row + 1, :, end - offset : end]
        plain.offset = offset
    return plain


@view.register
def _(cache: BatchRotatingKVCache, row: int, offset: int) -> RotatingKVCache:
    plain = RotatingKVCache(cache.max_size)
    if cache.keys is not None:
        end = cache._idx  # noqa: SLF001
        keys, values = cache.keys[row : row + 1], cache.values[row : row + 1]
        if cache.rotated:  # the oldest token is at `end`
            keys, values = mx.roll(keys, -end, 2), mx.roll(values, -end, 2)
            end = keys.shape[2]
        first = end - min(offset, cache.max_size, end)
        plain.keys, plain.values = keys[:, :, first:end], values[:, :, first:end]
        plain.offset = offset
        plain._idx = end - first  # noqa: SLF001
    return plain


@view.register
def _(cache: ArraysCache, row: int, offset: int) -> ArraysCache:  # noqa: ARG001 - a state has no position
    plain = ArraysCache(len(cache.cache))
    plain.cache = [None if array is None else array[row : row + 1] for array in cache.cache]
    return plain


@view.register
def _(cache: CacheList, row: int, offset: int) -> CacheList:
    return CacheList(*look(cache.caches, row, offset))


def why_alone(module: Any, caches: Sequence[Any], others: Sequence[Any]) -> str | None:
    """Return why sequences of a model cannot decode in company, or None: tried with two rows of a few tokens.

    `caches` and `others` are fresh, and are used up.
    """
    lacking = next((type(cache) for cache in caches if not hasattr(cache, "merge")), None)
    if lacking is not None:
        return f"{lacking.__module__}.{lacking.__qualname__} cannot hold several sequences"
    if type(module).__module__ in ALONE:
        return ALONE[type(module).__module__]
    rows, token = (caches, others), mx.zeros((1, 1), mx.uint32)
    try:
        for row, length in zip(rows, _TRIAL_TOKENS, strict=True):
            mx.eval(module(mx.arange(1, length + 1)[None], cache=row))
        batch = join(rows)
        together = module(mx.concatenate([token, token]), cache=batch)
        mx.eval(together, [look(batch, i, length + 1)[0].state for i, length in enumerate(_TRIAL_TOKENS)])
        alone = mx.concatenate([module(token, cache=row) for row in rows])
        largest = float(np.array(mx.max(mx.abs(alone)).astype(mx.float32)))
        apart = float(np.array(mx.max(mx.abs(alone - together)).astype(mx.float32)))
    except _REFUSALS as error:
        return f"{type(error).__name__}: {error}"
    if not apart <= _TRIAL_TOLERANCE * max(largest, 1.0):  # also when it is no number
        return f"logits in company differ by {apart:.2g} from those alone"
    return None
