"""Copy computed KV out of a running sequence, as records that nothing else changes.

Records are copies: a view would keep the sequence's whole buffer alive, and every later step would have to copy
that buffer instead of writing into it.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from omlx.errors import CacheError
from omlx.kv.family import Span, read
from omlx.prefix.layout import LayerGroup, Layout
from omlx.store.record import Record
from omlx.types import RecordKind


def capture(
    caches: Sequence[Any], layout: Layout, ranges: Sequence[tuple[int, int]]
) -> list[dict[RecordKind, Record]]:
    """Return one mapping of records per token range `[start, end)`, evaluated, in host and device form.

    Raises CacheError when a sliding layer has already dropped a token of a range.
    """
    captured: list[dict[RecordKind, dict[str, mx.array]]] = [{} for _ in ranges]
    for group in layout.groups:
        spans = [read(caches[path[0]]) for path in group.layers]
        for arrays, (start, end) in zip(captured, ranges, strict=True):
            arrays.setdefault(group.kind, {}).update(_stacked(group, spans, start, end))
    mx.eval(captured)
    return [{kind: to_record(kind, arrays) for kind, arrays in by_kind.items()} for by_kind in captured]


def _stacked(group: LayerGroup, spans: list[Span], start: int, end: int) -> dict[str, mx.array]:
    """Return a group's arrays for tokens `[start, end)`: each `(layers, heads, end - start, dim)`."""
    if any(start < span.first or end > span.end for span in spans):
        raise CacheError(f"tokens [{start}, {end}) are no longer in a layer that holds from {spans[0].first} on")
    stacked = {}
    for spec, name in zip(group.tensors, spans[0].arrays, strict=True):
        parts = [span.arrays[name][0, :, start - span.first : end - span.first] for span in spans]
        if len(parts) == 1:  # stacking one array would share its buffer; joining it to nothing copies
            stacked[spec.name] = mx.concatenate([parts[0], parts[0][:, :0]], axis=1)[None]
        else:
            stacked[spec.name] = mx.stack(parts)
    return stacked


def to_record(kind: RecordKind, arrays: dict[str, mx.array]) -> Record:
    """Return a record of evaluated arrays; its host form shares their memory."""
    return Record(kind, {name: host_view(array) for name, array in arrays.items()}, arrays)


def host_view(array: mx.array) -> npt.NDArray[Any]:
    """Return an evaluated array's memory as NumPy, without a copy; bfloat16 as uint16."""
    if array.dtype == mx.bfloat16:
        array = array.view(mx.uint16)
        mx.eval(array)
    return np.asarray(memoryview(array))  # type: ignore[arg-type]  # mlx arrays offer the buffer protocol


def to_device(record: Record) -> dict[str, mx.array]:
    """Return a record's device arrays, making them from its host form on first use. Device thread only."""
    if record.arrays is None:
        assert record.buffers is not None  # a record holds one form at least
        arrays = {name: _device_array(buffer) for name, buffer in record.buffers.items()}
        mx.eval(arrays)
        record.arrays = arrays
        record.buffers = {name: host_view(array) for name, array in arrays.items()}
    return dict(record.arrays)


def _device_array(buffer: npt.NDArray[Any]) -> mx.array:
    array = mx.array(buffer)
    return array.view(mx.bfloat16) if array.dtype == mx.uint16 else array
