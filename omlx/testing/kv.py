"""What the fake computes as KV: for each position a digest of all tokens up to it.

    row(p) = blake2b(row(p - 1), token p)      16 bytes

As with real KV, a row depends on everything before it and is computed from the rows before it. So a restore
that brings rows of other tokens cannot go unnoticed: they are not what the tokens give.
"""

from hashlib import blake2b
from typing import Any

import numpy as np
import numpy.typing as npt

from omlx.prefix.layout import LayerGroup, Layout, TensorSpec
from omlx.types import RecordKind, Tokens

ROW_BYTES = 16
#: Rows of KV: `(n, 16) uint8`.
Rows = npt.NDArray[np.uint8]


def kv_rows(tokens: Tokens, before: bytes = b"") -> Rows:
    """Return the rows of `tokens`, `(n, 16) uint8`, that follow the row `before`."""
    rows = np.empty((len(tokens), ROW_BYTES), np.uint8)
    row = before
    for index, token in enumerate(tokens.tolist()):
        row = blake2b(row + token.to_bytes(4, "little"), digest_size=ROW_BYTES).digest()
        rows[index] = np.frombuffer(row, np.uint8)
    return rows


def fake_layout(*kinds: RecordKind, window: int = 64) -> Layout:
    """Return a layout with one group of layers of each kind, `kv` alone by default."""
    return Layout(tuple(_group(index, kind, window) for index, kind in enumerate(kinds or ("kv",))))


def _group(index: int, kind: RecordKind, window: int) -> LayerGroup:
    shape = (1, ROW_BYTES) if kind == "state" else (1, 1, -1, ROW_BYTES)
    tensor = TensorSpec(f"{index}.{kind}", shape, "uint8")
    return LayerGroup(kind, ((index,),), (tensor,), window if kind == "window" else None)


def to_array(group: LayerGroup, rows: Rows) -> npt.NDArray[Any]:
    """Return rows in the shape that a group's tensor has; of a `state` group, the last row."""
    return rows[-1:].copy() if group.kind == "state" else rows[None, None].copy()


def to_rows(group: LayerGroup, array: npt.NDArray[Any]) -> Rows:
    """Return the rows in a tensor: the inverse of `to_array`."""
    return np.asarray(array if group.kind == "state" else array[0, 0], np.uint8)
