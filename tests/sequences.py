"""Sequences of blocks for tests of prefix and store.

Small layouts, and records whose values tell their tokens.
"""

from collections.abc import Iterable, Sequence

import numpy as np

from omlx.prefix.block import Block
from omlx.prefix.hasher import Chain, PrefixHasher
from omlx.prefix.layout import LayerGroup, Layout, TensorSpec
from omlx.store.record import Record
from omlx.types import Fingerprint, RecordKind, as_tokens

MODEL = Fingerprint("a" * 32)
OTHER_MODEL = Fingerprint("b" * 32)


def group(kind: RecordKind, dim: int = 4, window: int | None = None) -> LayerGroup:
    """Return a group of two layers with one head."""
    shape = (2, 1, dim) if kind == "state" else (2, 1, -1, dim)
    names = ("conv",) if kind == "state" else ("keys", "values")
    tensors = tuple(TensorSpec(f"{kind}.{name}", shape, "float32") for name in names)
    return LayerGroup(kind, ((0,), (1,)), tensors, window)


FULL = Layout((group("kv"),))
SLIDING = Layout((group("kv"), group("window", window=32)))
HYBRID = Layout((group("kv"), group("state", dim=8)))
RECURRENT = Layout((group("state", dim=8),))
LAYOUTS = {"full": FULL, "sliding": SLIDING, "hybrid": HYBRID, "recurrent": RECURRENT}


def wide(dim: int) -> Layout:
    """Return a layout of one kv group with `dim * 16` bytes per token."""
    return Layout((group("kv", dim=dim),))


def chain(tokens: Sequence[int], cuts: Iterable[int], fingerprint: Fingerprint = MODEL) -> list[Block]:
    """Return the blocks of a sequence that is cut at the given positions, the last of which is its end."""
    cursor, start, blocks = Chain(fingerprint), 0, []
    for cut in cuts:
        blocks.append(cursor.cut(as_tokens(tokens[start:cut])))
        start = cut
    return blocks


def even(num_blocks: int, size: int = 16) -> list[int]:
    """Return cuts at multiples of the block size."""
    return [size * (i + 1) for i in range(num_blocks)]


def branch(
    tokens: Sequence[int], start: int, cuts: Iterable[int], parent: Block, fingerprint: Fingerprint = MODEL
) -> list[Block]:
    """Return the blocks of a sequence from `start` on, the first of which continues `parent`."""
    cursor, blocks = Chain(fingerprint, as_tokens(tokens[:start]), parent.name), []
    for cut in cuts:
        blocks.append(cursor.cut(as_tokens(tokens[start:cut])))
        start = cut
    return blocks


def record(block: Block, kind: RecordKind, layout: Layout) -> Record:
    """Return a record whose values follow from the fingerprint and all tokens up to the block's end."""
    seed = int.from_bytes(block.digest[:4], "little") / 2**32
    buffers = {}
    for spec in layout.tensors(kind):
        shape = [block.num_tokens if extent == -1 else extent for extent in spec.shape]
        if kind == "state":
            buffers[spec.name] = np.full(shape, seed, np.float32)
            continue
        values = block.tokens * 1000.0 + np.arange(block.start, block.end)
        values += {"a": 0.25, "b": 0.5}[block.fingerprint[0]] + len(spec.name)
        buffers[spec.name] = np.broadcast_to(values[:, None], shape).astype(np.float32).copy()
    return Record(kind, buffers, None)


def records(
    block: Block, layout: Layout, kinds: Iterable[RecordKind] | None = None
) -> dict[RecordKind, Record]:
    """Return the records of a block: of all kinds of the layout, or the given ones."""
    return {kind: record(block, kind, layout) for kind in (layout.kinds() if kinds is None else kinds)}


def digest_of(tokens: Sequence[int], fingerprint: Fingerprint = MODEL) -> bytes:
    """Return the digest of these tokens."""
    hasher = PrefixHasher(fingerprint)
    hasher.update(as_tokens(tokens))
    return hasher.digest()
