"""Full attention with quantized keys and values: QuantizedKVCache.

    keys: packed (1, kv_heads, capacity, head_dim * bits / 32) uint32,
          scales and biases (1, kv_heads, capacity, head_dim / group_size)

A group lies within one token, so tokens can be cut and joined as freely as without quantization, and a
token's bytes are the same whoever computed it.
"""

from collections.abc import Mapping

import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache

from omlx.kv.family import Held, Traits, fill, read, traits
from omlx.kv.full import with_slack

_PARTS = ("packed", "scales", "biases")


@traits.register
def _(cache: QuantizedKVCache) -> Traits:  # noqa: ARG001 - dispatch only
    return Traits("kv")


@read.register
def _(cache: QuantizedKVCache) -> Held:
    if cache.keys is None:
        return Held({}, 0)
    keys, values = cache.keys_and_values()
    named = {"keys": keys, "values": values}
    arrays = {
        f"{name}_{part}": array
        for name, arrays in named.items()
        for part, array in zip(_PARTS, arrays, strict=True)
    }
    return Held(arrays, cache.offset)


@fill.register
def _(cache: QuantizedKVCache, arrays: Mapping[str, mx.array], end: int) -> None:
    cache.keys = [with_slack(arrays[f"keys_{part}"], cache.step) for part in _PARTS]
    cache.values = [with_slack(arrays[f"values_{part}"], cache.step) for part in _PARTS]
    cache.offset = end
