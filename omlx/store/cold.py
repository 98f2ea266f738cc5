"""ColdTier: records on disk, under one budget of real bytes for all models and processes.

    write     reserve (table.py) -> each file: temporary name, fsync, rename -> commit; one thread only
    read      the ledger knows file, length and checksum: no table, no lock; another process may have evicted
              the file, which is a miss
    trouble   volume full: give up files of our own and try once more; still full, read-only or gone: writing
              is suspended, `stats().suspended` says why, and it is tried again after `retry_s`

What the outside world may do is listed in trouble.py; how the directory is opened and found again, in
place.py.
"""

import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path

import structlog

from omlx.errors import CacheError, ConfigError
from omlx.prefix.block import Block
from omlx.store import tensorfile
from omlx.store.disk import Entry, filename_of, new_stem, record_path, write_file
from omlx.store.place import Place
from omlx.store.preview import TierView
from omlx.store.record import Record
from omlx.store.schema import record_key
from omlx.store.stats import ColdStats
from omlx.store.table import NoRoomError
from omlx.store.trouble import TROUBLE, Suspension, is_full, words
from omlx.store.volume import Allowance, FreeBytes, free_bytes
from omlx.types import BlockName, Fingerprint, RecordKind

_log = structlog.get_logger(__name__)

_BLOCK_BYTES = 4096

Listener = Callable[[Collection[BlockName]], None]


