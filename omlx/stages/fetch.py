"""fetch: bring the matched records into RAM. A record that cannot be used is a miss, never an error."""

import time
from dataclasses import replace
from typing import ClassVar

from omlx.pipeline.cost import match_bytes
from omlx.pipeline.stage import Lane, Services, Stage, Store
from omlx.pipeline.state import Restored, State
from omlx.pipeline.work import Piece
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match
from omlx.store.store import Loaded


class FetchStage(Stage, frozen=True, tag="fetch"):
    """Fetch the records of the match: from the hot tier by reference, from the cold tier by reading and checking."""

    requires: ClassVar[tuple[str, ...]] = ("model", "match")
    assigns: ClassVar[tuple[str, ...]] = ("restored",)
    lane: ClassVar[Lane] = "io"

    def run(self, state: State, services: Services) -> None:
        """Assign what was fetched; a bad or missing record shortens it."""
        state.restored = Restored()
        if services.store is None or state.match is None or state.model.layout is None:
            return
        started = time.perf_counter()
        loaded = _load(services.store, state.match, state.model.layout, state.grid)
        state.restored = restored_from(loaded, state.model.layout)
        spent = time.perf_counter() - started
        services.costs.observe(state.model.fingerprint, "fetch", state.restored.cold_bytes, spent)


def _load(store: Store, match: Match, layout: Layout, grid: int | None) -> Loaded:
    """Load a match. One that came out shorter, and ends off the grid, is loaded again up to the grid point before."""
    loaded = store.load(match, layout)
    while grid is not None and loaded.resume % grid:
        shorter = replace(loaded.match, resume=loaded.resume // grid * grid)
        loaded = store.load(shorter, layout)
    return loaded


def restored_from(loaded: Loaded, layout: Layout) -> Restored:
    """Return what was loaded, as `prefill` takes it."""
    hot_bytes, cold_bytes = match_bytes(loaded.match, layout)
    return Restored(
        loaded.resume,
        tuple(Piece(piece.used, piece.block.num_tokens, piece.records) for piece in loaded.pieces),
        loaded.match.hot_tokens,
        loaded.match.cold_tokens,
        hot_bytes,
        cold_bytes,
    )
