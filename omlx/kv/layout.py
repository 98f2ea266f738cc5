"""Derive a model's Layout from its caches, by running two tokens through it once."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from omlx.kv import full, sliding  # noqa: F401 - registers the families
from omlx.kv.family import Traits, read, traits
from omlx.prefix.layout import LayerGroup, Layout, TensorSpec

#: Stored NumPy form of each MLX dtype. NumPy has no bfloat16: its bits travel as uint16.
STORED_DTYPES = {
    mx.float32: "float32",
    mx.float16: "float16",
    mx.bfloat16: "uint16",
    mx.uint32: "uint32",
    mx.uint8: "uint8",
}
_PROBE_TOKENS = 2


def probe_layout(model: Any, caches: Sequence[Any]) -> Layout:
    """Return the layout of fresh `caches`, which this fills with two tokens: throw them away.

    Raises UnsupportedCacheError when a layer's cache class is not met by this room.
    """
    kinds = [traits(cache) for cache in caches]
    mx.eval(model(mx.zeros((1, _PROBE_TOKENS), mx.int32), cache=caches))
    groups: dict[tuple[Any, ...], list[int]] = {}
    for layer, (cache, kind) in enumerate(zip(caches, kinds, strict=True)):
        groups.setdefault((kind, _shapes(cache)), []).append(layer)
    return Layout(tuple(_group(i, key[0], key[1], layers) for i, (key, layers) in enumerate(groups.items())))


def _shapes(cache: Any) -> tuple[tuple[str, tuple[int, ...], str], ...]:
    """Return name, shape without the batch axis, and stored dtype of each array of a layer."""
    return tuple(
        (name, tuple(array.shape[1:]), STORED_DTYPES[array.dtype]) for name, array in read(cache).arrays.items()
    )


def _group(index: int, kind: Traits, shapes: Any, layers: list[int]) -> LayerGroup:
    tensors = tuple(
        TensorSpec(f"{index}.{name}", (len(layers), heads, -1, dim), dtype) for name, (heads, _, dim), dtype in shapes
    )
    return LayerGroup(kind.kind, tuple((layer,) for layer in layers), tensors, kind.window)
