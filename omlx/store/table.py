"""Table: the transactions of the cold tier over diskcache, and the ledger that follows them.

    reserve   learn what other processes did, evict until there is room, insert a reservation of the bytes
    commit    reservation out, block row and record rows in

At every moment the sum of the rows' sizes is what finished, half-written and about-to-be-written files of all
processes take; diskcache's triggers keep that sum in its Settings table. Beside it count the table and its log,
the folders, and files without a row (`Census`). A process that dies leaves its reservation, which is void once
the process is gone.

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
from contextlib import closing, contextmanager
from pathlib import Path

import diskcache

from omlx.errors import CacheError
from omlx.prefix.block import Block
from omlx.store import rows
from omlx.store.disk import DATABASE, BlockDisk, Entry, open_directory, remove_files
from omlx.store.eviction import Cost, Demand, Key, plan_eviction
from omlx.store.ledger import Ledger
from omlx.store.schema import ReservationRow, block_key, record_key, reservation_key, row_of_block
from omlx.store.sweep import Census, sweep, table_bytes
from omlx.store.volume import Allowance, FreeBytes
from omlx.types import BlockName

#: What the outside world can do to a transaction. diskcache turns a failed BEGIN of any cause into Timeout.
TROUBLE = (OSError, sqlite3.Error, diskcache.Timeout)

_LOCK_TIMEOUT_S = 20.0
_PAGE_BYTES = 4096
#: What the table and its log may grow by between two looks at them: one transaction and 64 pages of log.
_TABLE_MARGIN_BYTES = 512 * 1024
_SETTINGS = {
    "eviction_policy": "none",
    "cull_limit": 0,
    "statistics": 0,
    "tag_index": 1,
    "sqlite_wal_autocheckpoint": 64,
    "sqlite_journal_size_limit": 64 * _PAGE_BYTES,
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
        self._free = free
        self._protected_share = protected_share
        open_directory(directory)
        self._cache = diskcache.Cache(str(directory), timeout=_LOCK_TIMEOUT_S, disk=BlockDisk, **_SETTINGS)
        open_directory(directory)  # the log has come into being with the mode of the table; make sure
        self._identity = _identity(directory)
        self._rows = rows.Rows(directory)
        self._active: set[bytes] = set()
        self._unreported: set[BlockName] = set()
        self._census = Census()
        self.lock = threading.RLock()
        self.ledger = Ledger()
        self.evicted_records = 0

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
        return rows_bytes + self._beside_bytes()

    def reserve(self, block: Block, stems: Sequence[str], disk_bytes: int, changed: set[BlockName]) -> bytes:
        """Make room for a block's files and reserve it; return the reservation's key.

        Adds to `changed` the blocks that other processes or the eviction changed. Raises NoRoomError, or what
        the outside world raises.
        """
        key = reservation_key(secrets.token_bytes(16))
        with self._transaction():
            changed |= self.refresh()
            self._require_parent(block)
            granted = self._make_room(disk_bytes, block, changed)
            if granted:
                self._active.add(key)
                self._cache.set(
                    key, Entry(ReservationRow(socket.gethostname(), os.getpid(), tuple(stems)), disk_bytes)
                )
        if not granted:
            raise NoRoomError(f"no room for {disk_bytes} bytes of block {block.name.hex()}")
        return key

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
            self._make_room(0, None, changed)
            changed |= self._drop_bare([block.name for block in self.ledger.blocks()])
        return changed | self.refresh()

    def free_files(self, disk_bytes: int) -> set[BlockName]:
        """On a full volume: unlink the files of what goes first, then delete its rows, which takes space too.

        Raises NoRoomError when there is not enough to give.
        """
        with self.lock:
            plan = self._plan(disk_bytes, self._allowance.budget_bytes, disk_bytes, None)
            if plan is None:
                raise NoRoomError("the volume is full and the cache has nothing left to give")
            keys = [self._key(key) for key in plan]
            files = {key: name for name, key in self.ledger.filenames().items()}
        for key in keys:
            if key in files:
                self._cache.disk.remove(files[key])
        return self.delete(keys)

    def sweep(self, grace_s: float) -> tuple[Census, set[BlockName]]:
        """Delete void reservations, old leftovers and rows without a file; count what else is there."""
        with self.lock:
            changed = self.refresh()
            void = [
                key for key, held in self.ledger.reservations().items() if self._is_void(key, *held, grace_s)
            ]
            files = self.ledger.filenames()
            reserved = self.ledger.reserved_stems()
        for key in void:
            stems = self.ledger.reservations()[key][0].stems
            self.release(key, stems)
        census = sweep(self._directory, files, reserved, grace_s)
        self._census = census
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

    def _require_parent(self, block: Block) -> None:
        if block.parent is not None and block.parent not in self.ledger:
            raise NoRoomError(f"the parent of block {block.name.hex()} is not on disk")

    def _path(self, block: Block) -> set[BlockName]:
        path, at = {block.name}, block.parent
        while at is not None and (parent := self.ledger.block(at)) is not None:
            path.add(at)
            at = parent.parent
        return path

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
                touches = self.ledger.take_touches()
                self.ledger = Ledger()
                self.ledger.return_touches(touches)
                self._rows.forget_all()
            raise

    def _make_room(self, need: int, newcomer: Block | None, changed: set[BlockName]) -> bool:
        """Evict until `need` more bytes fit; return whether they do. Inside a transaction.

        Evicted bytes count as free at once: a volume with snapshots may give them back later or never, and
        measuring again would empty the cache.
        """
        free = self._free(self._directory)
        while excess := self._allowance.excess(ours := self._ours(), free, need):
            limit = self._allowance.limit(ours, free) - (ours - self._rows_bytes())
            # A little more than asked for, so that a full cache does not plan anew for each block.
            plan = self._plan(excess + limit // 64, limit, need, newcomer)
            plan = plan or self._plan(excess, limit, need, newcomer)
            if not plan:
                return False
            before = self._rows_bytes()
            changed.update(self._evict(plan))
            free += before - self._rows_bytes()
        return True

    def _ours(self) -> int:
        """Return what the directory takes, and what the table may grow by until it is measured again."""
        return self._rows_bytes() + self._beside_bytes() + _TABLE_MARGIN_BYTES

    def _rows_bytes(self) -> int:
        """Return the sum of all rows' sizes; in a transaction it is ahead of the ledger, which follows commits."""
        return int(self._cache.reset("size"))

    def _plan(self, num_bytes: int, limit: int, need: int, newcomer: Block | None) -> tuple[Key, ...] | None:
        """Plan to free that many bytes; all rows together may take `limit`. Without a newcomer nothing is protected."""
        demand = Demand(
            need=Cost(num_bytes),
            budget_bytes=limit,
            newcomer_bytes=need,
            keep=self._path(newcomer) if newcomer else (),
            protected_share=self._protected_share if newcomer else 0.0,
        )
        return plan_eviction(self.ledger.residents(), demand)

    def _evict(self, plan: Iterable[Key]) -> set[BlockName]:
        """Delete planned records, and the rows of blocks that then serve nothing."""
        changed = set()
        for name, kind in plan:
            self._erase(self._key((name, kind)))
            changed.add(name)
            self.evicted_records += 1
        return changed | self._drop_bare(changed)

    def _drop_bare(self, names: Iterable[BlockName]) -> set[BlockName]:
        """Delete the rows of these blocks, and then of their ancestors, that serve nothing; return their names."""
        dropped = set()
        for name in tuple(names):
            at: BlockName | None = name
            while at is not None and self.ledger.is_bare_leaf(at):
                block = self.ledger.block(at)
                self._erase(block_key(at))
                dropped.add(at)
                at = block.parent if block else None
        return dropped

    def _erase(self, key: bytes) -> None:
        """Delete one row and its file, in a transaction, with the ledger following at once."""
        self._cache.delete(key)
        self.ledger.forget(key)
        self._rows.forget(key)

    def _key(self, key: Key) -> bytes:
        """Return the row key that a planner's key stands for; a foreign row's name is its key."""
        name, kind = key
        return bytes(name) if self.ledger.is_foreign(name) else record_key(name, kind)

    def _beside_bytes(self) -> int:
        return table_bytes(self._directory) + self._census.folder_bytes + self._census.other_bytes

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
