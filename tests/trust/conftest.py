"""Folders of tiny models, one a session for each kind of layers and each family of caches."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.tiny import QWEN3
from tests.tiny_models import make_model
from tests.trust.talk import KINDS

#: Tied embeddings make random weights repeat their last token: an answer must tell what stands before it.
UNTIED = {"tie_word_embeddings": False}

Folders = Callable[..., Path]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Return what makes the folder of a family's model, once for the same arguments."""
    made: dict[str, Path] = {}

    def folder(family: str, **options) -> Path:
        key = f"{family} {sorted(options.items())}"
        if key not in made:
            made[key] = make_model(tmp_path_factory.mktemp("models") / family, family, **UNTIED | options)
        return made[key]

    return folder


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    """Name each kind of layers in turn."""
    return request.param


@pytest.fixture
def folder(folder_of: Folders, kind: str) -> Path:
    """Return the folder of the kind's model."""
    return folder_of(KINDS[kind])


@pytest.fixture
def thinking_folder(folder_of: Folders, kind: str) -> Path:
    """Return the kind's model behind a template that drops the reasoning of earlier turns."""
    return folder_of(KINDS[kind], template=QWEN3)
