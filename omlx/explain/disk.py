"""DiskStore: the cold tier of a server that may or may not run, read once and never changed."""

from collections.abc import Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import TypeVar

from omlx.errors import CacheError
from omlx.prefix.block import Block
from omlx.prefix.index import BlockIndex
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match, plan_match
from omlx.store.eviction import Cost
from omlx.store.ledger import Ledger
from omlx.store.preview import TierView
from omlx.store.record import Record
from omlx.store.rows import Changes, raw_rows
from omlx.store.store import Loaded, Placement
from omlx.store.sweep import table_bytes
from omlx.store.volume import Allowance, free_bytes
from omlx.types import TIERS, BlockName, Fingerprint, RecordKind, Tier, Tokens

T = TypeVar("T")

#: The part of the budget that new blocks cannot take, as the cold tier has it.
_PROTECTED_SHARE = 0.5


class DiskStore:
    """Meets `omlx.pipeline.stage.Store`: finds what a server that starts now would find, and keeps nothing.

    Raises CacheError when the table cannot be read.
    """

    def __init__(
        self, directory: Path, budget_bytes: int, max_share: float, max_age_s: float | None = None
    ) -> None:
        self._directory = directory.expanduser()
        self._allowance = Allowance(budget_bytes, max_share, 0)
        self._ledger = Ledger(max_age_s=max_age_s)
        self._ledger.apply(Changes(tuple(raw_rows(self._directory))))
        self._index = BlockIndex()
        for block in sorted(self._ledger.blocks(), key=lambda block: block.start):
            self._index.insert(block)

    def match(
        self,
        fingerprint: Fingerprint,
        tokens: Tokens,
        layout: Layout,
        limit: int | None = None,
        *,
        tiers: Collection[Tier] = TIERS,
    ) -> Match:
        """Return what can be reused of a prompt; nothing without the cold tier."""
        if limit is None:
            limit = max(0, len(tokens) - 1)
        steps = self._index.walk(fingerprint, tokens) if "cold" in tiers else []
        return plan_match(fingerprint, steps, layout, self._presence, limit)

    def look(self, question: Callable[[BlockIndex], T]) -> T:
        """Return the answer to a question about the index."""
        return question(self._index)

    def views(self) -> tuple[TierView, ...]:
        """Return what the tier holds and may hold."""
        if not self._directory.is_dir():
            return ()
        held = self._ledger.total_bytes + table_bytes(self._directory)
        limit = self._allowance.limit(held, free_bytes(self._directory))
        residents = tuple(self._ledger.residents())
        return (TierView("cold", residents, Cost(held), Cost(limit), _PROTECTED_SHARE),)

    def load(self, match: Match, layout: Layout) -> Loaded:  # noqa: ARG002 - the seam's signature
        """Raise CacheError: records are not read here."""
        raise CacheError("a dry run reads no records")

    def put(
        self,
        block: Block,  # noqa: ARG002 - the seam's signature
        records: Mapping[RecordKind, Record],  # noqa: ARG002
        layout: Layout,  # noqa: ARG002
        *,
        tiers: Collection[Tier] = TIERS,  # noqa: ARG002
    ) -> Placement:
        """Keep nothing."""
        return Placement(hot=False, cold=False)

    def resubmit(self, path: Iterable[BlockName]) -> int:  # noqa: ARG002 - the seam's signature
        """Queue nothing."""
        return 0

    def _presence(self, name: BlockName) -> Mapping[RecordKind, Tier]:
        return dict.fromkeys(self._ledger.records(name), "cold")
