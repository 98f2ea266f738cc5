"""Stores on real disks."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore

MIB = 1024**2


class Stores:
    """Open stores and tiers over one directory; close what is still open at the end."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._open: list[BlockStore | ColdTier] = []

    def cold(self, budget: int = 16 * MIB, **options) -> ColdTier:
        """Open a cold tier."""
        options = {"min_free_bytes": 0, "retry_s": 0.2, **options}
        tier = ColdTier(self.directory, budget, **options)
        self._open.append(tier)
        return tier

    def store(self, hot: int | None = 16 * MIB, cold: int | None = 16 * MIB, **options) -> BlockStore:
        """Open a store; None leaves a tier out."""
        queue = {"queue_bytes": options.pop("queue_bytes", 16 * MIB)}
        tier = None if cold is None else self.cold(cold, **options)
        store = BlockStore(None if hot is None else HotTier(hot), tier, **queue)
        if tier is not None:
            self._open.remove(tier)
        self._open.append(store)
        return store

    def close(self, store: BlockStore | ColdTier) -> None:
        """Close one."""
        self._open.remove(store)
        store.close()

    def close_all(self) -> None:
        """Close all."""
        while self._open:
            self._open.pop().close()


@pytest.fixture
def stores(tmp_path) -> Iterator[Stores]:
    """Open stores over one directory that does not exist yet."""
    made = Stores(tmp_path / "cache")
    yield made
    made.close_all()


@pytest.fixture
def du(stores) -> Callable[[], int]:
    """Return what the cache directory takes on the disk, as `du` counts."""

    def measure() -> int:
        total = 0
        for path in (stores.directory, *stores.directory.rglob("*")):
            with suppress(FileNotFoundError):
                total += path.stat().st_blocks * 512
        return total

    return measure
