"""Sliding attention: RotatingKVCache keeps the last `max_size` tokens.

Right after a prefill chunk its buffer is in the order of tokens and holds the whole chunk and `max_size - 1`
tokens before it; while decoding it is a ring. Filled with the last `max_size` tokens in order, it goes on
exactly as one that has computed them: the next chunk trims it to `max_size - 1`, the next single token
overwrites the oldest.

Why `keep > 0` is refused: it could be stored, but what it computes depends on where prefill chunks end
(mlx-lm 0.32: the mask hides the kept head from all but the first tokens of a chunk, a single token sees all
of it; logits of a tiny llama moved by 0.03 when chunks were cut elsewhere). A request resumed from another
one's blocks would answer differently. No model makes such a cache, only `make_prompt_cache(max_kv_size=...)`,
which is not used here.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import CacheList, RotatingKVCache

from omlx.kv.family import Held, Traits, UnsupportedCacheError, fill, read, traits


@traits.register
def _(cache: RotatingKVCache) -> Traits:
    if cache.keep:
        raise UnsupportedCacheError(
            RotatingKVCache, f"keep={cache.keep}: what it computes depends on where prefill chunks end"
        )
    return Traits("window", cache.max_size)


@read.register
def _(cache: RotatingKVCache) -> Held:
    if cache.keys is None:
        return Held({}, 0)
    keys = cache._temporal_order(cache.keys)  # noqa: SLF001 - mlx-lm's own name for the order of tokens
    values = cache._temporal_order(cache.values)  # noqa: SLF001
    return Held({"keys": keys, "values": values}, cache.offset)


@fill.register
def _(cache: RotatingKVCache, arrays: Mapping[str, mx.array], end: int) -> None:
    cache.keys, cache.values = arrays["keys"], arrays["values"]
    cache.offset = end
    cache._idx = cache.keys.shape[2]  # noqa: SLF001 - where the ring writes next


def put_in_order(caches: Sequence[Any]) -> None:
    """Turn the rings of sliding layers, so that the oldest token is first: as one that is filled has them.

    A chunk of one token leaves a turned ring. The next single token would then sum in another order than in a
    sequence that was resumed there, and differ by rounding (9e-6 on float32 logits of a tiny Gemma 3).
    """
    for cache in caches:
        if isinstance(cache, CacheList):
            put_in_order(cache.caches)
        elif isinstance(cache, RotatingKVCache) and cache.keys is not None:
            held = read(cache)
            cache.keys, cache.values = held.arrays["keys"], held.arrays["values"]
            cache._idx = cache.keys.shape[2]  # noqa: SLF001 - where the ring writes next
