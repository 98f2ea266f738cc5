"""Pieces of a restore, cut back to an earlier position. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import replace

from omlx.pipeline.work import Piece
from omlx.prefix.layout import Layout
from omlx.types import RecordKind


def cut_back(pieces: Sequence[Piece], layout: Layout, resume: int, to: int) -> tuple[Piece, ...] | None:
    """Return what a restore to `to <= resume` takes of the pieces of one to `resume`.

    None when some kind of layer lacks what it needs there: a state is that of `resume` alone, and of sliding
    layers only the tokens before `resume` were fetched.
    """
    if to == resume:
        return tuple(pieces)
    kinds = layout.kinds()
    if (
        to <= 0
        or "state" in kinds
        or not all(_reaches_back(pieces, layout, kind, resume, to) for kind in kinds)
    ):
        return None
    starts = {id(piece): start for kind in kinds for start, piece in _placed(pieces, kind, resume)}
    return tuple(
        replace(piece, used=min(piece.used, to - starts[id(piece)]))
        for piece in pieces
        if starts[id(piece)] < to
    )


def _reaches_back(pieces: Sequence[Piece], layout: Layout, kind: RecordKind, resume: int, to: int) -> bool:
    """Tell whether the pieces of a kind begin where the first token is that a restore to `to` reads."""
    begin = min((start for start, _ in _placed(pieces, kind, resume)), default=resume)
    return begin <= (max(0, to - layout.window_tokens()) if kind == "window" else 0)


def _placed(pieces: Sequence[Piece], kind: RecordKind, resume: int) -> Iterator[tuple[int, Piece]]:
    """Yield start and piece of a kind: they follow one another, and the last ends at `resume`."""
    holding = [piece for piece in pieces if kind in piece.records]
    start = resume - sum(piece.used for piece in holding)
    for piece in holding:
        yield start, piece
        start += piece.used
