"""Sliding attention: RotatingKVCache keeps the last `max_size` tokens.

Right after a prefill chunk its buffer is in the order of tokens and holds the whole chunk and `max_size - 1` tokens
before it; while decoding it is a ring. Filled with the last `max_size` tokens in order, it goes on exactly as one
that has computed them: the next chunk trims it to `max_size - 1`, the next single token overwrites the oldest.
"""

from mlx_lm.models.cache import RotatingKVCache

from omlx.kv.family import Span, Traits, UnsupportedCacheError, fill, read, traits


@traits.register
def _(cache: RotatingKVCache) -> Traits:
    if cache.keep:
        raise UnsupportedCacheError("RotatingKVCache with keep > 0")
    return Traits("window", cache.max_size)


@read.register
def _(cache: RotatingKVCache) -> Span:
    keys = cache._temporal_order(cache.keys)  # noqa: SLF001 - mlx-lm's own name for the order of tokens
    values = cache._temporal_order(cache.values)  # noqa: SLF001
    return Span(cache.offset - keys.shape[2], cache.offset, {"keys": keys, "values": values})


@fill.register
def _(cache: RotatingKVCache, span: Span) -> None:
    cache.keys = span.arrays["keys"]
    cache.values = span.arrays["values"]
    cache.offset = span.end
    cache._idx = cache.keys.shape[2]  # noqa: SLF001 - where the ring writes next
