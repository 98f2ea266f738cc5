"""Room: evict, inside a transaction of the table, until a newcomer fits.

    limit of the directory = rows (files finished, half-written and reserved) + table and log
                             + folders + files without a row + margin

The margin is what table and log may grow by until they are measured again. Room is made before a byte is
written; the plan itself is pure (eviction.py).
"""

from collections.abc import Collection, Iterable
from dataclasses import replace
from pathlib import Path

import diskcache

from omlx.prefix.block import Block
from omlx.store.eviction import Cost, Demand, Key, plan_eviction, plan_expiry
from omlx.store.ledger import Ledger
from omlx.store.preview import TierView
from omlx.store.rows import Rows
from omlx.store.schema import block_key, record_key
from omlx.store.sweep import Census, table_bytes
from omlx.store.volume import Allowance, FreeBytes
from omlx.types import BlockName

#: One transaction, and the 64 pages of log after which SQLite starts it anew.
_TABLE_MARGIN_BYTES = 512 * 1024


class Room:
    """Measure and evict.

    Every method but `beside_bytes` is called in a transaction, under the table's lock.
    """

    def __init__(
        self,
        directory: Path,
        *,
        cache: diskcache.Cache,
        rows: Rows,
        ledger: Ledger,
        allowance: Allowance,
        free: FreeBytes,
        protected_share: float,
    ) -> None:
        self._directory = directory
        self._cache = cache
        self._rows = rows
        self._ledger = ledger
        self._allowance = allowance
        self._free = free
        self._protected_share = protected_share
        self.census = Census()
        self.evicted_records = 0

    def make(self, need: int, newcomer: Block | None, changed: set[BlockName]) -> bool:
        """Evict until `need` more bytes fit; return whether they do.

        Adds the blocks that lost something to `changed`.

        Without a newcomer nothing is protected. Evicted bytes count as free at once: a volume with snapshots
        may give them back later or never, and measuring again would empty the cache.
        """
        free = self._free(self._directory)
        keep = self._path(newcomer) if newcomer else frozenset()
        while excess := self._allowance.excess(ours := self._ours(), free, need):
            before = self._rows_bytes()
            demand = Demand(
                need=Cost(excess),
                budget_bytes=max(0, self._allowance.limit(ours, free) - (ours - before)),
                newcomer_bytes=need,
                keep=keep,
                protected_share=self._protected_share if newcomer else 0.0,
            )
            plan = self._plan(demand)
            if not plan:
                return False
            changed.update(self.evict(plan, keep))
            free += before - self._rows_bytes()
        return True

    def plan_files(self, disk_bytes: int) -> tuple[Key, ...] | None:
        """Return records whose files take that many bytes together, none protected.

        None when all are not enough.
        """
        demand = Demand(Cost(disk_bytes), self._allowance.budget_bytes, protected_share=0.0)
        return plan_eviction(self._ledger.residents(), demand)

    def evict(self, plan: Iterable[Key], keep: Collection[BlockName]) -> set[BlockName]:
        """Delete planned records, and the rows of blocks that then serve nothing.

        Return the blocks concerned.
        """
        changed = set()
        for name, kind in plan:
            self._erase(self.key((name, kind)))
            changed.add(name)
            self.evicted_records += 1
        return changed | self.drop_bare(changed, keep)

    def expire(self) -> set[BlockName]:
        """Delete what has expired; return the blocks concerned."""
        return self.evict(plan_expiry(self._ledger.residents()), ())

    def drop_bare(self, names: Iterable[BlockName], keep: Collection[BlockName] = ()) -> set[BlockName]:
        """Delete the rows of these blocks, then of their ancestors, that serve nothing.

        Return their names.
        """
        dropped = set()
        for name in tuple(names):
            at: BlockName | None = name
            while at is not None and at not in keep and self._ledger.is_bare_leaf(at):
                block = self._ledger.block(at)
                self._erase(block_key(at))
                dropped.add(at)
                at = block.parent if block else None
        return dropped

    def key(self, key: Key) -> bytes:
        """Return the row key that a planner's key stands for; a foreign row's name is its key."""
        name, kind = key
        return bytes(name) if self._ledger.is_foreign(name) else record_key(name, kind)

    def view(self) -> TierView:
        """Return what is held and may be held, for a preview of evictions. Raises OSError."""
        ours = self._ledger.total_bytes + self.beside_bytes() + _TABLE_MARGIN_BYTES
        limit = self._allowance.limit(ours, self._free(self._directory))
        residents = tuple(self._ledger.residents())
        return TierView("cold", residents, Cost(ours), Cost(limit), self._protected_share)

    def beside_bytes(self) -> int:
        """Return the bytes of everything that has no row: table, log, folders, other files."""
        return table_bytes(self._directory) + self.census.folder_bytes + self.census.other_bytes

    def _plan(self, demand: Demand) -> tuple[Key, ...] | None:
        """Plan for a little more than is asked for: a full cache need not plan anew for each block."""
        residents = self._ledger.residents()
        more = Cost(demand.need.bytes + demand.budget_bytes // 64)
        return plan_eviction(residents, replace(demand, need=more)) or plan_eviction(residents, demand)

    def _ours(self) -> int:
        return self._rows_bytes() + self.beside_bytes() + _TABLE_MARGIN_BYTES

    def _rows_bytes(self) -> int:
        """Return the sum of all rows' sizes.

        The Settings table is ahead of the ledger, which follows commits.
        """
        return int(self._cache.reset("size"))

    def _erase(self, key: bytes) -> None:
        """Delete one row and its file, with the ledger following at once."""
        self._cache.delete(key)
        self._ledger.forget(key)
        self._rows.forget(key)

    def _path(self, block: Block) -> frozenset[BlockName]:
        path, at = {block.name}, block.parent
        while at is not None and (parent := self._ledger.block(at)) is not None:
            path.add(at)
            at = parent.parent
        return frozenset(path)
