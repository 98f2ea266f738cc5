"""Writer: the one thread that writes to the cold tier, and the queue before it.

    put -> [ job | job | job ] -> thread -> cold.write        bytes of all jobs <= limit (or one single job)

A job is taken only when its parent is on disk or queued before it, so a chain on disk has no hole: when the
queue is full, a chain loses its tail. Queued records are found by lookups until they are on disk.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

import structlog

from omlx.prefix.block import Block
from omlx.store.cold import ColdTier
from omlx.store.record import Record
from omlx.store.stats import QueueStats
from omlx.types import BlockName, Fingerprint, RecordKind

_log = structlog.get_logger(__name__)

_MAINTAIN_EVERY_S = 5.0
_JOB_TIMEOUT_S = 30.0

#: kept: on disk or queued. full: try again later. refused: cannot be written.
Outcome: TypeAlias = Literal["kept", "full", "refused"]


@dataclass(frozen=True, slots=True, eq=False)
class _Job:
    block: Block
    records: Mapping[RecordKind, Record]
    window: int
    nbytes: int


class Writer:
    """Queue records for the cold tier. Any thread may call it."""

    def __init__(
        self,
        cold: ColdTier,
        limit_bytes: int,
        *,
        on_done: Callable[[BlockName], None],
        on_idle: Callable[[], None],
    ) -> None:
        """Start the thread.

        It calls `on_done` after each job, whatever came of it, and `on_idle` with no job left.
        """
        self._cold = cold
        self._limit_bytes = limit_bytes
        self._on_done = on_done
        self._on_idle = on_idle
        self._jobs: deque[_Job] = deque()
        self._pending: dict[BlockName, dict[RecordKind, Record]] = {}
        self._bytes = 0
        self._rejected_records = 0
        self._abandoned_records = 0
        self._closing = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._run, name="omlx-writer", daemon=True)
        self._thread.start()

    def holds(self, name: BlockName) -> bool:
        """Return whether the block is queued."""
        return name in self._pending

    def kinds(self, name: BlockName) -> tuple[RecordKind, ...]:
        """Return the kinds of record that are queued for a block."""
        with self._changed:
            return tuple(self._pending.get(name, ()))

    def get(self, name: BlockName, kind: RecordKind) -> Record | None:
        """Return a queued record, or None."""
        with self._changed:
            return self._pending.get(name, {}).get(kind)

    def submit(self, block: Block, records: Mapping[RecordKind, Record], window: int) -> Outcome:
        """Queue the records that are neither on disk nor queued."""
        on_disk = self._cold.kinds(block.name)
        with self._changed:
            known = (*on_disk, *self._pending.get(block.name, ()))
            fresh = {kind: record for kind, record in records.items() if kind not in known}
            if not fresh and (block.name in self._pending or self._cold.holds(block.name)):
                return "kept"
            if self._closing or not self._can_write(block, fresh):
                self._rejected_records += len(fresh)
                return "refused"
            nbytes = sum(record.nbytes for record in fresh.values())
            if (self._jobs and self._bytes + nbytes > self._limit_bytes) or self._cold.suspended:
                self._rejected_records += len(fresh)
                return "full"
            self._jobs.append(_Job(block, fresh, window, nbytes))
            self._pending.setdefault(block.name, {}).update(fresh)
            self._bytes += nbytes
            self._changed.notify_all()
            return "kept"

    def forget(self, fingerprint: Fingerprint | None) -> None:
        """Give up queued jobs of one model, or all; the one being written is finished first."""
        with self._changed:
            current = self._jobs[0] if self._jobs else None
            self._give_up(lambda job: fingerprint in (None, job.block.fingerprint))
            self._changed.wait_for(lambda: current not in self._jobs, timeout=_JOB_TIMEOUT_S)

    def flush(self, timeout_s: float) -> bool:
        """Wait until the queue is empty; False when the time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._jobs, timeout=timeout_s)

    def close(self, timeout_s: float) -> int:
        """Write what is queued for at most `timeout_s`, then stop the thread.

        Return how many records were given up.
        """
        self.flush(timeout_s)
        with self._changed:
            self._closing = True
            given_up = self._give_up(lambda _job: True)
            self._changed.notify_all()
        self._thread.join()
        return given_up

    def stats(self) -> QueueStats:
        """Return sizes and counters."""
        with self._changed:
            return QueueStats(
                limit_bytes=self._limit_bytes,
                bytes=self._bytes,
                records=sum(len(job.records) for job in self._jobs),
                rejected_records=self._rejected_records,
                abandoned_records=self._abandoned_records,
            )

    def _give_up(self, choose: Callable[["_Job"], bool]) -> int:
        """Take waiting jobs out, not the one being written; return the number of their records.

        Under the lock.
        """
        chosen = [job for job in list(self._jobs)[1:] if choose(job)]
        for job in chosen:
            self._jobs.remove(job)
            self._settle(job)
        return sum(len(job.records) for job in chosen)

    def _can_write(self, block: Block, records: Mapping[RecordKind, Record]) -> bool:
        if any(record.buffers is None for record in records.values()):
            return False
        parent = block.parent
        return parent is None or parent in self._pending or self._cold.holds(parent)

    def _settle(self, job: _Job, *, written: bool = False) -> None:
        """Take a job out of the books. Under the lock."""
        self._bytes -= job.nbytes
        pending = self._pending.get(job.block.name, {})
        for kind in job.records:
            pending.pop(kind, None)
        if not pending:
            self._pending.pop(job.block.name, None)
        if not written:
            self._abandoned_records += len(job.records)

    def _run(self) -> None:
        maintain_at = time.monotonic() + _MAINTAIN_EVERY_S
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._jobs or self._closing, timeout=_MAINTAIN_EVERY_S)
                job = self._jobs[0] if self._jobs else None
                if job is None and self._closing:
                    break
            # The boundary of this thread: whatever happens to one job, the next one is tried.
            try:
                if job is not None:
                    self._write(job)
                if time.monotonic() >= maintain_at:
                    maintain_at = time.monotonic() + _MAINTAIN_EVERY_S
                    self._cold.maintain()
                if not self._jobs:
                    self._on_idle()
            except Exception:  # noqa: BLE001 - the boundary named above
                _log.exception("cache writer failed")
        self._cold.release_thread()

    def _write(self, job: _Job) -> None:
        written = False
        try:
            written = self._cold.write(job.block, job.records, job.window)
        finally:
            with self._changed:
                self._jobs.popleft()
                self._settle(job, written=written)
            self._on_done(job.block.name)
            with self._changed:
                self._changed.notify_all()
