"""A stage: a config, a declaration, one method.

    class Lookup(Stage, frozen=True, tag="lookup"):
        '''Find the longest prefix of the prompt that is stored.'''

        requires = ("tokens",)
        assigns = ("match",)
        lane = "host"

        min_reuse_tokens: PositiveInt = 32

        def run(self, state, services): ...

The class *is* the config: a frozen msgspec Struct whose fields are the keys a pipeline file may set. The
declaration says which fields of the state it must read (`requires`), may read (`uses`) and assigns (`assigns`), and
on which lane it runs:

    host     a worker thread: templates, tokenizing, lookup
    io       a worker thread for disk
    device   the one thread that owns MLX; `run` is a generator of work (see `work.py`)

A device stage with `during = ("prefill", "decode")` is also run after each step of those stages, so it sees the
sequence grow; `run` is called afresh each time and must pick up where the last call ended.
"""

from collections.abc import Collection, Generator, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal, Protocol, TypeAlias

import msgspec

from omlx.pipeline.cost import CostBook
from omlx.pipeline.inflight import InFlight
from omlx.pipeline.state import State
from omlx.pipeline.work import Work
from omlx.prefix.block import Block
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match
from omlx.store.record import Record
from omlx.store.store import Loaded, Placement
from omlx.text.talks import TalkMemo
from omlx.types import TIERS, BlockName, Fingerprint, RecordKind, Tier, Tokens

Lane: TypeAlias = Literal["host", "io", "device"]
Steps: TypeAlias = Generator[Work, Any, None]


class Store(Protocol):
    """Find, load and keep blocks; see `omlx.store.store.BlockStore`, which a running server has.

    A dry run has `omlx.explain.disk.DiskStore`, which finds what that would find on disk and keeps nothing.
    """

    def match(
        self,
        fingerprint: Fingerprint,
        tokens: Tokens,
        layout: Layout,
        limit: int | None = None,
        *,
        tiers: Collection[Tier] = TIERS,
    ) -> Match:
        """Return what can be reused of a prompt, at most `limit` tokens, of records in `tiers`.

        Changes nothing.
        """
        ...

    def load(self, match: Match, layout: Layout) -> Loaded:
        """Bring all records of a match into RAM; what is gone or damaged shortens it."""
        ...

    def put(
        self,
        block: Block,
        records: Mapping[RecordKind, Record],
        layout: Layout,
        *,
        tiers: Collection[Tier] = TIERS,
    ) -> Placement:
        """Keep records of a block in `tiers`; return where they are."""
        ...

    def resubmit(self, path: Iterable[BlockName]) -> int:
        """Queue blocks that are in RAM only for the disk; return how many are there or queued."""
        ...


@dataclass(frozen=True)
class Services:
    """What stages are given to work with. `store` is None when no tier is configured."""

    store: Store | None
    inflight: InFlight = field(default_factory=InFlight)
    costs: CostBook = field(default_factory=lambda: CostBook(None))
    talks: TalkMemo = field(default_factory=TalkMemo)


class Stage(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Base of every stage, built in or third-party."""

    requires: ClassVar[tuple[str, ...]] = ()
    uses: ClassVar[tuple[str, ...]] = ()
    assigns: ClassVar[tuple[str, ...]] = ()
    lane: ClassVar[Lane] = "host"
    after: ClassVar[tuple[str, ...]] = ()
    during: ClassVar[tuple[str, ...]] = ()

    def run(self, state: State, services: Services) -> Steps | None:
        """Do the stage's work on the state. A device stage is a generator of work; others return None."""
        raise NotImplementedError

    def restore_grid(self) -> int | None:
        """Return the grid, in tokens, on whose points alone a restore may end for this stage; None: anywhere."""
        return None

    @classmethod
    def name(cls) -> str:
        """Return the name by which a pipeline file uses the stage."""
        tag = cls.__struct_config__.tag
        return tag if isinstance(tag, str) else cls.__name__.lower()


def grid_of(stages: Iterable[Stage]) -> int | None:
    """Return the grid on whose points alone a restore may end in a chain: that of the stage that asks for one."""
    return next((grid for stage in stages if (grid := stage.restore_grid()) is not None), None)
