"""BlockDisk: how diskcache stores our rows and files. It takes one value type and never unpickles anything.

    <directory>/cache.db, -wal, -shm                 diskcache's table, mode 0600
    <directory>/a/<31 hex digits>.omlx.tmp           being written
    <directory>/a/<31 hex digits>.omlx.safetensors   a record; folder and digits are its stem, which is random

Names are random, never derived from the key: diskcache deletes the old file of a key by name, and a name that
comes back would delete the new one (and a reader that holds an old row must find nothing, not another
record). Files with other names are never touched.
"""

import os
import re
import secrets
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diskcache

from omlx.errors import CacheError
from omlx.store import tensorfile
from omlx.store.record import Record
from omlx.store.schema import RecordRow, Row, block_key, decode_row, encode_row, record_key
from omlx.types import BlockName

DATABASE = "cache.db"
_SUFFIX = ".omlx.safetensors"
_TEMPORARY = ".omlx.tmp"
_OURS = re.compile(r"([0-9a-f]{31})(\.omlx\.safetensors|\.omlx\.tmp)")
_FOLDERS = "0123456789abcdef"
_FOLDER = re.compile(r"[0-9a-f]")

# diskcache's codes for the column `mode`
_MODE_RAW = 1
_MODE_BINARY = 2


@dataclass(frozen=True, slots=True)
class Entry:
    """What the table takes: a row, and the file it vouches for (already in place) with its bytes on disk."""

    row: Row
    disk_bytes: int = 0
    filename: str | None = None

    def key(self, name: BlockName) -> bytes:
        """Return the key of this entry for a block."""
        return record_key(name, self.row.kind) if isinstance(self.row, RecordRow) else block_key(name)


class BlockDisk(diskcache.Disk):  # type: ignore[misc]  # diskcache ships no types
    """Store entries, fetch rows and records. Everything that would need pickle raises CacheError."""

    def put(self, key: Any) -> tuple[Any, bool]:
        """Return the key as the table holds it. Only bytes are keys."""
        if type(key) is not bytes:
            raise CacheError(f"cache keys are bytes, not {type(key).__name__}")
        return super().put(key)  # type: ignore[no-any-return]

    def get(self, key: Any, raw: Any) -> bytes:
        """Return a key from the table. A pickled key raises CacheError."""
        if not raw:
            raise CacheError("the cache holds a pickled key; it is not read")
        return bytes(key)

    def store(self, value: Any, read: bool, key: Any = None) -> tuple[int, int, str | None, bytes]:  # noqa: ARG002 - diskcache's
        """Return the columns (size, mode, filename, value) of an entry."""
        if not isinstance(value, Entry) or read:
            raise CacheError(f"cache values are entries, not {type(value).__name__}")
        mode = _MODE_RAW if value.filename is None else _MODE_BINARY
        return value.disk_bytes, mode, value.filename, encode_row(value.row)

    def fetch(self, mode: int, filename: str | None, value: Any, read: bool) -> Row | Record:
        """Return the verified record of a row with a file, else the row. Any other mode raises CacheError."""
        if mode not in (_MODE_RAW, _MODE_BINARY) or read or type(value) is not bytes:
            raise CacheError(f"the cache holds a value of mode {mode}; it is not read")
        row = decode_row(value)
        if filename is None:
            return row
        if not isinstance(row, RecordRow):
            raise CacheError(f"the row of {filename} is not that of a record")
        return tensorfile.read(record_path(Path(self._directory), filename), row)

    def filename(self, *_: Any, **__: Any) -> tuple[str, str]:
        """Raise CacheError: files are named before the table hears of them."""
        raise CacheError("the table does not name files")

    def remove(self, file_path: str) -> None:
        """Delete a file of ours, if it is still there.

        Its folder stays, so that writers do not race for it.
        """
        with suppress(OSError, CacheError):
            record_path(Path(self._directory), file_path).unlink()


def new_stem() -> str:
    """Return a random stem: 32 hexadecimal digits."""
    return secrets.token_hex(16)


def filename_of(stem: str) -> str:
    """Return the file name, relative to the directory, of a finished record."""
    return f"{stem[:1]}/{stem[1:]}{_SUFFIX}"


def stem_of(relative: str) -> str | None:
    """Return the stem when the relative path is that of a finished or temporary file of ours."""
    folder, _, name = relative.partition("/")
    match = _OURS.fullmatch(name)
    return folder + match[1] if match and _FOLDER.fullmatch(folder) else None


def record_path(directory: Path, filename: str) -> Path:
    """Return the path of a file name from the table. Raises CacheError when it is not one of ours."""
    if stem_of(filename) is None:
        raise CacheError(f"file name {filename!r} in the cache's table is not one of ours")
    return directory / filename


def write_file(directory: Path, stem: str, payload: tensorfile.Payload) -> int:
    """Make a record's file appear at once and whole: temporary name, fsync, rename.

    Return its bytes on disk.
    """
    final = directory / filename_of(stem)
    temporary = final.with_name(stem[1:] + _TEMPORARY)
    # Only the folder: when the cache directory itself is gone, the drive may be, and must not be made up.
    with suppress(FileExistsError):
        final.parent.mkdir(mode=0o700)
    try:
        size = tensorfile.write(payload, temporary)
        temporary.rename(final)
    except BaseException:
        remove_files(directory, stem)
        raise
    _sync_directory(final.parent)
    return size


def remove_files(directory: Path, stem: str) -> None:
    """Delete what a stem left behind: finished file and temporary file."""
    for suffix in (_SUFFIX, _TEMPORARY):
        with suppress(OSError):
            (directory / stem[:1] / (stem[1:] + suffix)).unlink()


def open_directory(directory: Path) -> None:
    """Make the cache directory (0700) and its table's file (0600), or give them these modes.

    Raises OSError.
    """
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    directory.chmod(0o700)
    for folder in _FOLDERS:
        (directory / folder).mkdir(mode=0o700, exist_ok=True)
    database = directory / DATABASE
    database.touch(mode=0o600)
    for name in (DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm"):
        with suppress(FileNotFoundError):
            (directory / name).chmod(0o600)


def _sync_directory(folder: Path) -> None:
    """Make a rename last. Folders cannot be synced everywhere; a lost rename is an orphan row, a miss."""
    with suppress(OSError):
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
