"""Load: bring the records of a match into RAM, verified.

    plan -> fetch what it names -> all there? done : mark what failed as absent, plan again

Each round either ends or marks at least one more record as failed, so it ends; a failure can only shorten the
match, and what the last plan names is all there.
"""

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from omlx.errors import CacheError
from omlx.prefix.block import Block
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match, Piece, plan_match
from omlx.store.catalog import Catalog
from omlx.store.record import Record, check_record
from omlx.types import BlockName, RecordKind, Tier


@dataclass(frozen=True, slots=True)
class LoadedPiece:
    """The records of one piece of a match: tokens `[block.start, block.start + used)`."""

    block: Block
    used: int
    records: Mapping[RecordKind, Record]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a restore to `match.resume` needs. `match` is what came of the match that was asked for."""

    match: Match
    pieces: tuple[LoadedPiece, ...]

    @property
    def resume(self) -> int:
        """Return the position at which the sequence goes on."""
        return self.match.resume


@dataclass(slots=True)
class _Fetched:
    """Records at hand, with the tier each came from, and those that could not be had."""

    records: dict[BlockName, dict[RecordKind, tuple[Record, Tier]]] = field(default_factory=dict)
    failed: set[tuple[BlockName, RecordKind]] = field(default_factory=set)

    def has(self, name: BlockName, kind: RecordKind) -> bool:
        return kind in self.records.get(name, {})

    def count(self, tier: Tier) -> int:
        return sum(found == tier for kinds in self.records.values() for _, found in kinds.values())


class Loader:
    """Fetch records from both tiers, the cold one with a few threads at once."""

    def __init__(self, catalog: Catalog, num_threads: int) -> None:
        self._catalog = catalog
        self._readers = ThreadPoolExecutor(num_threads, thread_name_prefix="omlx-read")
        self.loads = 0
        self.shortened_loads = 0
        self.hot_hit_records = 0
        self.cold_hit_records = 0

    def close(self) -> None:
        """Wait for reads under way and end the threads."""
        self._readers.shutdown()

    def load(self, match: Match, layout: Layout) -> Loaded:
        """Return the records of the longest restore that can be had now; touch its path."""
        fetched = _Fetched()
        while True:
            plan = self._plan(match, layout, fetched)
            wanted = [
                (piece.block, kind)
                for piece in plan.pieces
                for kind in piece.tiers
                if not fetched.has(piece.block.name, kind)
            ]
            if not wanted:
                break
            self._fetch(wanted, layout, fetched)
        self._keep(plan, fetched, layout.window_tokens())
        with self._catalog.lock:
            self.loads += 1
            self.shortened_loads += plan.resume < match.resume
            self.hot_hit_records += fetched.count("hot")
            self.cold_hit_records += fetched.count("cold")
        return Loaded(plan, tuple(_loaded(piece, fetched) for piece in plan.pieces))

    def _plan(self, match: Match, layout: Layout, fetched: _Fetched) -> Match:
        def presence(name: BlockName) -> Mapping[RecordKind, Tier]:
            tiers = self._catalog.presence(name)
            there = {kind: tier for kind, tier in tiers.items() if (name, kind) not in fetched.failed}
            there.update({kind: tier for kind, (_, tier) in fetched.records.get(name, {}).items()})
            return there

        with self._catalog.lock:
            # not beyond what was matched, whatever else is there: the match may have been for one tier
            return plan_match(match.fingerprint, match.steps, layout, presence, match.resume)

    def _fetch(self, wanted: list[tuple[Block, RecordKind]], layout: Layout, fetched: _Fetched) -> None:
        """Add what can be had to `fetched`, and what cannot to its failures."""
        with self._catalog.lock:
            held = [self._in_ram(block.name, kind) for block, kind in wanted]
        absent = [want for want, record in zip(wanted, held, strict=True) if record is None]
        read = iter(self._readers.map(lambda want: self._read(want[0], want[1], layout), absent))
        for (block, kind), record in zip(wanted, held, strict=True):
            tier: Tier = "cold" if record is None else "hot"
            found = next(read) if record is None else record
            if found is None:
                fetched.failed.add((block.name, kind))
            else:
                fetched.records.setdefault(block.name, {})[kind] = (found, tier)

    def _in_ram(self, name: BlockName, kind: RecordKind) -> Record | None:
        for holder in (self._catalog.hot, self._catalog.writer):
            record = None if holder is None else holder.get(name, kind)
            if record is not None:
                return record
        return None

    def _read(self, block: Block, kind: RecordKind, layout: Layout) -> Record | None:
        """Return a record from disk that has the layout's shapes, or None.

        The cold tier counts and logs why.
        """
        cold = self._catalog.cold
        if cold is None:
            return None
        try:
            record = cold.read(block.name, kind)
        except CacheError:
            return None
        try:
            check_record(record, layout, block.num_tokens)
        except CacheError as error:
            cold.reject(block.name, kind, str(error))
            return None
        return record

    def _keep(self, plan: Match, fetched: _Fetched, window: int) -> None:
        """Keep what came from disk in RAM, as far as there is room, and touch the path, tail first."""
        catalog = self._catalog
        with catalog.lock:
            path = list(catalog.index.ancestors(plan.parent(plan.resume)))
            gone: list[BlockName] = []
            if catalog.hot is not None:
                for piece in plan.pieces:
                    records = {
                        kind: fetched.records[piece.block.name][kind][0]
                        for kind, tier in piece.tiers.items()
                        if tier == "cold"
                    }
                    _, evicted = catalog.hot.insert(piece.block, records, window, path)
                    gone += [name for name, _ in evicted]
                catalog.hot.touch(path)
            catalog.sync(gone)
        if catalog.cold is not None and path:
            catalog.cold.touch(path)


def _loaded(piece: Piece, fetched: _Fetched) -> LoadedPiece:
    records = fetched.records[piece.block.name]
    return LoadedPiece(piece.block, piece.used, {kind: records[kind][0] for kind in piece.tiers})
