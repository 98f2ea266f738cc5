"""Fill fresh caches from records: tokens `[0, resume)`, as if they had been computed."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import mlx.core as mx

from omlx.errors import CacheError
from omlx.kv.families import fill, member
from omlx.kv.layout import array_name
from omlx.kv.transfer import to_device
from omlx.pipeline.work import Piece
from omlx.prefix.layout import LayerGroup, Layout
from omlx.types import RecordKind

#: Where a piece starts, and its device arrays of one kind.
Placed = tuple[int, Piece, Mapping[str, mx.array]]


def restore(caches: Sequence[Any], layout: Layout, pieces: Sequence[Piece], resume: int) -> None:
    """Fill `caches` from the pieces' records. Evaluated on return.

    Of each kind, the pieces that hold it follow one another and the last ends at `resume`. Only the tokens
    that a group needs are read. Raises CacheError when a part is missing: nothing has been filled then.
    """
    placed = {kind: list(_placed(pieces, kind, resume)) for kind in layout.kinds()}
    joined = [(group, _arrays(group, placed[group.kind], resume)) for group in layout.groups]  # lazy
    while joined:
        group, arrays = joined.pop()  # so that one group at a time is in memory twice
        for row, path in enumerate(group.layers):
            fill(member(caches, path), {name: array[row : row + 1] for name, array in arrays.items()}, resume)
        mx.eval([member(caches, path).state for path in group.layers])


def _placed(pieces: Sequence[Piece], kind: RecordKind, resume: int) -> Iterator[Placed]:
    """Yield start, piece and device arrays of the pieces that hold a kind of record."""
    holding = [piece for piece in pieces if kind in piece.records]
    start = resume - sum(piece.used for piece in holding)
    for piece in holding:
        yield start, piece, to_device(piece.records[kind])
        start += piece.used


def _arrays(group: LayerGroup, placed: Sequence[Placed], resume: int) -> dict[str, mx.array]:
    """Return what a group's layers hold: each `(layers, heads, tokens, dim)`, of a state `(layers, ...)`."""
    if group.kind == "state":
        if not placed or placed[-1][1].used != placed[-1][1].num_tokens:
            raise CacheError(f"no state record of position {resume}")
        return {array_name(spec): placed[-1][2][spec.name] for spec in group.tensors}
    return {array_name(spec): _joined(group, spec.name, placed, resume) for spec in group.tensors}


def _joined(group: LayerGroup, name: str, placed: Sequence[Placed], resume: int) -> mx.array:
    """Return the tokens that a group needs of one stacked array: `[first, resume)`."""
    first = position = 0 if group.window is None else max(0, resume - group.window)
    parts = []
    for start, piece, arrays in placed:
        begin, end = max(position, start), start + piece.used
        if position == begin < end:
            parts.append(_cut(arrays[name], begin - start, end - start))
            position = end
    if position != resume:
        raise CacheError(f"no {group.kind} record holds token {position} of [{first}, {resume})")
    return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)


def _cut(array: mx.array, begin: int, end: int) -> mx.array:
    return array if (begin, end) == (0, array.shape[2]) else array[:, :, begin:end]
