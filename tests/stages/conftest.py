"""A store over both tiers, and a way to talk to a fake model through a whole chain."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omlx.pipeline.model import Model
from omlx.pipeline.pipeline import Tuning, load_pipeline
from omlx.pipeline.stage import Services, Stage
from omlx.pipeline.state import State
from omlx.stages import built_in_stages
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.testing import FakeExecutor, drive, fake_model, new_state, text_of
from omlx.testing.drive import Watch
from omlx.text.chat import Prompt
from omlx.text.delta import AnswerDelta

PIPELINES = Path(__file__).parents[2] / "pipelines"


def shipped(name: str, **tuning: dict[str, Any]) -> tuple[Stage, ...]:
    """Return the stages of a shipped pipeline, with keys of single stages changed."""
    return load_pipeline(PIPELINES / f"{name}.toml", built_in_stages(), Tuning(tuning)).stages


@dataclass
class Talk:
    """One request after another through a chain. `executor.computed_tokens` counts over all of them."""

    stages: tuple[Stage, ...]
    store: BlockStore | None
    model: Model = field(default_factory=fake_model)
    answer: str | None = None

    def __post_init__(self) -> None:
        """Make the executor and the services."""
        self.executor = FakeExecutor(self.model, answer=self.answer)
        self.services = Services(self.store)

    def ask(self, prompt: Prompt | str, watch: Watch | None = None, **options: Any) -> tuple[State, str]:
        """Return the state of a finished request and its answer: 20 tokens unless told otherwise."""
        sink: list[AnswerDelta] = []
        state = new_state(self.model, prompt, sink=sink, **{"max_tokens": 20, **options})
        try:
            drive(self.stages, state, self.services, self.executor, watch)
        finally:
            self.state = state
        return state, text_of(sink)


def open_store(directory: Path | None, *, hot_bytes: int | None = 64 * 1024**2) -> BlockStore:
    """Open a store: a cold tier where there is a directory, a hot tier where there are bytes for it."""
    cold = ColdTier(directory, 256 * 1024**2, min_free_bytes=0) if directory else None
    return BlockStore(HotTier(hot_bytes) if hot_bytes else None, cold)


def closed(store: BlockStore) -> None:
    """Write everything, see that the store is in order, and close it."""
    assert store.flush(30)
    assert [] == store.verify()
    store.close()


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Return the directory of the cold tier."""
    return tmp_path / "blocks"


@pytest.fixture
def store(directory: Path) -> Iterator[BlockStore]:
    """Return a store over both tiers; in order at the end."""
    store = open_store(directory)
    yield store
    closed(store)
