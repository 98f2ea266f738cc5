"""Full attention: KVCache and ConcatenateKVCache keep the keys and values of every token.

    keys: (1, kv_heads, capacity, head_dim), of which the first `offset` tokens are valid

Latent attention and indexers keep other things under the same names; an array may even have no bytes (dim 0), or hold
zeros that nothing reads: those are not stored, and made anew.
"""

from collections.abc import Mapping

import mlx.core as mx
from mlx_lm.models.cache import ConcatenateKVCache, KVCache

from omlx.kv.family import Held, Traits, fill, read, traits


@traits.register(KVCache)
@traits.register(ConcatenateKVCache)
def _(cache: KVCache | ConcatenateKVCache) -> Traits:  # noqa: ARG001 - dispatch only
    return Traits("kv")


@read.register(KVCache)
@read.register(ConcatenateKVCache)
def _(cache: KVCache | ConcatenateKVCache) -> Held:
    if cache.keys is None:
        return Held({}, 0)
    keys, values = cache.keys_and_values()
    return Held({"keys": keys, "values": values}, cache.offset)


@fill.register
def _(cache: KVCache, arrays: Mapping[str, mx.array], end: int) -> None:
    cache.keys = with_slack(arrays["keys"], cache.step)
    cache.values = (
        with_slack(arrays["values"], cache.step) if "values" in arrays else mx.zeros_like(cache.keys)
    )
    cache.offset = end


@fill.register
def _(cache: ConcatenateKVCache, arrays: Mapping[str, mx.array], end: int) -> None:
    cache.keys, cache.values = arrays["keys"], arrays["values"]
    cache.offset = end


def with_slack(array: mx.array, step: int) -> mx.array:
    """Return `(1, heads, tokens, dim)` in a buffer of its own with room for 1 to `step` more tokens.

    Without the room the cache's first update would copy it all again.
    """
    batch, heads, tokens, dim = array.shape
    room = step - tokens % step
    return mx.concatenate([array, mx.zeros((batch, heads, room, dim), array.dtype)], axis=2)
