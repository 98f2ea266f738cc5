"""Fixtures that several rooms' tests share: tiny real models, made once a session."""

import os
from collections.abc import Callable
from pathlib import Path

# two spinning BLAS threads on two cores that do other things too cost more than they bring
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")

import pytest

import omlx.models  # noqa: F401 - loads the fast BLAS before anything imports MLX

FAMILIES = ("llama", "gemma3")

#: Tied embeddings make random weights repeat their last token: an answer must tell what stands before it.
UNTIED = {"tie_word_embeddings": False}

Folders = Callable[..., Path]


@pytest.fixture(scope="session")
def model_folders(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Return a folder with a tiny real model of each family."""
    from tests.tiny_models import make_model

    return {family: make_model(tmp_path_factory.mktemp("models") / family, family) for family in FAMILIES}


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Name each family of caches in turn."""
    return request.param


@pytest.fixture
def model_folder(model_folders: dict[str, Path], family: str) -> Path:
    """Return the folder of the family's tiny model."""
    return model_folders[family]


@pytest.fixture(scope="session")
def folder_of(tmp_path_factory: pytest.TempPathFactory) -> Folders:
    """Return what makes the folder of a family's model, once for the same arguments."""
    from tests.tiny_models import make_model

    made: dict[str, Path] = {}

    def folder(family: str, **options) -> Path:
        key = f"{family} {sorted(options.items())}"
        if key not in made:
            made[key] = make_model(tmp_path_factory.mktemp("models") / family, family, **UNTIED | options)
        return made[key]

    return folder
