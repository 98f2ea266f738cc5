"""Fixtures over all families of caches."""

import pytest

from tests.kv.parity import FAMILIES, Cold, Tiny, cold_run, tiny


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Name each family of caches in turn."""
    return request.param


@pytest.fixture
def model(family: str) -> Tiny:
    """Return the family's model, made once a session."""
    return tiny(family)


@pytest.fixture
def cold(family: str) -> Cold:
    """Return a cold run of the family's model, made once a session."""
    return cold_run(family)