class ColdTier:
    """Records on disk.

    `write` and `maintain` belong to one thread; everything else may be called from any.
    """

    def __init__(
        self,
        directory: Path,
        budget_bytes: int,
        *,
        max_share: float = 0.9,
        min_free_bytes: int = 1024**3,
        protected_share: float = 0.5,
        grace_s: float = 300.0,
        retry_s: float = 30.0,
        max_age_s: float | None = None,
        free: FreeBytes = free_bytes,
    ) -> None:
        """Open the directory, clean it up, and bring it within its limits.

        Args:
            directory: made with mode 0700, or given that mode.
            budget_bytes: of everything under the directory, as `du` counts.
            max_share: the largest part of (free + own) bytes of the volume that may be used.
            min_free_bytes: left free on the volume, whatever the budget.
            protected_share: the part of the budget that new blocks cannot take from blocks used again.
            grace_s: how old a file without a row must be to be deleted.
            retry_s: how long writing stays suspended after trouble.
            max_age_s: blocks not used for longer go first, and are deleted with each clean-up.
            free: measures the volume.

        Raises ConfigError when the directory cannot be used.
        """
        self.directory = directory.expanduser()
        allowance = Allowance(budget_bytes, max_share, min_free_bytes)
        self._place = Place(self.directory, allowance, free, protected_share, grace_s, max_age_s)
        self._suspension = Suspension(retry_s)
        self._counters: Counter[str] = Counter()
        self._listener: Listener = _ignore
        self._adopted: frozenset[Fingerprint] | None = None
        self._clean_up_at = time.monotonic() + grace_s
        try:
            self._table = self._place.open()
            self._device = self._place.device()
        except TROUBLE as error:
            raise ConfigError(
                f"cache directory {self.directory} cannot be used: {words(error)}",
                hint="name a directory that can be written under [cache] directory",
            ) from error
        self._table.release_thread()

    def listen(self, listener: Listener) -> None:
        """Call `listener` with the names of blocks whose records on disk changed, whoever changed them."""
        self._listener = listener

    def adopt(self, fingerprints: frozenset[Fingerprint] | None) -> None:
        """Know the models that are in use; blocks of others are evicted first. None: not known, all may be."""
        self._adopted = fingerprints
        with self._table.lock:
            self._table.ledger.adopt(fingerprints)

    def orphans(self) -> set[Fingerprint]:
        """Return models with blocks here that are not in use, as far as that is known."""
        with self._table.lock:
            return self._table.ledger.orphans()

    def block(self, name: BlockName) -> Block | None:
        """Return the block of that name when it is on disk."""
        with self._table.lock:
            return self._table.ledger.block(name)

    def blocks(self) -> list[Block]:
        """Return all blocks on disk."""
        with self._table.lock:
            return list(self._table.ledger.blocks())

    def holds(self, name: BlockName) -> bool:
        """Return whether the block is on disk, records or not."""
        return name in self._table.ledger

    def kinds(self, name: BlockName) -> tuple[RecordKind, ...]:
        """Return the kinds of record that are on disk for a block."""
        with self._table.lock:
            return tuple(self._table.ledger.records(name))

    def view(self) -> TierView | None:
        """Return what is held and may be, to preview evictions; None when the disk does not tell."""
        try:
            return self._table.view()
        except OSError:
            return None

    @property
    def suspended(self) -> str | None:
        """Return why nothing is written at the moment; None when it is, or is about to be tried again."""
        return self._suspension.reason

    def refresh(self) -> None:
        """Learn what other processes did. Costs 5 us when nothing changed."""
        table = self._table
        try:
            changed = table.refresh()
        except sqlite3.Error as error:
            if table is self._table:  # not one that was just replaced
                self._suspension.begin(error)
            return
        self._report(changed)

    def read(self, name: BlockName, kind: RecordKind) -> Record:
        """Return a record, verified. Raises CacheError when it is gone or not what its row says."""
        with self._table.lock:
            stored = self._table.ledger.records(name).get(kind)
        if stored is None:
            raise CacheError(f"no {kind} record of block {name.hex()} on disk")
        try:
            record = tensorfile.read(record_path(self.directory, stored.filename), stored.row)
        except FileNotFoundError as error:
            self._count(missing_records=1)
            _log.info("cache record missing", block=name.hex(), kind=kind, file=stored.filename)
            self._discard(name, kind)
            raise CacheError(f"the {kind} record of block {name.hex()} has lost its file") from error
        except CacheError as error:
            self.reject(name, kind, str(error))
            raise
        except OSError as error:
            self._count(missing_records=1)
            _log.warning("cache record unreadable", block=name.hex(), kind=kind, reason=words(error))
            raise CacheError(f"{stored.filename} cannot be read: {words(error)}") from error
        self._count(read_records=1, read_bytes=stored.row.file_bytes)
        return record

    def reject(self, name: BlockName, kind: RecordKind, reason: str) -> None:
        """Count and delete a record that is not what it should be, with one log line."""
        self._count(corrupt_records=1)
        _log.warning("cache record corrupt", block=name.hex(), kind=kind, reason=reason)
        self._discard(name, kind)

    def write(self, block: Block, records: Mapping[RecordKind, Record], window: int) -> bool:
        """Store the records that are not on disk yet; return whether all are now. Makes room first.

        False: refused for lack of room or of the parent, or suspended. Raises CacheError for records that
        cannot be stored at all.
        """
        wanted = [record for kind, record in records.items() if kind not in self.kinds(block.name)]
        if not wanted and self.holds(block.name):
            return True
        if not self._awake():
            return False
        payloads = [tensorfile.pack(record, window) for record in wanted]
        try:
            try:
                self._store(block, payloads)
            except TROUBLE as error:
                if not (is_full(error) and self._give_way(_disk_bytes(payloads))):
                    raise
                self._store(block, payloads)
        except NoRoomError as error:
            self._count(refused_records=len(wanted))
            _log.debug("block refused", reason=str(error))
            return False
        except TROUBLE as error:
            self._suspension.begin(error)
            return False
        self._suspension.end()
        return True

    def touch(self, path: list[BlockName]) -> None:
        """Note a use of a path, tail first. Persisted by `maintain`."""
        with self._table.lock:
            self._table.ledger.touch(path)

    def release_thread(self) -> None:
        """Close what the calling thread, which writes no more, has open."""
        self._table.release_thread()

    def maintain(self) -> None:
        """Persist uses; now and then clean up what crashes left, and give space back that others need."""
        if not self._awake():
            return
        self._table.persist_touches()
        if time.monotonic() < self._clean_up_at:
            return
        self._clean_up_at = time.monotonic() + self._place.grace_s
        try:
            self._report(self._place.clean_up(self._table))
        except TROUBLE as error:
            self._suspension.begin(error)

    def clear(self, fingerprint: Fingerprint | None = None) -> int:
        """Delete all rows and files (of one model); return the number of blocks.

        Raises CacheError on trouble.
        """
        try:
            self._table.refresh()
            with self._table.lock:
                blocks = [b for b in self._table.ledger.blocks() if fingerprint in (None, b.fingerprint)]
                keys = self._table.ledger.keys(fingerprint)
            self._report(self._table.delete(keys))
            if fingerprint is None:
                self._table.sweep(grace_s=0.0)
        except TROUBLE as error:
            raise CacheError(f"{self.directory} cannot be cleared: {words(error)}") from error
        finally:
            self._table.release_thread()
        return len(blocks)

    def stats(self) -> ColdStats:
        """Return sizes and counters."""
        table = self._table
        with table.lock:
            blocks, records = len(list(table.ledger.blocks())), table.ledger.num_records()
            orphan_bytes = table.ledger.orphan_bytes()
            counters = self._counters.copy()
        return ColdStats(
            directory=str(self.directory),
            budget_bytes=self._place.allowance.budget_bytes,
            bytes=table.total_bytes(),
            blocks=blocks,
            records=records,
            evicted_records=table.evicted_records,
            refused_records=counters["refused_records"],
            corrupt_records=counters["corrupt_records"],
            missing_records=counters["missing_records"],
            written_records=counters["written_records"],
            written_bytes=counters["written_bytes"],
            read_records=counters["read_records"],
            read_bytes=counters["read_bytes"],
            suspended=self.suspended,
            orphan_bytes=orphan_bytes,
        )

    def verify(self) -> list[str]:
        """Return every way in which table, files and ledger disagree."""
        return self._table.verify()

    def close(self) -> None:
        """Persist uses and close the table."""
        if self._table.is_attached():
            self._table.persist_touches()
        self._table.close()

    def _store(self, block: Block, payloads: list[tensorfile.Payload]) -> None:
        """Reserve, write and commit. On failure nothing stays behind."""
        stems = [new_stem() for _ in payloads]
        changed: set[BlockName] = set()
        try:
            reservation = self._table.reserve(block, stems, _disk_bytes(payloads), changed)
        finally:
            self._report(changed)
        try:
            entries = [
                Entry(payload.row, write_file(self.directory, stem, payload), filename_of(stem))
                for stem, payload in zip(stems, payloads, strict=True)
            ]
            changed = self._table.commit(block, reservation, entries)
        except BaseException:
            with suppress(*TROUBLE):
                self._table.release(reservation, stems)
            raise
        written = sum(payload.row.file_bytes for payload in payloads)
        self._count(written_records=len(payloads), written_bytes=written)
        self._report(changed)

    def _discard(self, name: BlockName, kind: RecordKind) -> None:
        """Delete one record and its row."""
        try:
            changed = self._table.delete([record_key(name, kind)])
        except TROUBLE as error:
            self._suspension.begin(error)
            return
        finally:
            self._table.release_thread()
        self._report(changed | {name})

    def _give_way(self, disk_bytes: int) -> bool:
        """Delete files of our own on a full volume; return whether that frees enough."""
        try:
            self._report(self._table.free_files(disk_bytes))
        except NoRoomError:
            return False
        return True

    def _awake(self) -> bool:
        """Return whether writing may be tried, after finding the directory again if it had gone."""
        if self.suspended is not None:
            return False
        if self._table.is_attached():
            return True
        try:
            self._place.require(self._device)
            gone = {block.name for block in self.blocks()}
            fresh = self._place.open()
        except TROUBLE as error:
            self._suspension.begin(error)
            return False
        self._table.close()
        self._table = fresh
        self.adopt(self._adopted)
        self._device = self._place.device()
        self._report(gone | {block.name for block in self.blocks()})
        return True

    def _count(self, **more: int) -> None:
        with self._table.lock:
            self._counters.update(more)

    def _report(self, changed: Collection[BlockName]) -> None:
        if changed:
            self._listener(changed)


def _ignore(_names: Collection[BlockName]) -> None:
    """Listen to nothing: nobody has asked yet."""


def _disk_bytes(payloads: Collection[tensorfile.Payload]) -> int:
    """Return what the files will take at most, in whole blocks of the file system."""
    return sum(-(-payload.row.file_bytes // _BLOCK_BYTES) * _BLOCK_BYTES for payload in payloads)
