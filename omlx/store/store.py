"""BlockStore: two tiers behind one door, for the stages.

    match     index + who holds what -> plan            nothing changes
    load      plan -> records in RAM; what fails is left out and planned again (load.py)
    put       record -> hot tier, and queue -> writer thread -> cold tier

A block that the queue has no room for, or that the disk failed to take, is *owed*: it stays in RAM, as long
as it may, and is queued when the writer has nothing else to do, or at close.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from omlx.prefix.block import Block
from omlx.prefix.index import BlockIndex
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match, plan_match
from omlx.store.catalog import Catalog
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.load import Loaded, LoadedPiece, Loader
from omlx.store.preview import TierView
from omlx.store.record import Record, check_record
from omlx.store.stats import StoreStats
from omlx.store.writer import Outcome, Writer
from omlx.types import TIERS, BlockName, Fingerprint, RecordKind, Tier, Tokens

__all__ = ["BlockStore", "Loaded", "LoadedPiece", "Placement"]

_log = structlog.get_logger(__name__)

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the records of a `put` are now: held in RAM; on disk or queued for it."""

    hot: bool
    cold: bool


class BlockStore:
    """Find, load and keep blocks. Any thread may call it; only `load` waits for the disk."""

    def __init__(
        self,
        hot: HotTier | None,
        cold: ColdTier | None,
        *,
        queue_bytes: int = 256 * 1024**2,
        read_threads: int = 4,
    ) -> None:
        """Take over both tiers and start the writer thread. Raises ValueError when both are None."""
        if hot is None and cold is None:
            raise ValueError("a store needs a hot tier, a cold tier, or both")
        self._hot = hot
        self._cold = cold
        self._catalog = Catalog(hot, cold)
        self._loader = Loader(self._catalog, read_threads)
        self._owed: dict[BlockName, None] = {}
        self._writer: Writer | None = None
        if cold is not None:
            cold.listen(self._catalog.sync)
            self._writer = Writer(cold, queue_bytes, on_done=self._written, on_idle=self._pay)
            self._catalog.writer = self._writer

    def match(
        self,
        fingerprint: Fingerprint,
        tokens: Tokens,
        layout: Layout,
        limit: int | None = None,
        *,
        tiers: Collection[Tier] = TIERS,
    ) -> Match:
        """Return what can be reused of a prompt. Changes nothing, access times included.

        `limit` is the longest usable position; without it, one token less than the prompt. Only records in
        one of the `tiers` count.
        """
        if limit is None:
            limit = max(0, len(tokens) - 1)
        if self._cold is not None:
            self._cold.refresh()
        with self._catalog.lock:
            steps = self._catalog.index.walk(fingerprint, tokens)
            presence = partial(self._catalog.presence, among=tiers)
            return plan_match(fingerprint, steps, layout, presence, limit)

    def adopt(self, fingerprints: frozenset[Fingerprint] | None) -> None:
        """Know the models that are in use: on disk, blocks of others are evicted first. None: not known."""
        if self._cold is not None:
            self._cold.adopt(fingerprints)

    def look(self, question: Callable[[BlockIndex], T]) -> T:
        """Return the answer to a question about the index, which must not change it."""
        with self._catalog.lock:
            return question(self._catalog.index)

    def views(self) -> tuple[TierView, ...]:
        """Return what each tier holds and may hold, for a preview of evictions."""
        with self._catalog.lock:
            hot = self._hot.view() if self._hot else None
        cold = self._cold.view() if self._cold else None
        return tuple(view for view in (hot, cold) if view is not None)

    def load(self, match: Match, layout: Layout) -> Loaded:
        """Bring all records of a match into RAM, verified against the layout, and touch their path.

        A record that is gone or damaged is left out and the match planned again: shorter, never partial (one
        counter, one log line). Never raises for what is wrong with a block.
        """
        return self._loader.load(match, layout)

    def put(
        self,
        block: Block,
        records: Mapping[RecordKind, Record],
        layout: Layout,
        *,
        tiers: Collection[Tier] = TIERS,
    ) -> Placement:
        """Keep records of a block: in RAM now, on disk soon. What is already kept is not written again.

        Only the `tiers` that are named take them. A block whose parent is not in the store is refused (both
        False). Raises CacheError when a record does not have the shapes that the layout gives for its length.
        """
        for record in records.values():
            check_record(record, layout, block.num_tokens)
        window = layout.window_tokens()
        with self._catalog.lock:
            if block.parent is not None and block.parent not in self._catalog.index:
                return Placement(hot=False, cold=False)
            self._catalog.index.insert(block)
            hot = "hot" in tiers and self._keep_hot(block, records, window)
            outcome: Outcome = self._submit(block, records, window) if "cold" in tiers else "refused"
            if (
                hot
                and "cold" in tiers
                and (outcome == "full" or (outcome == "refused" and block.parent in self._owed))
            ):
                self._owed[block.name] = None
            self._catalog.sync([block.name])
        return Placement(hot=hot, cold=outcome == "kept")

    def resubmit(self, path: Iterable[BlockName]) -> int:
        """Queue blocks of a path, head first, that are in RAM only.

        Return how many are on disk or queued now.
        """
        kept = 0
        with self._catalog.lock:
            for name in path:
                outcome = self._submit_held(name)
                if outcome == "full":
                    break
                kept += outcome == "kept"
        return kept

    def pin(self, path: Iterable[BlockName]) -> None:
        """Keep the hot records of these blocks until `unpin`. Pins are counted."""
        if self._hot is not None:
            with self._catalog.lock:
                self._hot.pin(path)

    def unpin(self, path: Iterable[BlockName]) -> None:
        """Undo one `pin`."""
        if self._hot is not None:
            with self._catalog.lock:
                self._hot.unpin(path)

    def limit_hot(self, num_bytes: int) -> None:
        """Let the hot tier hold at most so many bytes, until told otherwise."""
        if self._hot is not None:
            with self._catalog.lock:
                self._catalog.sync([name for name, _ in self._hot.limit(num_bytes)])

    def ram_bytes(self) -> tuple[int, int]:
        """Return the bytes of the hot tier and of the queue of writes."""
        hot = self._hot.nbytes if self._hot else 0
        return hot, self._writer.stats().bytes if self._writer else 0

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything that is owed or queued is on disk or given up; False when the time ran out.

        False at once when writing is suspended: what is owed stays in RAM.
        """
        if self._writer is None:
            return True
        deadline = time.monotonic() + timeout_s
        while self._writer.flush(max(0.0, deadline - time.monotonic())):
            if not self._owed:
                return True
            self._pay()
            if self._owed and not self._writer.stats().records:
                return False
        return False

    def stats(self) -> StoreStats:
        """Return counters and sizes of both tiers and the queue."""
        loader = self._loader
        with self._catalog.lock:
            hot, blocks = self._hot.stats() if self._hot else None, len(self._catalog.index)
        return StoreStats(
            hot=hot,
            cold=self._cold.stats() if self._cold else None,
            queue=self._writer.stats() if self._writer else None,
            index_blocks=blocks,
            loads=loader.loads,
            hot_hit_records=loader.hot_hit_records,
            cold_hit_records=loader.cold_hit_records,
            shortened_loads=loader.shortened_loads,
        )

    def verify(self) -> list[str]:
        """Return every broken invariant, in words; empty when all is well. Reads rows and file sizes."""
        problems = self._cold.verify() if self._cold else []
        with self._catalog.lock:
            problems += self._hot.verify() if self._hot else []
            problems += self._catalog.verify()
        return problems

    def clear(self, fingerprint: Fingerprint | None = None) -> int:
        """Forget all blocks (of one model) in both tiers; return how many.

        Raises CacheError when the disk refuses.
        """
        if self._writer is not None:
            self._writer.forget(fingerprint)
        with self._catalog.lock:
            names = [b.name for b in self._catalog.blocks() if fingerprint in (None, b.fingerprint)]
            if self._hot is not None:
                for name in names:
                    for kind in self._hot.kinds(name):
                        self._hot.drop(name, kind)
                    self._owed.pop(name, None)
        if self._cold is not None:
            self._cold.clear(fingerprint)
        self._catalog.sync(names)
        return len(names)

    def clear_orphans(self) -> int:
        """Forget the blocks of models that are in use no more, see `adopt`; return how many.

        Raises CacheError when the disk refuses.
        """
        return sum(self.clear(identity) for identity in (self._cold.orphans() if self._cold else ()))

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is in RAM only, for at most `timeout_s`; log a count of what was given up; close."""
        deadline = time.monotonic() + timeout_s
        self.flush(timeout_s)
        if self._writer is not None and self._cold is not None:
            given_up = self._writer.close(max(0.0, deadline - time.monotonic()))
            if given_up or self._owed:
                _log.warning("cache records given up at close", queued=given_up, blocks=len(self._owed))
            self._cold.close()
        self._loader.close()

    def _keep_hot(self, block: Block, records: Mapping[RecordKind, Record], window: int) -> bool:
        if self._hot is None:
            return False
        path = self._catalog.index.ancestors(block.parent)
        kept, evicted = self._hot.insert(block, records, window, path)
        self._catalog.sync([name for name, _ in evicted])
        return kept

    def _submit(self, block: Block, records: Mapping[RecordKind, Record], window: int) -> Outcome:
        return self._writer.submit(block, records, window) if self._writer else "refused"

    def _submit_held(self, name: BlockName) -> Outcome:
        """Queue the hot records of a block."""
        block = self._catalog.index.get(name)
        if block is None or self._hot is None:
            return "refused"
        records = {kind: record for kind in self._hot.kinds(name) if (record := self._hot.get(name, kind))}
        return self._submit(block, records, self._hot.window(name)) if records else "refused"

    def _pay(self) -> None:
        """Queue owed blocks, in the order in which they were put, until the queue is full again."""
        with self._catalog.lock:
            for name in list(self._owed):
                if self._submit_held(name) == "full":
                    break
                del self._owed[name]

    def _written(self, name: BlockName) -> None:
        """Let go of a block that was queued, unless it is kept somewhere.

        Owe it when the disk was in trouble.
        """
        with self._catalog.lock:
            if self._hot and self._cold and self._cold.suspended and self._hot.holds(name):
                self._owed[name] = None
            self._catalog.sync([name])
