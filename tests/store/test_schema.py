"""Rows, their versions, and what diskcache is allowed to do with them."""

import io
import pickle
from pathlib import Path

import diskcache
import msgspec
import pytest

from omlx.errors import CacheError
from omlx.store import schema
from omlx.store.disk import BlockDisk, Entry, filename_of, new_stem, record_path, stem_of
from omlx.store.schema import (
    RecordRow,
    ReservationRow,
    UnknownVersionError,
    block_key,
    block_of_row,
    decode_row,
    encode_row,
    record_key,
    row_of_block,
    split_key,
)
from tests.sequences import chain

(BLOCK,) = chain([1, 2, 3], [3])


def versioned(version, body):
    """Return a row value of some version."""
    return msgspec.msgpack.encode([version, body])


def test_block_survives_its_row():
    """A block comes back from its row as it was, tokens included."""
    row = decode_row(encode_row(row_of_block(BLOCK)))
    assert BLOCK == block_of_row(BLOCK.name, row)


def test_row_that_contradicts_itself_is_refused():
    """A row whose tokens, positions or name do not fit together is not believed."""
    row = row_of_block(BLOCK)
    for change in ({"end": 4}, {"start": -1}, {"tokens": b"junk"}, {"digest": b"0" * 16}):
        with pytest.raises(CacheError):
            block_of_row(BLOCK.name, msgspec.structs.replace(row, **change))


def test_keys_name_block_and_kind():
    """A key tells whose row it is and of what; any other key is refused."""
    assert (BLOCK.name, None) == split_key(block_key(BLOCK.name))
    assert (BLOCK.name, "window") == split_key(record_key(BLOCK.name, "window"))
    for key in (b"", BLOCK.name, BLOCK.name + b"z", b"r" + bytes(16)):
        with pytest.raises(CacheError):
            split_key(key)


def test_older_rows_are_migrated_step_by_step(monkeypatch):
    """A row of version 0 is read through the migration 0 -> 1, one of version -1 through both."""
    steps = {
        -1: lambda body: {**body, "pid": body["process"]},
        0: lambda body: {"type": "reservation", "host": "h", "pid": body["pid"], "stems": [body["file"]]},
    }
    row = ReservationRow("h", 7, ("x",))
    assert row == decode_row(versioned(0, {"pid": 7, "file": "x"}), steps)
    assert row == decode_row(versioned(-1, {"process": 7, "file": "x"}), steps)
    with pytest.raises(UnknownVersionError):
        decode_row(versioned(-2, {}), steps)
    monkeypatch.setattr(schema, "SCHEMA_VERSION", 2)
    assert 2 == msgspec.msgpack.decode(encode_row(row))[0]


def test_newer_rows_are_not_guessed():
    """A row of a later version is an error of its own, told apart from damage."""
    with pytest.raises(UnknownVersionError, match="schema version 99"):
        decode_row(versioned(99, {"type": "record"}))


@pytest.mark.parametrize(
    "value", [b"", b"\x00", pickle.dumps({"a": 1}), msgspec.msgpack.encode([1, {"type": "x"}])]
)
def test_damaged_rows_are_refused(value):
    """Bytes that are no row are an error, not a crash."""
    with pytest.raises(CacheError):
        decode_row(value)


def test_only_entries_are_stored(tmp_path):
    """CVE-2025-69872: keys other than bytes, values other than entries are refused; nothing is pickled."""
    with diskcache.Cache(str(tmp_path), disk=BlockDisk) as cache:
        for key, value in (
            (b"k", {"a": 1}),
            (b"k", b"bytes"),
            (b"k", "text"),
            (("k",), Entry(ReservationRow("h", 1, ()))),
        ):
            with pytest.raises(CacheError):
                cache.set(key, value)
        with pytest.raises(CacheError):
            cache.set(b"k", io.BytesIO(b"x"), read=True)
        assert 0 == len(cache)


class Explosive:
    """Unpickling this object would be noticed."""

    def __reduce__(self):
        return Path.touch, (Path("exploded"),)


def test_pickled_rows_are_never_loaded(tmp_path, monkeypatch):
    """CVE-2025-69872: a pickle planted in the table, as key or value, is an error and is not executed."""
    monkeypatch.chdir(tmp_path)
    with diskcache.Cache(str(tmp_path)) as plain:
        plain.set(b"value", Explosive())
        plain.set(("key", Explosive()), b"x")
    with diskcache.Cache(str(tmp_path), disk=BlockDisk) as cache:
        with pytest.raises(CacheError):
            cache.get(b"value")
        with pytest.raises(CacheError):
            list(cache)
    assert not Path("exploded").exists()


def test_file_names_from_the_table_stay_inside(tmp_path):
    """A file name in the table that is not one of ours, such as one with .., is refused."""
    assert tmp_path / filename_of("a" * 32) == record_path(tmp_path, filename_of("a" * 32))
    for name in ("../../etc/passwd", "/etc/passwd", "a/b/c", "notes.txt", filename_of("A" * 32), ""):
        with pytest.raises(CacheError):
            record_path(tmp_path, name)


def test_stems_are_random():
    """Names are not derived from keys: no two are equal, and each leads back to its stem."""
    stems = {new_stem() for _ in range(100)}
    assert 100 == len(stems)
    assert stems == {stem_of(filename_of(stem)) for stem in stems}


def test_records_come_back_through_diskcache(tmp_path):
    """A row without a file is fetched as a row; one whose file is not a record's is refused."""
    with diskcache.Cache(str(tmp_path), disk=BlockDisk) as cache:
        cache.set(b"a", Entry(ReservationRow("h", 1, ("x",)), 10))
        assert ReservationRow("h", 1, ("x",)) == cache.get(b"a")
        cache.set(b"b", Entry(ReservationRow("h", 1, ()), 10, filename_of("a" * 32)))
        with pytest.raises(CacheError):
            cache.get(b"b")
        cache.set(b"c", Entry(RecordRow("kv", 10, 0, ()), 10, filename_of("b" * 32)))
        assert cache.get(b"c") is None
