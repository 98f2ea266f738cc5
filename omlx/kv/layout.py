"""Derive a model's Layout from its caches, by running a few tokens through it once."""

from collections.abc import Mapping, Sequence
from typing import Any

import mlx.core as mx

from omlx.kv.families import Path, read, traits, walk
from omlx.kv.family import Traits
from omlx.kv.unread import unread_values
from omlx.prefix.layout import LayerGroup, Layout, TensorSpec

#: Stored NumPy form of each MLX dtype. NumPy has no bfloat16: its bits travel as uint16.
STORED_DTYPES = {
    mx.float32: "float32",
    mx.float16: "float16",
    mx.bfloat16: "uint16",
    mx.uint32: "uint32",
    mx.uint8: "uint8",
    mx.int32: "int32",
    mx.int64: "int64",
}
#: Enough for a state of the last few tokens (an n-gram's context is 3) to have its full size.
_PROBE_TOKENS = 8

#: Name, shape without the batch axis, stored dtype.
Shape = tuple[str, tuple[int, ...], str]


def probe_layout(model: Any, caches: Sequence[Any]) -> Layout:
    """Return the layout of fresh `caches`, which this fills with a few tokens: throw them away.

    A cache that the model does not use has no part in it, nor has an array that it never reads. Raises
    UnsupportedCacheError when a layer's cache class is not met by this room.
    """
    found = [(path, cache, traits(cache)) for path, cache in walk(caches)]
    mx.eval(model(mx.zeros((1, _PROBE_TOKENS), mx.int32), cache=caches))
    arrays = {path: read(cache).arrays for path, cache, _ in found}
    unread = unread_values(model, caches, _PROBE_TOKENS)
    groups: dict[tuple[Traits, tuple[Shape, ...]], list[Path]] = {}
    for path, _, kind in found:
        shapes = shapes_of({n: a for n, a in arrays[path].items() if n != "values" or path not in unread})
        if shapes:
            groups.setdefault((kind, shapes), []).append(path)
    return Layout(tuple(_group(i, *key, paths) for i, (key, paths) in enumerate(groups.items())))


def shapes_of(arrays: Mapping[str, mx.array]) -> tuple[Shape, ...]:
    """Return what layers that are stacked together have in common."""
    return tuple((name, tuple(array.shape[1:]), STORED_DTYPES[array.dtype]) for name, array in arrays.items())


def array_name(spec: TensorSpec) -> str:
    """Return the family's own name of an array; the layout's name has the group's number before it."""
    return spec.name.partition(".")[2]


def _group(index: int, kind: Traits, shapes: tuple[Shape, ...], paths: list[Path]) -> LayerGroup:
    tensors = []
    for name, shape, dtype in shapes:
        extents = shape if kind.kind == "state" else (shape[0], -1, *shape[2:])
        tensors.append(TensorSpec(f"{index}.{name}", (len(paths), *extents), dtype))
    return LayerGroup(kind.kind, tuple(paths), tuple(tensors), kind.window)
