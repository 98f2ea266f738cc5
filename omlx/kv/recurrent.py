"""Recurrent layers: ArraysCache holds a few arrays that stand for all tokens so far.

They are a convolution's last inputs, a state matrix (float32, kept so), a token shift. Slots that a model
leaves empty are no arrays of the record. A state cannot be cut or trimmed: it is that of the sequence's
position, or nothing.
"""

from collections.abc import Mapping

import mlx.core as mx
from mlx_lm.models.cache import ArraysCache

from omlx.kv.family import Held, Traits, fill, read, traits


@traits.register
def _(cache: ArraysCache) -> Traits:  # noqa: ARG001 - dispatch only
    return Traits("state")


@read.register
def _(cache: ArraysCache) -> Held:
    return Held({f"slot{i}": array for i, array in enumerate(cache.cache) if array is not None})


@fill.register
def _(cache: ArraysCache, arrays: Mapping[str, mx.array], end: int) -> None:  # noqa: ARG001 - it has no position
    for name, array in arrays.items():
        cache[int(name.removeprefix("slot"))] = array
