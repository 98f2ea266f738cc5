"""Files of records: what is written, and what is not believed when it is read."""

import os

import msgspec
import numpy as np
import pytest
from safetensors.numpy import load_file

from omlx.errors import CacheError
from omlx.store import tensorfile
from omlx.store.record import Record
from tests.sequences import FULL, HYBRID, chain, record

(BLOCK,) = chain(range(16), [16])


def written(path, kind="kv", layout=FULL):
    """Write a record; return its row."""
    payload = tensorfile.pack(record(BLOCK, kind, layout), window=0)
    tensorfile.write(payload, path)
    return payload.row


def assert_equal(expected: Record, actual: Record):
    """Compare two records bit for bit."""
    assert expected.kind == actual.kind
    assert expected.shapes() == actual.shapes()
    for name, array in expected.buffers.items():
        assert array.tobytes() == actual.buffers[name].tobytes()


def test_the_library_reads_our_files(tmp_path):
    """A record's file is a safetensors file."""
    written(tmp_path / "a")
    expected = record(BLOCK, "kv", FULL).buffers
    found = load_file(tmp_path / "a")
    assert sorted(expected) == sorted(found)
    assert all(np.array_equal(expected[name], found[name]) for name in expected)


@pytest.mark.parametrize("dtype", ["float32", "float16", "uint16", "uint32", "uint8", "int32", "int64"])
def test_every_stored_type_comes_back(tmp_path, dtype):
    """Arrays of mixed types, also empty and strided ones, come back bit for bit."""
    rng = np.random.default_rng(0)
    arrays = {
        "a": rng.integers(0, 200, (3, 1, 5)).astype(dtype),
        "b": rng.integers(0, 200, (7,)).astype(np.uint8),
        "c": rng.integers(0, 200, (4, 6)).astype(dtype)[:, ::2],
        "d": np.zeros((0, 3), dtype),
    }
    payload = tensorfile.pack(Record("kv", arrays, None), window=0)
    tensorfile.write(payload, tmp_path / "a")
    assert_equal(Record("kv", arrays, None), tensorfile.read(tmp_path / "a", payload.row))


def test_arrays_are_not_copied():
    """A contiguous array is written from where it is."""
    given = record(BLOCK, "kv", FULL)
    chunks = tensorfile.pack(given, window=0).chunks
    assert np.shares_memory(np.frombuffer(chunks[0], np.uint8), given.buffers["kv.keys"])


def test_file_is_private_and_new(tmp_path):
    """B20: a file has mode 0600 under any umask, and never replaces another."""
    old = os.umask(0o022)
    try:
        written(tmp_path / "a")
    finally:
        os.umask(old)
    assert 0o600 == (tmp_path / "a").stat().st_mode & 0o777
    with pytest.raises(FileExistsError):
        written(tmp_path / "a")


@pytest.mark.parametrize("cut", [1, 100, 700])
def test_truncated_file_is_refused(tmp_path, cut):
    """B10: a file that is shorter than its row says is not read, let alone as zeros."""
    row = written(tmp_path / "a")
    os.truncate(tmp_path / "a", row.file_bytes - cut)
    with pytest.raises(CacheError, match="bytes, its row says"):
        tensorfile.read(tmp_path / "a", row)


def test_grown_file_is_refused(tmp_path):
    """B10: a file with bytes after its end is not read."""
    row = written(tmp_path / "a")
    with (tmp_path / "a").open("ab") as file:
        file.write(b"0123456789")
    with pytest.raises(CacheError, match="bytes, its row says"):
        tensorfile.read(tmp_path / "a", row)


def test_every_flipped_byte_is_found(tmp_path):
    """A6: no single changed byte, in length, header, padding or data, goes through."""
    row = written(tmp_path / "a", "state", HYBRID)
    whole = (tmp_path / "a").read_bytes()
    for at in range(len(whole)):
        (tmp_path / "a").write_bytes(whole[:at] + bytes([whole[at] ^ 0x10]) + whole[at + 1 :])
        with pytest.raises(CacheError):
            tensorfile.read(tmp_path / "a", row)


@pytest.mark.parametrize(
    "change",
    [
        {"tensors": ()},
        {"tensors": (tensorfile.TensorRow("kv.keys", "float32", (2, 1, 16, 8)),)},
        {"crc32": 1},
    ],
)
def test_row_and_file_must_agree(tmp_path, change):
    """A file that is whole, but not the one that the row describes, is refused."""
    row = msgspec.structs.replace(written(tmp_path / "a"), **change)
    with pytest.raises(CacheError):
        tensorfile.read(tmp_path / "a", row)


def test_what_cannot_be_stored_is_refused():
    """A record without host buffers, or of a type that safetensors lacks, is an error, and not written."""
    with pytest.raises(CacheError, match="no host buffers"):
        tensorfile.pack(Record("kv", None, {"a": np.zeros(1)}), window=0)
    with pytest.raises(CacheError, match="complex128"):
        tensorfile.pack(Record("kv", {"a": np.zeros(1, np.complex128)}, None), window=0)
