"""Ledger: what the cold tier's table holds, in memory, so that a lookup reads neither table nor files."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from omlx.errors import CacheError
from omlx.prefix.block import Block
from omlx.store.eviction import Cost, Resident
from omlx.store.rows import Changes, RawRow
from omlx.store.schema import (
    BlockRow,
    RecordRow,
    ReservationRow,
    Row,
    block_key,
    block_of_row,
    decode_row,
    is_reservation,
    record_key,
    split_key,
)
from omlx.types import BlockName, Fingerprint, RecordKind


@dataclass(frozen=True, slots=True)
class StoredRecord:
    """A record's row, its file, and the bytes that this takes on the disk."""

    row: RecordRow
    filename: str
    disk_bytes: int


@dataclass(slots=True)
class _Use:
    """When a block was last used (seconds since the epoch), and how often since it was written."""

    accessed: float
    uses: int


@dataclass(frozen=True, slots=True)
class _Reservation:
    row: ReservationRow
    made: float


@dataclass(slots=True)
class Ledger:
    """Follow the table's changes. Not thread-safe.

    Rows of other versions, and rows that cannot be read, are *foreign*: never found, but they take space and
    can be evicted. The same goes for records without their block's row.
    """

    _blocks: dict[BlockName, Block] = field(default_factory=dict)
    _used: dict[BlockName, _Use] = field(default_factory=dict)
    _records: dict[BlockName, dict[RecordKind, StoredRecord]] = field(default_factory=dict)
    _children: dict[BlockName, set[BlockName]] = field(default_factory=dict)
    _foreign: dict[bytes, float] = field(default_factory=dict)
    _reservations: dict[bytes, _Reservation] = field(default_factory=dict)
    _sizes: dict[bytes, int] = field(default_factory=dict)
    _files: dict[bytes, str] = field(default_factory=dict)
    _touched: dict[BlockName, tuple[float, int]] = field(default_factory=dict)
    _adopted: frozenset[Fingerprint] | None = None
    _opened: float = field(default_factory=time.time)
    max_age_s: float | None = None
    total_bytes: int = 0

    def __contains__(self, name: BlockName) -> bool:
        return name in self._blocks

    def block(self, name: BlockName) -> Block | None:
        """Return the block, or None when it has no row."""
        return self._blocks.get(name)

    def blocks(self) -> Iterator[Block]:
        """Yield all blocks."""
        return iter(self._blocks.values())

    def records(self, name: BlockName) -> Mapping[RecordKind, StoredRecord]:
        """Return the records on disk of a block; none when it has no row of its own."""
        return self._records.get(name, {}) if name in self._blocks else {}

    def num_records(self) -> int:
        """Return how many records can be found."""
        return sum(len(self.records(name)) for name in self._blocks)

    def is_bare_leaf(self, name: BlockName) -> bool:
        """Return whether a block's row serves nothing: no record, and no block that continues it."""
        return name in self._blocks and not self._records.get(name) and not self._children.get(name)

    def filenames(self) -> Mapping[str, bytes]:
        """Return the files that rows vouch for, each with its key."""
        return {filename: key for key, filename in self._files.items()}

    def reserved_stems(self) -> set[str]:
        """Return the stems whose files are about to be written."""
        return {stem for reservation in self._reservations.values() for stem in reservation.row.stems}

    def reservations(self) -> Mapping[bytes, tuple[ReservationRow, float]]:
        """Return reservations by key, each with the time it was made."""
        return {key: (held.row, held.made) for key, held in self._reservations.items()}

    def is_foreign(self, key: bytes) -> bool:
        """Return whether a row with that key is here that cannot be read."""
        return key in self._foreign

    def keys(self, fingerprint: Fingerprint | None) -> list[bytes]:
        """Return the keys of all rows of one model, children before parents.

        Of all rows when None is given.
        """
        if fingerprint is None:
            return list(self._sizes)
        blocks = [block for block in self._blocks.values() if block.fingerprint == fingerprint]
        return [
            key
            for block in sorted(blocks, key=lambda block: -block.start)
            for key in (
                *(record_key(block.name, kind) for kind in self.records(block.name)),
                block_key(block.name),
            )
        ]

    def touch(self, path: list[BlockName]) -> None:
        """Note one use of a path, given tail first: the head becomes the most recently used."""
        now = time.time()
        for index, name in enumerate(path):
            use = self._used.get(name)
            if use is None:
                continue
            use.accessed = max(use.accessed, now + index * 1e-6)
            use.uses += 1
            self._touched[name] = (use.accessed, self._touched.get(name, (0.0, 0))[1] + 1)

    def take_touches(self) -> dict[BlockName, tuple[float, int]]:
        """Return the uses noted since the last call: time of the last, and their number."""
        taken, self._touched = self._touched, {}
        return taken

    def return_touches(self, touches: Mapping[BlockName, tuple[float, int]]) -> None:
        """Note uses again that could not be persisted."""
        for name, (accessed, uses) in touches.items():
            later = self._touched.get(name, (0.0, 0))
            self._touched[name] = (max(accessed, later[0]), uses + later[1])

    def apply(self, changes: Changes) -> set[BlockName]:
        """Take over changes of the table; return the names of blocks that came, went, or changed records."""
        names: set[BlockName] = set()
        for key in changes.removed:
            names.update(self.forget(key))
        for raw in changes.added:
            names.update(self.forget(raw.key))
            names.update(self._add(raw))
        return names

    def forget(self, key: bytes) -> set[BlockName]:
        """Take a row out; return the block it belonged to."""
        if key not in self._sizes:
            return set()
        self.total_bytes -= self._sizes.pop(key)
        self._files.pop(key, None)
        if self._foreign.pop(key, None) is not None or self._reservations.pop(key, None) is not None:
            return set()
        name, kind = split_key(key)
        if kind is None:
            self._drop_block(name)
        else:
            self._records[name].pop(kind, None)
            if not self._records[name]:
                del self._records[name]
        return {name}

    def forget_all(self) -> None:
        """Take all rows out, keeping the uses that are not persisted."""
        touches = dict(self._touched)
        for key in tuple(self._sizes):
            self.forget(key)
        self._touched = touches

    def adopt(self, fingerprints: frozenset[Fingerprint] | None) -> None:
        """Know the models that are in use; None when that is not known, and no block is an orphan."""
        self._adopted = fingerprints

    def orphans(self) -> set[Fingerprint]:
        """Return models that are not adopted and that no process has used since the table was opened."""
        if self._adopted is None:
            return set()
        strange = {b.fingerprint for b in self._blocks.values()} - self._adopted
        used = {
            b.fingerprint
            for b in self._blocks.values()
            if b.fingerprint in strange and self._used[b.name].accessed >= self._opened
        }
        return strange - used

    def orphan_bytes(self) -> int:
        """Return the bytes on disk of the orphans' records."""
        orphans = self.orphans()
        return sum(
            record.disk_bytes
            for block in self._blocks.values()
            if block.fingerprint in orphans
            for record in self.records(block.name).values()
        )

    def residents(self) -> list[Resident]:
        """Return everything evictable in the planner's terms; foreign rows stand for themselves."""
        orphans, now = self.orphans(), time.time()
        found = [
            self._resident(block, now, orphan=block.fingerprint in orphans) for block in self._blocks.values()
        ]
        strays = [name for name in self._records if name not in self._blocks]
        for name in strays:
            costs = {kind: Cost(record.disk_bytes) for kind, record in self._records[name].items()}
            found.append(_rootless(name, 0.0, costs))
        for key, accessed in self._foreign.items():
            found.append(_rootless(BlockName(key), accessed, {"kv": Cost(self._sizes[key])}))
        return found

    def verify(self, directory: Path) -> list[str]:
        """Return every broken invariant, in words: each file is there and has the size of its row."""
        problems = []
        for name, records in self._records.items():
            for kind, record in records.items():
                try:
                    length = (directory / record.filename).stat().st_size
                except FileNotFoundError:
                    length = -1
                if length != record.row.file_bytes:
                    problems.append(
                        f"the {kind} file of {name.hex()} has {length} bytes, not {record.row.file_bytes}"
                    )
            if name not in self._blocks:
                problems.append(f"records of {name.hex()} have no block row")
        problems += [
            f"block {block.name.hex()} continues {block.parent.hex()}, which has no row"
            for block in self._blocks.values()
            if block.parent is not None and block.parent not in self._blocks
        ]
        return problems

    def _resident(self, block: Block, now: float, *, orphan: bool) -> Resident:
        records = self._records.get(block.name, {})
        use = self._used[block.name]
        return Resident(
            name=block.name,
            parent=block.parent,
            start=block.start,
            end=block.end,
            accessed=use.accessed,
            uses=use.uses,
            pinned=False,
            window=records["window"].row.window if "window" in records else 0,
            records={kind: Cost(record.disk_bytes) for kind, record in records.items()},
            orphan=orphan,
            expired=self.max_age_s is not None and use.accessed < now - self.max_age_s,
        )

    def _add(self, raw: RawRow) -> set[BlockName]:
        self._sizes[raw.key] = raw.size
        self.total_bytes += raw.size
        if raw.filename is not None:
            self._files[raw.key] = raw.filename
        try:
            return self._add_row(raw, decode_row(raw.value))
        except CacheError:
            self._foreign[raw.key] = raw.access_time
            return set()

    def _add_row(self, raw: RawRow, row: Row) -> set[BlockName]:
        """Take in a row that could be decoded. Raises CacheError when it does not fit its key."""
        if is_reservation(raw.key) and isinstance(row, ReservationRow):
            self._reservations[raw.key] = _Reservation(row, raw.store_time)
            return set()
        name, kind = split_key(raw.key)
        if kind is None and isinstance(row, BlockRow):
            self._add_block(block_of_row(name, row), _Use(raw.access_time, raw.access_count))
        elif isinstance(row, RecordRow) and row.kind == kind and raw.filename is not None:
            self._records.setdefault(name, {})[kind] = StoredRecord(row, raw.filename, raw.size)
        else:
            raise CacheError(f"row {raw.key.hex()} does not hold what its key says")
        return {name}

    def _add_block(self, block: Block, use: _Use) -> None:
        accessed, uses = self._touched.get(block.name, (0.0, 0))
        self._blocks[block.name] = block
        self._used[block.name] = _Use(max(use.accessed, accessed), use.uses + uses)
        if block.parent is not None:
            self._children.setdefault(block.parent, set()).add(block.name)

    def _drop_block(self, name: BlockName) -> None:
        block = self._blocks.pop(name)
        del self._used[name]
        self._touched.pop(name, None)
        if block.parent is not None:
            siblings = self._children[block.parent]
            siblings.discard(name)
            if not siblings:
                del self._children[block.parent]


def _rootless(name: BlockName, accessed: float, costs: dict[RecordKind, Cost]) -> Resident:
    return Resident(name, None, 0, 0, accessed, 0, pinned=False, window=0, records=costs)
