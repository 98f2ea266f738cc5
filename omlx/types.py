"""Distinct things get distinct types; values shared by all rooms."""

from typing import Literal, NewType, TypeAlias

import numpy as np
import numpy.typing as npt

#: Token ids in order: `(tokens,)`, int32.
Tokens: TypeAlias = npt.NDArray[np.int32]

#: Identity of a model as far as KV is concerned: hexadecimal digest.
Fingerprint = NewType("Fingerprint", str)

#: Digest of all tokens up to a position, under a fingerprint: 16 bytes.
PrefixDigest = NewType("PrefixDigest", bytes)

#: Name of a block: the digest at its end, then its start position: 20 bytes.
BlockName = NewType("BlockName", bytes)

#: Identity of one request, as shown to clients and in logs.
RequestId = NewType("RequestId", str)

#: The kinds of record a block can hold (one per kind of layer).
RecordKind: TypeAlias = Literal["kv", "window", "state"]
RECORD_KINDS: tuple[RecordKind, ...] = ("kv", "window", "state")

#: Where a record was found.
Tier: TypeAlias = Literal["hot", "cold"]
TIERS: tuple[Tier, ...] = ("hot", "cold")


def as_tokens(ids: object) -> Tokens:
    """Return token ids as an int32 array of rank 1."""
    return np.asarray(ids, dtype=np.int32).reshape(-1)
