"""Rows: follow the cold tier's table with a connection of its own, which only reads.

diskcache has no call that lists rows with their columns, and another process may change the table at any
time. `Rows.changes()` asks SQLite first whether any other connection has committed (`PRAGMA data_version`, 5
us); only then it looks, and mostly at new rows alone:

    rowid   1 ... last_seen | last_seen+1 ...      new rows always get the largest rowid + 1

A rowid is given out again only after the row with the largest one was deleted. So if the row at `last_seen`
is still the same, all new rows are behind it; and if then the count of rows agrees, none was deleted.
Otherwise all keys are compared.
"""

import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from shutil import copyfile
from urllib.parse import quote

from omlx.errors import CacheError
from omlx.store.disk import DATABASE
from omlx.store.schema import BlockRow, RecordRow, ReservationRow, decode_row, split_key

_BUSY_TIMEOUT_S = 5.0
_LOG_TIMEOUT_S = 0.2
_COLUMNS = "rowid, key, store_time, access_time, access_count, size, filename, value"


@dataclass(frozen=True, slots=True)
class RawRow:
    """One row of the table, value not decoded."""

    rowid: int
    key: bytes
    store_time: float
    access_time: float
    access_count: int
    size: int
    filename: str | None
    value: bytes


@dataclass(frozen=True, slots=True)
class Changes:
    """Rows that came, and keys that went, since the last look."""

    added: tuple[RawRow, ...] = ()
    removed: tuple[bytes, ...] = ()


class Rows:
    """Follow the table of one cache directory.

    Not thread-safe; may be used from any thread, one at a time.
    """

    def __init__(self, directory: Path) -> None:
        self._connection = connect(directory, "ro")
        self._known: dict[bytes, tuple[int, float]] = {}
        self._last: tuple[int, bytes, float] | None = None
        self._version: int | None = None

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def forget(self, key: bytes) -> None:
        """Take note that the caller deletes a row itself: it will not be reported."""
        self._known.pop(key, None)

    def forget_all(self) -> None:
        """Report every row again."""
        self._known.clear()
        self._last = self._version = None

    def changes(self) -> Changes:
        """Return what changed since the last call. Raises sqlite3.Error when the table cannot be read."""
        ((version,),) = self._connection.execute("PRAGMA data_version")
        if version == self._version:
            return Changes()
        # One transaction: the new rows and the count must be of one moment.
        self._connection.execute("BEGIN")
        try:
            changes = self._newer() or self._compare()
        finally:
            self._connection.execute("COMMIT")
        self._version = version
        return changes

    def _newer(self) -> Changes | None:
        """Return the rows behind the last one seen, or None when that may not be all that changed."""
        last = self._last
        if last is None:
            return None
        rows = [_raw(row) for row in self._select("WHERE rowid >= ? ORDER BY rowid", (last[0],))]
        if not rows or _identity(rows[0]) != last:
            return None
        added = tuple(rows[1:])
        ((count,),) = self._connection.execute("SELECT COUNT(*) FROM Cache")
        fresh = {row.key for row in added}
        if count != len(self._known.keys() | fresh):
            return None
        self._note(added)
        return Changes(added)

    def _compare(self) -> Changes:
        """Compare all keys with those known."""
        found = {
            bytes(key): (rowid, stored)
            for rowid, key, stored in self._connection.execute("SELECT rowid, key, store_time FROM Cache")
        }
        new = [mark[0] for key, mark in found.items() if self._known.get(key) != mark]
        removed = tuple(key for key in self._known if key not in found)
        for key in removed:
            del self._known[key]
        added = tuple(self._by_rowid(new))
        self._last = None
        self._note(added)
        if found:
            key, (rowid, stored) = max(found.items(), key=lambda item: item[1][0])
            self._last = (rowid, key, stored)
        return Changes(added, removed)

    def _note(self, added: tuple[RawRow, ...]) -> None:
        self._known.update((row.key, (row.rowid, row.store_time)) for row in added)
        if added:
            self._last = _identity(max(added, key=lambda row: row.rowid))

    def _by_rowid(self, rowids: list[int]) -> Iterator[RawRow]:
        if len(rowids) > 500:  # at start: one pass
            wanted = set(rowids)
            yield from (_raw(row) for row in self._select("", ()) if row[0] in wanted)
            return
        for rowid in rowids:
            yield from (_raw(row) for row in self._select("WHERE rowid = ?", (rowid,)))

    def _select(self, where: str, values: tuple[object, ...]) -> sqlite3.Cursor:
        return self._connection.execute(f"SELECT {_COLUMNS} FROM Cache {where}", values)  # noqa: S608 - constants


