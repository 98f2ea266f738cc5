"""Quantize keys and values as they are computed: KVCache becomes QuantizedKVCache from the first token on.

Why from the first token: a cache that turns quantized at some length would make a token's bytes depend on the
request that computed it. Between grid points of prefill a resume may differ by more than rounding: a value
that rounding moves across the border of two quantization steps moves by a whole step. At grid points it stays
bit-equal.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache, QuantizedKVCache

from omlx.errors import ModelLoadError

#: mlx-lm's cache sizes its buffers for widths that fill 32 bits evenly.
BITS = (2, 4, 8)
GROUP_SIZES = (32, 64, 128)
_PROBE_TOKENS = 2


@dataclass(frozen=True, slots=True)
class QuantizedCaches:
    """Fresh caches, and the layers that stay as they are: `layer 0 (RotatingKVCache)`."""

    caches: list[Any]
    left: tuple[str, ...]


def quantize_caches(caches: Sequence[Any], bits: int, group_size: int) -> QuantizedCaches:
    """Return fresh caches with each KVCache replaced.

    As in mlx-lm, sliding, chunked and recurrent layers and the members of a CacheList stay as they are.
    """
    quantized = [
        QuantizedKVCache(group_size=group_size, bits=bits) if type(cache) is KVCache else cache
        for cache in caches
    ]
    left = tuple(
        f"layer {layer} ({type(cache).__name__})"
        for layer, cache in enumerate(caches)
        if type(cache) is not KVCache
    )
    return QuantizedCaches(quantized, left)


def check_quantized(
    model: Any, new_caches: Callable[[], list[Any]], bits: int, group_size: int
) -> tuple[str, ...]:
    """Return the layers that stay as they are, after running a few tokens through quantized caches.

    Raises ModelLoadError when the settings or the model do not allow it, or when no layer would be quantized.
    """
    if bits not in BITS or group_size not in GROUP_SIZES:
        raise ModelLoadError(
            f"keys and values cannot be quantized to {bits} bits in groups of {group_size}",
            hint=f"use bits of {_listed(BITS)} and a group size of {_listed(GROUP_SIZES)}",
        )
    plain = new_caches()
    quantized = quantize_caches(new_caches(), bits, group_size)
    if len(quantized.left) == len(plain):
        raise ModelLoadError(
            "no layer of this model keeps keys and values that can be quantized",
            hint="leave kv quantization off",
        )
    _run(model, plain)
    _check_widths(plain, group_size)
    try:
        _run(model, quantized.caches)
    except (ValueError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise ModelLoadError(
            f"this model's attention cannot read quantized keys and values: {error}",
            hint="leave kv quantization off",
        ) from error
    return quantized.left


def _check_widths(caches: Sequence[Any], group_size: int) -> None:
    """Raise ModelLoadError for a layer whose head dimension is not a multiple of the group size."""
    for layer, width in _widths(caches):
        if width % group_size:
            fitting = [size for size in GROUP_SIZES if width % size == 0]
            raise ModelLoadError(
                f"layer {layer} has a head dimension of {width}, no multiple of the group size {group_size}",
                hint=f"use a group size of {_listed(fitting)}" if fitting else "leave kv quantization off",
            )


def _widths(caches: Sequence[Any]) -> Iterator[tuple[int, int]]:
    for layer, cache in enumerate(caches):
        if type(cache) is KVCache and cache.keys is not None:
            yield layer, cache.keys.shape[3]
            yield layer, cache.values.shape[3]


def _run(model: Any, caches: Sequence[Any]) -> None:
    mx.eval(model(mx.zeros((1, _PROBE_TOKENS), mx.int32), cache=caches))


def _listed(values: Sequence[int]) -> str:
    return " or ".join(str(value) for value in values)
