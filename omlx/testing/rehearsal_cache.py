"""RehearsalCache: a fake model over a real store in a folder, and what may happen to it between requests."""

import time
from collections.abc import Sequence
from pathlib import Path

from omlx.errors import OmlxError
from omlx.pipeline.conductor import Conductor
from omlx.pipeline.model import Model
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services, Stage
from omlx.pipeline.state import State
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.rows import scan
from omlx.store.schema import split_key
from omlx.store.store import BlockStore
from omlx.testing.drive import InlineLanes
from omlx.testing.executor import FakeExecutor
from omlx.testing.expectation import Outcome
from omlx.testing.guarded import guarded
from omlx.text.delta import AnswerDelta, TextDelta
from omlx.types import BlockName, Tier

_FLUSH_S = 30.0


class RehearsalCache:
    """Requests one after the other, each stage held to its declaration. Mutable: the store, the last request."""

    def __init__(
        self, stages: Sequence[Stage], model: Model, folder: Path, hot_bytes: int, cold_bytes: int
    ) -> None:
        self._stages = tuple(guarded(stage) for stage in stages)
        self._model = model
        self._directory = folder / "blocks"
        self._budgets = (hot_bytes, cold_bytes)
        self._last: State | None = None
        self._open()

    def ask(self, request: Request, answer: str | None) -> Outcome:
        """Run a request to its end."""
        sink: list[AnswerDelta] = []
        ends: list[OmlxError | None] = []
        state = State(request, self._model, sink.append, lambda _: None)
        executor = FakeExecutor(self._model, answer=answer)
        Conductor(self._services, InlineLanes(executor)).start(self._stages, state, ends.append)
        self._last = state
        text = "".join(delta.text for delta in sink if isinstance(delta, TextDelta))
        return Outcome(state, text, ends[0])

    def restart(self) -> None:
        """Close the store, as a server that stops, and open it again: what was in RAM alone is lost."""
        self._store.close(_FLUSH_S)
        self._open()

    def evict(self, tier: Tier) -> None:
        """Empty a tier."""
        self.wait(0.0)
        if tier == "cold":
            self._cold.clear()
        else:
            self.restart()

    def wait(self, seconds: float) -> None:
        """Wait until everything is on disk, then some more."""
        self._store.flush(_FLUSH_S)
        time.sleep(seconds)

    def corrupt(self, number: int) -> str | None:
        """Damage the files of a block of the last request, and empty RAM; return what is in the way."""
        path = self._path()
        if number > len(path):
            return f"there is no block {number}: the last request has {len(path)}"
        self._store.close(_FLUSH_S)
        files = [
            self._directory / raw.filename
            for raw, _ in scan(self._directory)
            if raw.filename and split_key(raw.key)[0] == path[number - 1]
        ]
        for file in files:
            _damage(file)
        self._open()
        return None if files else f"block {number} is not on disk"

    def close(self) -> None:
        """Close the store."""
        self._store.close(_FLUSH_S)

    def _open(self) -> None:
        hot_bytes, cold_bytes = self._budgets
        self._cold = ColdTier(self._directory, cold_bytes, max_share=1.0, min_free_bytes=0)
        self._store = BlockStore(HotTier(hot_bytes), self._cold)
        self._services = Services(self._store)

    def _path(self) -> list[BlockName]:
        """Return the blocks of the last request, head first."""
        state, layout = self._last, self._model.layout
        if state is None or state.sequence is None or layout is None:
            return []
        tokens = state.sequence.tokens
        match = self._store.match(self._model.fingerprint, tokens, layout, len(tokens))
        return [step.block.name for step in match.steps]


def _damage(file: Path) -> None:
    """Change the last byte of a file."""
    content = bytearray(file.read_bytes())
    content[-1] ^= 0xFF
    file.write_bytes(content)
