"""Catalog: the index of blocks, and who holds which of their records.

A block is in the index while a tier or the queue holds it, or while a block in the index continues it:
without the tokens in between, what continues it could not be found. Nothing about whereabouts is kept twice:
tiers and queue are asked.
"""

import threading
from collections.abc import Collection, Iterable, Mapping, Sequence

from omlx.prefix.block import Block
from omlx.prefix.index import BlockIndex
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.writer import Writer
from omlx.types import TIERS, BlockName, RecordKind, Tier


class Catalog:
    """Index and holders under one lock, which is taken before those of queue and table.

    `lock` guards index and hot tier. It is never held while a file is read.
    """

    def __init__(self, hot: HotTier | None, cold: ColdTier | None) -> None:
        """Take in what the cold tier holds; `writer` is set once its thread runs."""
        self.lock = threading.RLock()
        self.index = BlockIndex()
        self.hot = hot
        self.cold = cold
        self.writer: Writer | None = None
        if cold is not None:
            self.sync([block.name for block in cold.blocks()])

    def presence(self, name: BlockName, among: Collection[Tier] = TIERS) -> Mapping[RecordKind, Tier]:
        """Return where each record of a block is, of the tiers `among` these; RAM goes first.

        What is queued for the disk is read from RAM and belongs to the cold tier.
        """
        tiers: dict[RecordKind, Tier] = {}
        if self.cold is not None and "cold" in among:
            tiers.update(dict.fromkeys(self.cold.kinds(name), "cold"))
        if self.writer is not None and "cold" in among:
            tiers.update(dict.fromkeys(self.writer.kinds(name), "hot"))
        if self.hot is not None and "hot" in among:
            tiers.update(dict.fromkeys(self.hot.kinds(name), "hot"))
        return tiers

    def holds(self, name: BlockName) -> bool:
        """Return whether a tier or the queue holds the block."""
        holders = (self.hot, self.writer, self.cold)
        return any(holder.holds(name) for holder in holders if holder is not None)

    def sync(self, names: Iterable[BlockName]) -> None:
        """Bring the index up to date for blocks that came or went somewhere."""
        with self.lock:
            for name in names:
                if self.holds(name):
                    block = self.cold.block(name) if self.cold and name not in self.index else None
                    if block is not None:
                        self.index.insert(block)
                else:
                    self._prune(name)

    def blocks(self) -> list[Block]:
        """Return all blocks, children before parents."""
        with self.lock:
            return sorted(self.index.blocks(), key=lambda block: -block.start)

    def verify(self) -> list[str]:
        """Return every broken invariant, in words."""
        with self.lock:
            problems = self.index.verify()
            for name in (block.name for block in self.index.blocks()):
                if not self.holds(name) and not self.index.has_children(name):
                    problems.append(f"block {name.hex()} is in the index, and nowhere else")
            for name in self._held_names():
                if name not in self.index:
                    problems.append(f"block {name.hex()} is held, and not in the index")
        return problems

    def _held_names(self) -> Sequence[BlockName]:
        hot = [block.name for block, _ in self.hot.blocks()] if self.hot else []
        return [*hot, *(block.name for block in (self.cold.blocks() if self.cold else ()))]

    def _prune(self, name: BlockName) -> None:
        """Take a block out that nobody holds or continues, then its parent, and so on."""
        at: BlockName | None = name
        while at is not None and (block := self.index.get(at)) is not None:
            if self.holds(at) or self.index.has_children(at):
                return
            self.index.remove(at)
            at = block.parent
