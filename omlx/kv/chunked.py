"""Chunked attention (Llama 4): ChunkedKVCache keeps the last `chunk_size` tokens and what was added since.

    0 ...... start_position ............ offset        keys: (1, kv_heads, capacity, head_dim), the first
             └ the first token held ┘                  `offset - start_position` tokens are valid

A token looks back to the start of its own chunk of positions, never farther than `chunk_size - 1` tokens. The
model drops older tokens before each step, so a cache filled with the last `chunk_size` goes on as one that
computed them. That makes it a `window` layer.
"""

from collections.abc import Mapping

import mlx.core as mx
from mlx_lm.models.cache import ChunkedKVCache

from omlx.kv.family import Held, Traits, fill, read, traits
from omlx.kv.full import with_slack


@traits.register
def _(cache: ChunkedKVCache) -> Traits:
    return Traits("window", cache.chunk_size)


@read.register
def _(cache: ChunkedKVCache) -> Held:
    if cache.keys is None:
        return Held({}, 0)
    keys, values = cache.keys_and_values()
    return Held({"keys": keys, "values": values}, cache.offset)


@fill.register
def _(cache: ChunkedKVCache, arrays: Mapping[str, mx.array], end: int) -> None:
    cache.start_position = end - arrays["keys"].shape[2]
    cache.keys = with_slack(arrays["keys"], cache.step)
    cache.values = with_slack(arrays["values"], cache.step)
    cache.offset = end
