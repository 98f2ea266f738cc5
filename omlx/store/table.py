"""Table: the transactions of the cold tier over diskcache, and the ledger that follows them.

    reserve   learn what other processes did, evict until there is room, insert a reservation of the bytes
    commit    reservation out, block row and record rows in

At every moment the sum of the rows' sizes is what finished, half-written and about-to-be-written files of all
processes take; diskcache's triggers keep that sum in its Settings table. A process that dies leaves its
reservation, which is void once the process is gone.

Why our own eviction: diskcache's policies know nothing of chains, and cull after the fact; here room is made
before a byte is written.
"""

import os
import secrets
import socket
import sqlite3
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import diskcache

from omlx.errors import CacheError
from omlx.prefix.block import Block
from omlx.store import rows
from omlx.store.disk import DATABASE, BlockDisk, Entry, open_directory, remove_files
from omlx.store.ledger import Ledger
from omlx.store.preview import TierView
from omlx.store.room import Room
from omlx.store.schema import ReservationRow, block_key, reservation_key, row_of_block
from omlx.store.sweep import Census, sweep
from omlx.store.volume import Allowance, FreeBytes
from omlx.types import BlockName

_LOCK_TIMEOUT_S = 20.0
_PAGE_BYTES = 4096
#: The log that SQLite keeps. It grows past that while someone reads, and shrinks only with a later write.
_LOG_BYTES = 64 * _PAGE_BYTES
_SETTINGS = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "statistics": 0,
    "tag_index": 1,
    "sqlite_wal_autocheckpoint": 64,
    "sqlite_journal_size_limit": _LOG_BYTES,
}


class NoRoomError(CacheError):
    """The block is refused: what may go for it is not enough, or its parent has gone."""