def connect(
    directory: Path, mode: str, *, immutable: bool = False, timeout_s: float = _BUSY_TIMEOUT_S
) -> sqlite3.Connection:
    """Open the table in mode "ro" or "rw" (never creating it). Raises sqlite3.OperationalError."""
    path = quote(str((directory / DATABASE).absolute()))
    flag = "&immutable=1" if immutable else ""
    return sqlite3.connect(
        f"file:{path}?mode={mode}{flag}",
        uri=True,
        timeout=timeout_s,
        isolation_level=None,
        check_same_thread=False,
    )


def touch(directory: Path, touches: dict[bytes, tuple[float, int]]) -> None:
    """Persist access times and further uses of rows by key. Raises sqlite3.Error."""
    with closing(connect(directory, "rw")) as connection:
        connection.execute("BEGIN IMMEDIATE")
        connection.executemany(
            "UPDATE Cache SET access_time = MAX(access_time, ?), access_count = access_count + ?"
            " WHERE key = ? AND raw = 1",
            [(accessed, uses, key) for key, (accessed, uses) in touches.items()],
        )
        connection.execute("COMMIT")


def shrink_log(directory: Path, kept_bytes: int) -> bool:
    """Move a log of more than that many bytes into the table; return whether it is gone.

    Not while someone reads. Raises OSError or sqlite3.Error.
    """
    log = directory / f"{DATABASE}-wal"
    if not log.exists() or log.stat().st_size <= kept_bytes:
        return False
    with closing(connect(directory, "rw", timeout_s=_LOG_TIMEOUT_S)) as connection:
        ((busy, *_),) = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return not busy


def scan(directory: Path) -> Iterator[tuple[RawRow, BlockRow | RecordRow]]:
    """Yield the readable rows of a cache directory, changing nothing in it; see `raw_rows`."""
    for raw in raw_rows(directory):
        with suppress(CacheError):
            split_key(raw.key)
            row = decode_row(raw.value)
            if not isinstance(row, ReservationRow):
                yield raw, row


def raw_rows(directory: Path) -> list[RawRow]:
    """Return all rows of a cache directory, changing nothing in it: not even SQLite's own side files.

    Returns nothing when there is no cache. Raises CacheError when the table cannot be read.
    """
    if not (directory / DATABASE).is_file():
        return []
    try:
        with (
            tempfile.TemporaryDirectory(prefix="omlx-scan-") as scratch,
            closing(_connect_unchanged(directory, Path(scratch))) as connection,
        ):
            return [_raw(row) for row in connection.execute(f"SELECT {_COLUMNS} FROM Cache")]  # noqa: S608
    except sqlite3.Error as error:
        raise CacheError(f"the table of {directory} cannot be read: {error}") from error


def _connect_unchanged(directory: Path, scratch: Path) -> sqlite3.Connection:
    """Open the table so that nothing in the directory changes.

    A reader of a write-ahead log makes its index file when there is none. Without a log the table is read as
    it is; with a log and no index (its writer was killed) both are copied aside.
    """
    log, log_index = (directory / f"{DATABASE}{end}" for end in ("-wal", "-shm"))
    if not log.exists() or log.stat().st_size == 0:
        return connect(directory, "ro", immutable=True)
    if log_index.exists():
        return connect(directory, "ro")
    for path in (directory / DATABASE, log):
        copyfile(path, scratch / path.name)
    return connect(scratch, "rw")


def _raw(row: tuple[int, bytes, float, float, int, int, str | None, bytes]) -> RawRow:
    rowid, key, stored, accessed, uses, size, filename, value = row
    return RawRow(rowid, bytes(key), stored, accessed, uses, size, filename, bytes(value or b""))


def _identity(row: RawRow) -> tuple[int, bytes, float]:
    return row.rowid, row.key, row.store_time
