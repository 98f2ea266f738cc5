"""Fixtures over all families of caches: the tiny model, and a cold run of it; both made once a session."""

from functools import cache

import pytest

from tests.kv.parity import FAMILIES, Captured, Tiny, run, tiny, tokens_of

#: Long enough for four chunks, six windows, and an end that lies on no grid.
NUM_TOKENS = 300


class Cold:
    """A cold run: tokens, the logits of all of them, and what was captured at each chunk end."""

    def __init__(self, model: Tiny) -> None:
        self.tokens = tokens_of(NUM_TOKENS)
        self.captured: Captured = []
        self.logits = run(model, model.new_caches(), self.tokens, captured=self.captured)


@cache
def _cold(family: str) -> Cold:
    return Cold(tiny(family))


@pytest.fixture(params=FAMILIES)
def family(request: pytest.FixtureRequest) -> str:
    """Name each family of caches in turn."""
    return request.param


@pytest.fixture
def model(family: str) -> Tiny:
    """Return the family's model."""
    return tiny(family)


@pytest.fixture
def cold(family: str) -> Cold:
    """Return a cold run of the family's model."""
    return _cold(family)
