"""Names of blocks."""

import hashlib

import numpy as np
import pytest

from omlx.prefix.hasher import Chain, PrefixHasher, block_name
from omlx.types import as_tokens
from tests.sequences import MODEL, OTHER_MODEL, branch, chain, digest_of


def test_digest_does_not_depend_on_cuts():
    """The digest of a position is the same however the tokens before it were fed and cut."""
    tokens = list(range(100))
    for cuts in ([100], [1, 100], [37, 38, 99, 100]):
        assert digest_of(tokens) == chain(tokens, cuts)[-1].digest


def test_digest_is_blake2b_over_little_endian_int32():
    """The digest is that of the documented bytes, so that it is the same on every machine."""
    root = MODEL.encode()
    data = len(root).to_bytes(4, "little") + root + np.array([1, 2, -3], "<i4").tobytes()
    assert hashlib.blake2b(data, digest_size=16).digest() == digest_of([1, 2, -3])


def test_digest_accepts_any_integer_tokens():
    """Token ids of another integer type, or a strided view, are hashed as int32."""
    hasher = PrefixHasher(MODEL)
    hasher.update(np.arange(20, dtype=np.int64)[::2])
    assert digest_of(range(0, 20, 2)) == hasher.digest()


def test_models_share_no_names():
    """A8: the same tokens under two fingerprints name different blocks."""
    ours, theirs = chain(range(8), [8]), chain(range(8), [8], OTHER_MODEL)
    assert ours[0].name != theirs[0].name
    assert ours[0].prefix != theirs[0].prefix


def test_copy_is_independent():
    """A copied hasher goes on by itself."""
    hasher = PrefixHasher(MODEL)
    hasher.update(as_tokens([1]))
    twin = hasher.copy()
    twin.update(as_tokens([2]))
    assert digest_of([1]) == hasher.digest()
    assert digest_of([1, 2]) == twin.digest()


def test_name_tells_start():
    """Blocks that end together and begin apart have different names."""
    assert chain(range(8), [4, 8])[1].digest == chain(range(8), [8])[0].digest
    assert chain(range(8), [4, 8])[1].name != chain(range(8), [8])[0].name
    assert 20 == len(block_name(chain(range(8), [8])[0].digest, 7))


def test_chain_links_blocks():
    """Each block of a chain names the one before as its parent, and begins with its digest."""
    first, second = chain(range(10), [6, 10])
    assert (None, first.name) == (first.parent, second.parent)
    assert first.digest == second.prefix
    assert (6, 10) == (second.start, second.end)
    assert [6, 7, 8, 9] == second.tokens.tolist()


def test_chain_goes_on_from_a_match():
    """A chain that begins inside another sequence names the same blocks as one from 0 with the same cuts."""
    first, second = chain(range(10), [6, 10])
    assert [second] == branch(range(10), 6, [10], first)


def test_chain_refuses_a_hole():
    """A chain that begins after position 0 has a parent; one that begins at 0 has none; no block is empty."""
    with pytest.raises(ValueError, match="parent"):
        Chain(MODEL, as_tokens([1, 2]))
    with pytest.raises(ValueError, match="at least one token"):
        Chain(MODEL).cut(as_tokens([]))
