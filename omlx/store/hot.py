"""HotTier: records ready in RAM, under a budget of bytes and of arrays.

A hit hands out the record itself; it lives on in its user's hands when it is evicted here. The budget counts
what the tier holds, at all times: room is made before a record is taken in, and what does not fit is refused.
Which records go is planned in `eviction.py`. Not thread-safe: the store's lock guards it.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from omlx.prefix.block import Block
from omlx.store.eviction import Cost, Demand, Key, Resident, plan_eviction
from omlx.store.preview import TierView
from omlx.store.record import Record
from omlx.store.stats import HotStats
from omlx.types import BlockName, RecordKind


@dataclass(slots=True)
class _Held:
    """A block with at least one record here. `accessed` is a count of accesses, not a time."""

    block: Block
    window: int
    accessed: int
    uses: int = 0
    records: dict[RecordKind, Record] = field(default_factory=dict)


class HotTier:
    """Hold records by block and kind."""

    def __init__(self, budget_bytes: int, max_arrays: int = 16384, *, protected_share: float = 0.6) -> None:
        """`protected_share`: the part of the budget that new blocks cannot take from blocks used again.

        Why more than half: a conversation of twelve blocks keeps all but its last in a tier of twenty, whatever side
        requests pass by between its turns.
        """
        self._budget_bytes = self._limit_bytes = budget_bytes
        self._max_arrays = max_arrays
        self._protected_share = protected_share
        self._held: dict[BlockName, _Held] = {}
        self._pins: dict[BlockName, int] = {}
        self._size = Cost(0)
        self._clock = 0
        self._evicted_records = 0
        self._refused_records = 0

    @property
    def nbytes(self) -> int:
        """Return the bytes that are held."""
        return self._size.bytes

    def holds(self, name: BlockName) -> bool:
        """Return whether any record of the block is here."""
        return name in self._held

    def kinds(self, name: BlockName) -> tuple[RecordKind, ...]:
        """Return the kinds of record that are here for a block."""
        held = self._held.get(name)
        return tuple(held.records) if held else ()

    def get(self, name: BlockName, kind: RecordKind) -> Record | None:
        """Return a record, or None. Not a use: see `touch`."""
        held = self._held.get(name)
        return held.records.get(kind) if held else None

    def window(self, name: BlockName) -> int:
        """Return the window that the block's model looks back on; 0 when it is not here."""
        held = self._held.get(name)
        return held.window if held else 0

    def blocks(self) -> list[tuple[Block, int]]:
        """Return all blocks with their window, roots first."""
        return sorted(((h.block, h.window) for h in self._held.values()), key=lambda pair: pair[0].start)

    def insert(
        self,
        block: Block,
        records: Mapping[RecordKind, Record],
        window: int,
        path: Iterable[BlockName],
    ) -> tuple[bool, tuple[Key, ...]]:
        """Take in the records that are not here yet: all or none.

        Return whether they are here, and what went.

        `path` are the block's ancestors, here or not; none of them goes for it.
        """
        fresh = {kind: record for kind, record in records.items() if self.get(block.name, kind) is None}
        if not fresh:
            return bool(records), ()
        need = sum((_cost(record) for record in fresh.values()), Cost(0))
        evicted = self._make_room(need, {block.name, *path})
        if evicted is None:
            self._refused_records += len(fresh)
            return False, ()
        self._clock += 1
        held = self._held.setdefault(block.name, _Held(block, window, self._clock))
        held.records.update(fresh)
        self._size += need
        return True, evicted

    def touch(self, path: Iterable[BlockName]) -> None:
        """Note one use of a path, given tail first: its head becomes the most recently used."""
        for name in path:
            self._clock += 1
            if held := self._held.get(name):
                held.accessed = self._clock
                held.uses += 1

    def limit(self, num_bytes: int) -> tuple[Key, ...]:
        """Hold at most so many bytes from now on, and never more than the budget; return what went for it.

        Used or not, records go; only those that are pinned stay.
        """
        self._limit_bytes = max(0, min(num_bytes, self._budget_bytes))
        loose = sum(held.cost.bytes for held in self._residents() if not held.pinned)
        over = min(self._size.bytes - self._limit_bytes, loose)
        if over <= 0:
            return ()
        demand = Demand(Cost(over, 0), self._limit_bytes, protected_share=0.0)
        return self._evict(plan_eviction(list(self._residents()), demand))

    def pin(self, names: Iterable[BlockName]) -> None:
        """Keep these blocks, whether here now or later, until as many `unpin`."""
        for name in names:
            self._pins[name] = self._pins.get(name, 0) + 1

    def unpin(self, names: Iterable[BlockName]) -> None:
        """Undo one `pin` of each."""
        for name in names:
            count = self._pins.get(name, 0) - 1
            if count > 0:
                self._pins[name] = count
            else:
                self._pins.pop(name, None)

    def drop(self, name: BlockName, kind: RecordKind) -> None:
        """Forget a record, if it is here."""
        held = self._held.get(name)
        if held is None or kind not in held.records:
            return
        record = held.records.pop(kind)
        self._size = Cost(self._size.bytes - record.nbytes, self._size.arrays - record.num_arrays)
        if not held.records:
            del self._held[name]

    def stats(self) -> HotStats:
        """Return sizes and counters."""
        return HotStats(
            budget_bytes=self._budget_bytes,
            bytes=self._size.bytes,
            arrays=self._size.arrays,
            blocks=len(self._held),
            records=sum(len(held.records) for held in self._held.values()),
            pinned_blocks=len(self._pins),
            evicted_records=self._evicted_records,
            refused_records=self._refused_records,
        )

    def view(self) -> TierView:
        """Return what is held and may be held, for a preview of evictions."""
        budget = Cost(self._budget_bytes, self._max_arrays)
        return TierView("hot", tuple(self._residents()), self._size, budget, self._protected_share)

    def verify(self) -> list[str]:
        """Return every broken invariant, in words."""
        held = sum((resident.cost for resident in self._residents()), Cost(0))
        problems = []
        if held != self._size:
            problems.append(f"hot tier holds {held} and counts {self._size}")
        if self._size.bytes > self._budget_bytes or self._size.arrays > self._max_arrays:
            problems.append(f"hot tier holds {self._size}, over {self._budget_bytes} bytes")
        if any(not held.records for held in self._held.values()):
            problems.append("hot tier keeps a block without records")
        return problems

    def _make_room(self, need: Cost, keep: Collection[BlockName]) -> tuple[Key, ...] | None:
        """Evict until `need` fits; return what went, or None when it cannot fit."""
        over = Cost(
            max(0, self._size.bytes + need.bytes - self._limit_bytes),
            max(0, self._size.arrays + need.arrays - self._max_arrays),
        )
        if not (over.bytes or over.arrays):
            return ()
        if need.bytes > self._limit_bytes or need.arrays > self._max_arrays:
            return None
        demand = Demand(over, self._limit_bytes, need.bytes, keep, self._protected_share)
        plan = plan_eviction(list(self._residents()), demand)
        return None if plan is None else self._evict(plan)

    def _evict(self, plan: tuple[Key, ...] | None) -> tuple[Key, ...]:
        for name, kind in plan or ():
            self.drop(name, kind)
        self._evicted_records += len(plan or ())
        return plan or ()

    def _residents(self) -> Iterator[Resident]:
        for name, held in self._held.items():
            yield Resident(
                name=name,
                parent=held.block.parent,
                start=held.block.start,
                end=held.block.end,
                accessed=held.accessed,
                uses=held.uses,
                pinned=name in self._pins,
                window=held.window,
                records={kind: _cost(record) for kind, record in held.records.items()},
            )


def _cost(record: Record) -> Cost:
    return Cost(record.nbytes, record.num_arrays)