class Table:
    """One cache directory's table. Any thread; transactions exclude each other, also between processes."""

    def __init__(
        self, directory: Path, allowance: Allowance, free: FreeBytes, protected_share: float
    ) -> None:
        """Open or create it. Raises OSError, sqlite3.Error or diskcache.Timeout."""
        self._directory = directory
        self._allowance = allowance
        open_directory(directory)
        self._cache = diskcache.Cache(str(directory), timeout=_LOCK_TIMEOUT_S, disk=BlockDisk, **_SETTINGS)
        open_directory(directory)  # the log has come into being with the mode of the table; make sure
        self._identity = _identity(directory)
        self._rows = rows.Rows(directory)
        self._active: set[bytes] = set()
        self._unreported: set[BlockName] = set()
        self.lock = threading.RLock()
        self.ledger = Ledger()
        self._room = Room(
            directory,
            cache=self._cache,
            rows=self._rows,
            ledger=self.ledger,
            allowance=allowance,
            free=free,
            protected_share=protected_share,
        )

    def close(self) -> None:
        """Close this thread's connections."""
        with self.lock:
            self._rows.close()
        self._cache.close()

    def release_thread(self) -> None:
        """Close the connection that diskcache opened for the calling thread, one that rarely writes."""
        self._cache.close()

    def is_attached(self) -> bool:
        """Return whether the directory still holds the table that was opened."""
        return _identity(self._directory) == self._identity

    def refresh(self) -> set[BlockName]:
        """Take over what any process changed; return the blocks concerned. Raises sqlite3.Error."""
        with self.lock:
            changed = self._unreported | self.ledger.apply(self._rows.changes())
            self._unreported = set()
            return changed

    def total_bytes(self) -> int:
        """Return what the directory takes on the disk, as far as the ledger knows."""
        with self.lock:
            rows_bytes = self.ledger.total_bytes
        return rows_bytes + self._room.beside_bytes()

    def view(self) -> TierView:
        """Return what is held and may be held, as far as the ledger knows. Raises OSError."""
        with self.lock:
            return self._room.view()

    @property
    def evicted_records(self) -> int:
        """Return how many records were evicted here since the table was opened."""
        return self._room.evicted_records

    def reserve(self, block: Block, stems: Sequence[str], disk_bytes: int, changed: set[BlockName]) -> bytes:
        """Make room for a block's files and reserve it; return the reservation's key.

        Adds to `changed` the blocks that other processes or the eviction changed. Raises NoRoomError, or what
        the outside world raises.
        """
        granted = self._reserve(block, stems, disk_bytes, changed)
        if granted is None and rows.shrink_log(self._directory, _LOG_BYTES):
            granted = self._reserve(block, stems, disk_bytes, changed)
        if granted is None:
            raise NoRoomError(f"no room for {disk_bytes} bytes of block {block.name.hex()}")
        return granted

    def commit(self, block: Block, reservation: bytes, entries: Iterable[Entry]) -> set[BlockName]:
        """Announce a block and its files in place of the reservation; return the blocks that changed.

        Records that another process announced first win; our file of them is deleted. Raises NoRoomError when
        the parent has gone meanwhile.
        """
        with self._transaction():
            changed = self.refresh()
            self._require_parent(block)
            if not self._cache.delete(reservation):
                raise NoRoomError("the reservation was held for void, and what was written under it deleted")
            self._cache.add(block_key(block.name), Entry(row_of_block(block)), tag=block.fingerprint)
            for entry in entries:
                self._cache.add(entry.key(block.name), entry, tag=block.fingerprint)
        self._active.discard(reservation)
        return changed | self.refresh()

    def release(self, reservation: bytes, stems: Iterable[str]) -> None:
        """Undo a reservation and what was written under it. The row may stay behind when the table fails."""
        for stem in stems:
            remove_files(self._directory, stem)
        self._active.discard(reservation)
        self._cache.delete(reservation)

    def delete(self, keys: Iterable[bytes]) -> set[BlockName]:
        """Delete rows and their files; return the blocks that changed."""
        with self._transaction():
            for key in keys:
                self._cache.delete(key)
        return self.refresh()

    def trim(self) -> set[BlockName]:
        """Evict until the directory is within its limits; return the blocks that changed."""
        changed: set[BlockName] = set()
        with self._transaction():
            changed |= self.refresh()
            self._room.make(0, None, changed)
        return changed | self.refresh()

    def expire(self) -> set[BlockName]:
        """Delete what has not been used for longer than the age limit; return the blocks that changed."""
        with self._transaction():
            changed = self.refresh() | self._room.expire()
        return changed | self.refresh()

    def drop_bare(self) -> set[BlockName]:
        """Delete rows that serve nothing; only at start, when no block waits for what continues it."""
        with self._transaction():
            changed = self._room.drop_bare([block.name for block in self.ledger.blocks()])
        return changed | self.refresh()

    def free_files(self, disk_bytes: int) -> set[BlockName]:
        """On a full volume: unlink the files of what goes first, then delete its rows, which takes space too.

        Raises NoRoomError when there is not enough to give.
        """
        with self.lock:
            plan = self._room.plan_files(disk_bytes)
            if plan is None:
                raise NoRoomError("the volume is full and the cache has nothing left to give")
            keys = {self._room.key(key) for key in plan}
            files = [name for name, key in self.ledger.filenames().items() if key in keys]
        for name in files:
            self._cache.disk.remove(name)
        with self._transaction():
            changed = self._room.evict(plan, ())
        return changed | self.refresh()

    def sweep(self, grace_s: float) -> tuple[Census, set[BlockName]]:
        """Delete void reservations, old leftovers and rows without a file; count what else is there."""
        with self.lock:
            changed = self.refresh()
            held = self.ledger.reservations()
            files = self.ledger.filenames()
            reserved = self.ledger.reserved_stems()
        for key, (row, made) in held.items():
            if self._is_void(key, row, made, grace_s):
                self.release(key, row.stems)
        census = self._room.census = sweep(self._directory, files, reserved, grace_s)
        changed |= self.delete(files[name] for name in census.lost)
        return census, changed

    def persist_touches(self) -> None:
        """Write the uses noted since the last call into the table; keep them for later when that fails."""
        with self.lock:
            touches = self.ledger.take_touches()
        if not touches:
            return
        try:
            rows.touch(self._directory, {block_key(name): use for name, use in touches.items()})
        except sqlite3.Error:
            with self.lock:
                self.ledger.return_touches(touches)

    def verify(self) -> list[str]:
        """Return every way in which table, files and ledger disagree."""
        problems = []
        with closing(rows.connect(self._directory, "ro")) as connection:
            ((stated,),) = connection.execute("SELECT value FROM Settings WHERE key = 'size'")
            ((summed,),) = connection.execute("SELECT COALESCE(SUM(size), 0) FROM Cache")
        with self.lock:
            self.refresh()
            problems += self.ledger.verify(self._directory)
            if not stated == summed == self.ledger.total_bytes:
                problems.append(f"sizes: settings {stated}, rows {summed}, ledger {self.ledger.total_bytes}")
        total = self.total_bytes()
        if total > self._allowance.budget_bytes:
            problems.append(f"{total} bytes on disk, {self._allowance.budget_bytes} allowed")
        return problems

    def _reserve(
        self, block: Block, stems: Sequence[str], disk_bytes: int, changed: set[BlockName]
    ) -> bytes | None:
        """Return the key of a reservation when there is room for it."""
        key = reservation_key(secrets.token_bytes(16))
        with self._transaction():
            changed |= self.refresh()
            self._require_parent(block)
            if not self._room.make(disk_bytes, block, changed):
                return None
            self._active.add(key)
            row = ReservationRow(socket.gethostname(), os.getpid(), tuple(stems))
            self._cache.set(key, Entry(row, disk_bytes))
        return key

    def _require_parent(self, block: Block) -> None:
        if block.parent is not None and block.parent not in self.ledger:
            raise NoRoomError(f"the parent of block {block.name.hex()} is not on disk")

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write under the lock; when that fails, roll back in the ledger too, by reading the table anew."""
        try:
            with self._cache.transact(), self.lock:
                yield
        except NoRoomError:
            raise  # before anything was changed
        except BaseException:
            # A COMMIT that failed leaves its transaction open; closing the connection ends it.
            self._cache.close()
            with self.lock:
                self._unreported |= {block.name for block in self.ledger.blocks()}
                self.ledger.forget_all()
                self._rows.forget_all()
                with suppress(sqlite3.Error):
                    self._unreported = self.refresh()
            raise

    def _is_void(self, key: bytes, row: ReservationRow, made: float, grace_s: float) -> bool:
        if key in self._active:
            return False
        gone = row.host == socket.gethostname() and not _is_alive(row.pid)
        return gone or made < time.time() - grace_s


def _identity(directory: Path) -> tuple[int, int] | None:
    try:
        status = (directory / DATABASE).stat()
    except OSError:
        return None
    return status.st_dev, status.st_ino


def _is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True
