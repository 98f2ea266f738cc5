"""Folders of tiny models whose loading can be held up, and settings over several of them."""

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import omlx.runtime.runtime
from tests.tiny_models import make_model


@pytest.fixture(scope="session")
def folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return folders of two tiny models with full attention and one with a sliding window."""
    base = tmp_path_factory.mktemp("models")
    untied = {"tie_word_embeddings": False}
    return {
        "a": make_model(base / "a", "llama", **untied),
        "b": make_model(base / "b", "llama", hidden_size=128, **untied),
        "c": make_model(base / "c", "gemma3"),
    }


class Brake:
    """Hold up the reading of models until `free` is set; count the reads."""

    def __init__(self) -> None:
        self.free = threading.Event()
        self.began = threading.Event()
        self.reads: list[str] = []


@pytest.fixture
def brake(monkeypatch: pytest.MonkeyPatch) -> Iterator[Brake]:
    """Put a brake on reading models: as slow as a large one is."""
    found, real = Brake(), omlx.runtime.runtime.read

    def slow(name, *arguments):
        found.reads.append(name)
        found.began.set()
        assert found.free.wait(60)
        return real(name, *arguments)

    monkeypatch.setattr(omlx.runtime.runtime, "read", slow)
    yield found
    found.free.set()
