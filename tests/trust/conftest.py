"""Folders of tiny models for each kind of layers."""

from pathlib import Path

import pytest

from tests.conftest import Folders
from tests.tiny import QWEN3
from tests.trust.talk import KINDS


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
