"""Fill fresh caches from records: tokens `[0, resume)`, as if they had been computed."""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from omlx.kv.capture import to_device
from omlx.kv.family import Span, fill
from omlx.pipeline.work import Piece
from omlx.prefix.layout import LayerGroup, Layout


def restore(caches: Sequence[Any], layout: Layout, pieces: Sequence[Piece], resume: int) -> None:
    """Fill `caches` from the pieces, which cover at least `[0, resume)` in order. Evaluated on return.

    A sliding group reads only the last `window` tokens before `resume`.
    """
    for group in layout.groups:
        first = 0 if group.window is None else max(0, resume - group.window)
        joined = {
            spec.name.partition(".")[2]: _joined(group, spec.name, pieces, first, resume) for spec in group.tensors
        }
        for row, path in enumerate(group.layers):
            arrays = {name: array[row : row + 1] for name, array in joined.items()}
            fill(caches[path[0]], Span(first, resume, arrays))
        mx.eval([caches[path[0]].state for path in group.layers])


def _joined(group: LayerGroup, name: str, pieces: Sequence[Piece], first: int, resume: int) -> mx.array:
    """Return tokens `[first, resume)` of one stacked array: `(layers, heads, resume - first, dim)`."""
    parts = []
    position = 0
    for piece in pieces:
        start, stop = max(first - position, 0), min(piece.used, resume - position)
        if start < stop:
            array = to_device(piece.records[group.kind])[name]
            whole = start == 0 and stop == array.shape[2]
            parts.append(array if whole else array[:, :, start:stop])
        position += piece.used
    return parts[0] if len(parts) == 1 else mx.concatenate(parts, axis=2)
