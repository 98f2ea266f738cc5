"""Record: the bytes of one block for one kind of layer, in host form, device form, or both."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from omlx.errors import CacheError
from omlx.prefix.layout import Layout
from omlx.types import RecordKind

Buffers = Mapping[str, npt.NDArray[Any]]


class Record:
    """Hold one record's arrays by tensor name.

    `buffers` are NumPy arrays that any thread may read (bfloat16 as uint16). `arrays` are ready device
    arrays, made and touched on the device thread only; opaque here. A record captured from a running sequence
    has both over the same memory; one read from disk has buffers until the device thread first uses it,
    arrays after.
    """

    __slots__ = ("arrays", "buffers", "kind", "nbytes", "num_arrays")

    def __init__(self, kind: RecordKind, buffers: Buffers | None, arrays: Mapping[str, Any] | None) -> None:
        held = buffers if buffers is not None else arrays
        if held is None:
            raise ValueError("a record needs buffers or arrays")
        self.kind = kind
        self.buffers = buffers
        self.arrays = arrays
        self.nbytes = sum(int(array.nbytes) for array in held.values())
        self.num_arrays = len(held)

    def shapes(self) -> dict[str, tuple[tuple[int, ...], str]]:
        """Return shape and NumPy dtype name of each buffer. Empty when only device arrays are held."""
        return {name: (tuple(b.shape), np.dtype(b.dtype).name) for name, b in (self.buffers or {}).items()}


def check_record(record: Record, layout: Layout, num_tokens: int) -> None:
    """Raise CacheError unless the record has the arrays that the layout gives for a block of that length.

    A record that holds device arrays alone is taken as it is: they are opaque here.
    """
    if record.buffers is None:
        return
    expected = {
        spec.name: (tuple(num_tokens if extent == -1 else extent for extent in spec.shape), spec.dtype)
        for spec in layout.tensors(record.kind)
    }
    found = record.shapes()
    if found != expected:
        raise CacheError(f"a {record.kind} record has arrays {found}, its layout says {expected}")
