"""Sliding attention: RotatingKVCache keeps the last `max_size` tokens, or the first `keep` and the last of the rest.

    just after a prefill chunk   [0, keep) | max_size - keep - 1 tokens before the chunk | the whole chunk
    while decoding               [0, keep) | a ring of max_size - keep tokens

Filled with the head and the last `max_size - keep` tokens in order, it goes on exactly as one that has computed them:
the next chunk drops the oldest one, the next single token overwrites it.

Why `kv` for keep > 0: the head must be there for every resume, and `window` records are the first to be dropped. Such
a cache is made for a caller that bounds the memory of a model, never by a model itself.
"""

from collections.abc import Mapping

import mlx.core as mx
from mlx_lm.models.cache import RotatingKVCache

from omlx.kv.family import Held, Traits, fill, read, traits


@traits.register
def _(cache: RotatingKVCache) -> Traits:
    return Traits("kv" if cache.keep else "window", cache.max_size - cache.keep, cache.keep)


@read.register
def _(cache: RotatingKVCache) -> Held:
    if cache.keys is None:
        return Held({}, 0)
    keys = cache._temporal_order(cache.keys)  # noqa: SLF001 - mlx-lm's own name for the order of tokens
    values = cache._temporal_order(cache.values)  # noqa: SLF001
    # once tokens were dropped there is a gap after the head, which was captured when it was computed
    head = cache.keep if keys.shape[2] < cache.offset else 0
    return Held({"keys": keys[:, :, head:], "values": values[:, :, head:]}, cache.offset)


@fill.register
def _(cache: RotatingKVCache, arrays: Mapping[str, mx.array], end: int) -> None:
    cache.keys, cache.values = arrays["keys"], arrays["values"]
    cache.offset = end
    cache._idx = cache.keys.shape[2]  # noqa: SLF001 - where the ring writes next
