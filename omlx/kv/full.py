"""Full attention: KVCache keeps the keys and values of every token.

    keys: (1, kv_heads, capacity, head_dim), of which the first `offset` tokens are valid
"""

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from omlx.kv.family import Span, Traits, fill, read, traits


@traits.register
def _(cache: KVCache) -> Traits:  # noqa: ARG001 - dispatch only
    return Traits("kv")


@read.register
def _(cache: KVCache) -> Span:
    keys, values = cache.keys_and_values()
    return Span(0, cache.offset, {"keys": keys, "values": values})


@fill.register
def _(cache: KVCache, span: Span) -> None:
    cache.keys = with_slack(span.arrays["keys"], cache.step)
    cache.values = with_slack(span.arrays["values"], cache.step)
    cache.offset = span.end


def with_slack(array: mx.array, step: int) -> mx.array:
    """Return the array in a buffer of its own with room for more tokens.

    Without the room the cache's first update would copy it all again.
    """
    batch, heads, tokens, dim = array.shape
    room = step - tokens % step
    return mx.concatenate([array, mx.zeros((batch, heads, room, dim), array.dtype)], axis=2)
