"""BlockStore: two tiers behind one door, for the stages (API draft; filled in soon)."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from omlx.prefix.block import Block
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.record import Record
from omlx.store.stats import StoreStats
from omlx.types import BlockName, Fingerprint, RecordKind, Tokens


@dataclass(frozen=True, slots=True)
class LoadedPiece:
    """The records of one piece of a match: tokens `[block.start, block.start + used)`."""

    block: Block
    used: int
    records: Mapping[RecordKind, Record]


@dataclass(frozen=True, slots=True)
class Loaded:
    """Everything a restore to `match.resume` needs; `match` may be shorter than the one that was asked for."""

    match: Match
    pieces: tuple[LoadedPiece, ...]

    @property
    def resume(self) -> int:
        """Return the position at which the sequence goes on."""
        return self.match.resume


@dataclass(frozen=True, slots=True)
class Placement:
    """Where the records of a `put` are now: held in RAM; on disk or queued for it."""

    hot: bool
    cold: bool


class BlockStore:
    """Find, load and keep blocks. All methods may be called from any thread; only `load` reads files."""

    def __init__(
        self, hot: HotTier | None, cold: ColdTier | None, *, queue_bytes: int = 256 * 1024**2
    ) -> None:
        """Start the writer thread when there is a cold tier. Raises ValueError when both tiers are None."""
        raise NotImplementedError

    def match(self, fingerprint: Fingerprint, tokens: Tokens, layout: Layout, limit: int | None = None) -> Match:
        """Return what can be reused of a prompt. Changes nothing, access times included.

        `limit` is the longest usable position; without it, one token less than the prompt.
        """
        raise NotImplementedError

    def load(self, match: Match, layout: Layout) -> Loaded:
        """Bring all records of a match into RAM, verified against the layout, and touch their path.

        A record that is gone or damaged shortens the match (one counter, one log line); it never raises.
        """
        raise NotImplementedError

    def put(self, block: Block, records: Mapping[RecordKind, Record], layout: Layout) -> Placement:
        """Keep records of a block: in RAM now, on disk soon. What is already kept is not written again.

        A block whose parent is not in the store is refused (both False). Raises CacheError when a record does
        not have the shapes that the layout gives for the block's length.
        """
        raise NotImplementedError

    def resubmit(self, path: Iterable[BlockName]) -> int:
        """Queue blocks of a path (head first) that are in RAM but not on disk; return how many records were taken."""
        raise NotImplementedError

    def pin(self, path: Iterable[BlockName]) -> None:
        """Keep the hot records of these blocks until `unpin`. Pins are counted."""
        raise NotImplementedError

    def unpin(self, path: Iterable[BlockName]) -> None:
        """Undo one `pin`."""
        raise NotImplementedError

    def flush(self, timeout_s: float) -> bool:
        """Wait until everything queued is on disk or given up; False when the time ran out."""
        raise NotImplementedError

    def stats(self) -> StoreStats:
        """Return counters and sizes of both tiers and the queue."""
        raise NotImplementedError

    def verify(self) -> list[str]:
        """Return every broken invariant, in words; empty when all is well. Reads rows and file sizes."""
        raise NotImplementedError

    def clear(self, fingerprint: Fingerprint | None = None) -> int:
        """Forget all blocks (of one model) in both tiers; return how many."""
        raise NotImplementedError

    def close(self, timeout_s: float = 10.0) -> None:
        """Write what is queued for at most `timeout_s`, log a count of what was given up, and close."""
        raise NotImplementedError
