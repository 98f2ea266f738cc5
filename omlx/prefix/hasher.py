"""PrefixHasher and Chain: digests of all tokens up to a position, and the names that follow from them.

    tokens   0 ............ 256 ........ 400 ...
             |--- block ----|-- block ---|
    digest   d(0)           d(256)       d(400)      one running hash, copied at each cut
    name                    d(256)+0     d(400)+256

A digest covers the fingerprint and every token before its position, never the cuts: two requests that cut the
same tokens elsewhere agree on the digest of each position. The start in the name tells apart blocks that end
together.
"""

import hashlib
from typing import Self

import numpy as np

from omlx.prefix.block import Block
from omlx.types import BlockName, Fingerprint, PrefixDigest, Tokens

_DIGEST_BYTES = 16


def block_name(digest: PrefixDigest, start: int) -> BlockName:
    """Return the name of the block that begins at `start` and ends where `digest` was taken: 20 bytes."""
    return BlockName(digest + start.to_bytes(4, "little"))


def token_bytes(tokens: Tokens) -> bytes:
    """Return tokens in the form that is hashed and stored: int32, little-endian."""
    return np.ascontiguousarray(tokens, dtype="<i4").tobytes()


class PrefixHasher:
    """Digest a growing sequence of tokens under one fingerprint."""

    __slots__ = ("_hash",)

    def __init__(self, fingerprint: Fingerprint) -> None:
        root = fingerprint.encode()
        self._hash = hashlib.blake2b(len(root).to_bytes(4, "little") + root, digest_size=_DIGEST_BYTES)

    def update(self, tokens: Tokens) -> None:
        """Append tokens: `(n,) int32`."""
        self._hash.update(token_bytes(tokens))

    def digest(self) -> PrefixDigest:
        """Return the digest of the tokens so far: 16 bytes."""
        return PrefixDigest(self._hash.digest())

    def copy(self) -> Self:
        """Return an independent hasher at the same position."""
        twin = object.__new__(type(self))
        twin._hash = self._hash.copy()
        return twin


class Chain:
    """A cursor that walks a sequence once and cuts it into blocks, each the child of the one before.

    Begin where a match ended: `Chain(fingerprint, tokens[:position], match.parent(position))`.
    """

    def __init__(
        self, fingerprint: Fingerprint, tokens: Tokens | None = None, parent: BlockName | None = None
    ) -> None:
        self._fingerprint = fingerprint
        self._hasher = PrefixHasher(fingerprint)
        self._parent = parent
        self._position = 0
        if tokens is not None:
            self._hasher.update(tokens)
            self._position = len(tokens)
        if (parent is None) != (self._position == 0):
            raise ValueError("a chain has a parent exactly when it begins after position 0")

    @property
    def position(self) -> int:
        """Return where the next block begins."""
        return self._position

    @property
    def parent(self) -> BlockName | None:
        """Return the parent of the next block."""
        return self._parent

    def cut(self, tokens: Tokens) -> Block:
        """Return the block of the next tokens, `(n >= 1,) int32`, and move to its end."""
        if len(tokens) == 0:
            raise ValueError("a block holds at least one token")
        start, prefix = self._position, self._hasher.digest()
        self._hasher.update(tokens)
        digest = self._hasher.digest()
        self._position += len(tokens)
        block = Block(
            name=block_name(digest, start),
            fingerprint=self._fingerprint,
            parent=self._parent,
            prefix=prefix,
            digest=digest,
            start=start,
            end=self._position,
            token_bytes=token_bytes(tokens),
        )
        self._parent = block.name
        return block
