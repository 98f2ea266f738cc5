"""A fake model, a store over both tiers, and whoever explains requests by it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from omlx.explain.disk import DiskStore
from omlx.explain.explainer import Explainer
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.pipeline import Pipeline, Tuning, load_pipeline
from omlx.pipeline.request import Request
from omlx.stages import built_in_stages
from omlx.store.store import BlockStore
from omlx.text.chat import ChatPrompt, Message, Prompt
from omlx.types import RequestId
from tests.stages.conftest import PIPELINES, Talk, closed, open_store

#: Enough for the one token that every request is asked for here.
BUDGET_BYTES = 256 * 1024**2


def pipeline(name: str = "default", **tuning: dict[str, Any]) -> Pipeline:
    """Return a shipped pipeline, with keys of single stages changed."""
    return load_pipeline(PIPELINES / f"{name}.toml", built_in_stages(), Tuning(tuning))


def chat(
    *contents: str, system: str = "You help with code. Answer shortly, and say what you did."
) -> ChatPrompt:
    """Return a conversation: a system message, then users and assistants by turns."""
    roles = ("user", "assistant")
    said = (Message(roles[at % 2], content) for at, content in enumerate(contents))
    return ChatPrompt((Message("system", system), *said))


@dataclass
class Bench:
    """Asks a fake model through a chain, and explains before it asks."""

    store: BlockStore | None
    chain: Pipeline = field(default_factory=pipeline)
    options: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Make the parts."""
        self.talk = Talk(self.chain.stages, self.store, **self.options)
        self.explainer = Explainer(self.chain, self.talk.services, self.store, "server")

    def request(self, prompt: Prompt) -> Request:
        """Return a request for one token."""
        return Request(id=RequestId("r"), model=self.talk.model.name, prompt=prompt, max_tokens=1)

    def explain(self, prompt: Prompt, *, show_text: bool = False) -> Explanation:
        """Return what a prompt would do."""
        return self.explainer.dry(self.request(prompt), self.talk.model, show_text=show_text)

    def ask(self, prompt: Prompt):
        """Run a prompt; return its state."""
        state, _ = self.talk.ask(prompt, max_tokens=1)
        return state


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


@pytest.fixture
def bench(store: BlockStore) -> Bench:
    """Return a bench over both tiers and the default chain."""
    return Bench(store)


def disk_explainer(directory: Path, bench: Bench) -> Explainer:
    """Return what explains by the files alone, as `omlx trace` does without a server."""
    disk = DiskStore(directory, BUDGET_BYTES, 1.0)
    services = type(bench.talk.services)(disk, costs=bench.talk.services.costs)
    return Explainer(bench.chain, services, disk, "disk")
