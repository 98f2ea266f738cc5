"""Block: an immutable run of tokens at a known position, one edge of a radix tree over token sequences.

Its name is the digest of *all* tokens up to its end, under the model's fingerprint, and its start: two
requests that cut the same tokens at the same places name the same block, whatever came first.
"""

from dataclasses import dataclass

import numpy as np

from omlx.types import BlockName, Fingerprint, PrefixDigest, Tokens


@dataclass(frozen=True, slots=True)
class Block:
    """Identity of tokens `[start, end)` of a sequence.

    `prefix` is the digest of the tokens before `start`, `digest` of those before `end`. `parent` is the block
    in which the token before `start` lies (None at position 0); it need not end there.
    """

    name: BlockName
    fingerprint: Fingerprint
    parent: BlockName | None
    prefix: PrefixDigest
    digest: PrefixDigest
    start: int
    end: int
    token_bytes: bytes

    @property
    def num_tokens(self) -> int:
        """Return how many tokens the block covers."""
        return self.end - self.start

    @property
    def tokens(self) -> Tokens:
        """Return the block's tokens: `(num_tokens,) int32`, a view."""
        return np.frombuffer(self.token_bytes, dtype="<i4")
