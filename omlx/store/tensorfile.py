"""Tensor file: one record as a safetensors file, written without a copy and read with everything checked.

    8 bytes          header length, little-endian
    header           JSON: name -> {dtype, shape, data_offsets}, "__metadata__"; padded to 8 bytes
    data             the arrays, widest items first, no holes

Why not the library's writer: it takes a path, so that mode, exclusive creation and fsync would each need
another open, and it reports a full disk as text in an exception of its own. The format is thirty lines; the
library reads our files in a test. The reader checks length, CRC-32 and header against the row in the index
*before* an array is used: a truncated file never reads as zeros. Nothing is mapped: pages of a file that
another process cuts short would kill this one.
"""

import os
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from io import FileIO
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from omlx.errors import CacheError
from omlx.store.record import Record
from omlx.store.schema import RecordRow, TensorRow

_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float16": "F16",
    "int64": "I64",
    "int32": "I32",
    "int16": "I16",
    "int8": "I8",
    "uint64": "U64",
    "uint32": "U32",
    "uint16": "U16",
    "uint8": "U8",
    "bool": "BOOL",
}
_LENGTH_BYTES = 8
_MAX_HEADER_BYTES = 1024**2
_CHUNK_BYTES = 1024**2


class _HeaderTensor(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


@dataclass(frozen=True, slots=True)
class Payload:
    """A record ready to be written: the file is `head` followed by `chunks`."""

    row: RecordRow
    head: bytes
    chunks: tuple[memoryview, ...]


def pack(record: Record, window: int) -> Payload:
    """Return a record as the bytes of a file, and the row that vouches for them.

    Contiguous arrays are not copied.

    Raises CacheError when the record has no host buffers, or a dtype that cannot be stored.
    """
    if record.buffers is None:
        raise CacheError(f"a {record.kind} record has no host buffers to write")
    arrays = {name: np.ascontiguousarray(array) for name, array in record.buffers.items()}
    names = sorted(arrays, key=lambda name: (-arrays[name].itemsize, name))
    tensors = tuple(TensorRow(name, arrays[name].dtype.name, arrays[name].shape) for name in names)
    head = _head(tensors, record.kind)
    chunks = tuple(_bytes_of(arrays[name]) for name in names)
    crc = zlib.crc32(head)
    for chunk in chunks:
        crc = zlib.crc32(chunk, crc)
    file_bytes = len(head) + sum(chunk.nbytes for chunk in chunks)
    return Payload(RecordRow(record.kind, file_bytes, crc, tensors, window), head, chunks)


def write(payload: Payload, path: Path) -> int:
    """Create `path` (mode 0600, must not exist), write, fsync; return the bytes it takes on the disk."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        for chunk in (memoryview(payload.head), *payload.chunks):
            done = 0
            while done < chunk.nbytes:
                done += os.write(handle, chunk[done:])
        os.fsync(handle)
        return disk_bytes(os.fstat(handle))
    finally:
        os.close(handle)


def disk_bytes(status: os.stat_result) -> int:
    """Return what a file takes from the volume: as `du` counts, and never less than its length."""
    return max(status.st_size, 512 * getattr(status, "st_blocks", 0))


def read(path: Path, row: RecordRow) -> Record:
    """Return the record of a file that agrees with its row in length, header and checksum.

    Raises CacheError when it does not, FileNotFoundError when there is none, OSError when it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        length = os.fstat(file.fileno()).st_size
        if length != row.file_bytes:
            raise CacheError(f"{path.name} has {length} bytes, its row says {row.file_bytes}")
        head = _read_head(file, path, length)
        spans = _check_head(head, row, path)
        data = np.empty(length - len(head), dtype=np.uint8)
        crc = _fill(file, data, zlib.crc32(head), path)
    if crc != row.crc32:
        raise CacheError(f"{path.name} does not have the checksum of its row")
    return Record(row.kind, _views(data, row, spans), None)


def _bytes_of(array: npt.NDArray[Any]) -> memoryview:
    """Return the memory of a contiguous array."""
    return array.reshape(-1).view(np.uint8).data


def _head(tensors: tuple[TensorRow, ...], kind: str) -> bytes:
    header: dict[str, Any] = {"__metadata__": {"format": "omlx", "kind": kind}}
    begin = 0
    for tensor in tensors:
        if tensor.dtype not in _DTYPES:
            raise CacheError(f"array {tensor.name!r} has dtype {tensor.dtype}, which cannot be stored")
        end = begin + _tensor_bytes(tensor)
        header[tensor.name] = _HeaderTensor(_DTYPES[tensor.dtype], tensor.shape, (begin, end))
        begin = end
    text = msgspec.json.encode(header)
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(_LENGTH_BYTES, "little") + text


def _tensor_bytes(tensor: TensorRow) -> int:
    size: int = np.dtype(tensor.dtype).itemsize
    for extent in tensor.shape:
        size *= extent
    return size


def _read_head(file: FileIO, path: Path, length: int) -> bytes:
    prefix = file.read(_LENGTH_BYTES)
    size = int.from_bytes(prefix, "little")
    if len(prefix) < _LENGTH_BYTES or size > min(_MAX_HEADER_BYTES, length - _LENGTH_BYTES):
        raise CacheError(f"{path.name} has no safetensors header")
    return prefix + file.read(size)


def _check_head(head: bytes, row: RecordRow, path: Path) -> Mapping[str, tuple[int, int]]:
    """Return the data span of each array after comparing the header with the row."""
    try:
        header = msgspec.json.decode(head[_LENGTH_BYTES:], type=dict[str, msgspec.Raw])
        header.pop("__metadata__", None)
        found = {name: msgspec.json.decode(raw, type=_HeaderTensor) for name, raw in header.items()}
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CacheError(f"{path.name} has a damaged header: {error}") from error
    begin = 0
    expected = {}
    for tensor in row.tensors:
        end = begin + _tensor_bytes(tensor)
        expected[tensor.name] = _HeaderTensor(_DTYPES.get(tensor.dtype, ""), tensor.shape, (begin, end))
        begin = end
    if found != expected or len(head) + begin != row.file_bytes:
        raise CacheError(f"{path.name} has a header that is not the one of its row")
    return {name: tensor.data_offsets for name, tensor in found.items()}


def _fill(file: FileIO, data: npt.NDArray[np.uint8], crc: int, path: Path) -> int:
    """Read the rest of the file into `data`.

    Return the checksum carried on over it, while it is in the CPU's cache.
    """
    view, done = _bytes_of(data), 0
    while done < len(view):
        count = file.readinto(view[done : done + _CHUNK_BYTES])
        if not count:
            raise CacheError(f"{path.name} ended after {done} of {len(view)} bytes of data")
        crc = zlib.crc32(view[done : done + count], crc)
        done += count
    return crc


def _views(
    data: npt.NDArray[np.uint8], row: RecordRow, spans: Mapping[str, tuple[int, int]]
) -> dict[str, npt.NDArray[Any]]:
    return {
        tensor.name: data[slice(*spans[tensor.name])].view(tensor.dtype).reshape(tensor.shape)
        for tensor in row.tensors
    }
