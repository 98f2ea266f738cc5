"""Records between the device and the host: what stands in MLX arrays there stands in NumPy arrays here."""

from typing import Any

import mlx.core as mx
import numpy as np
import numpy.typing as npt

from omlx.store.record import Record
from omlx.types import RecordKind


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
