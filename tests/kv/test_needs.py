"""What a sequence's caches will take is known from the layout before anything is computed."""

import pytest

from omlx.kv.families import walk
from tests.kv.parity import forward, tiny, tokens_of


@pytest.mark.parametrize("length", [300, 700])
def test_the_bytes_of_live_caches_are_known_beforehand(family, length):
    """F8: for every family the estimate holds what the caches really take, and is of its order.

    The windows here are a fifth of the step by which a cache grows: with real ones the estimate is closer.
    """
    model = tiny(family)
    caches = model.new_caches()
    tokens = tokens_of(length)
    for start in range(0, length, 64):
        forward(model, caches, tokens[start : start + 64])
    taken = sum(cache.nbytes for _, cache in walk(caches))
    assert taken <= model.layout.sequence_bytes(length) <= 3 * taken
