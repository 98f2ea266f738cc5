"""Pieces of a restore are cut back to an earlier position, or not at all."""

import numpy as np
import pytest

from omlx.pipeline.pieces import cut_back
from omlx.pipeline.work import Piece
from omlx.store.record import Record
from omlx.testing import fake_layout
from omlx.types import RecordKind

RECORD = {kind: Record(kind, {"x": np.zeros(1, np.uint8)}, None) for kind in ("kv", "window", "state")}


def piece(used: int, *kinds: RecordKind, of: int | None = None) -> Piece:
    """Return a piece that uses so many tokens of a block."""
    return Piece(used, of or used, {kind: RECORD[kind] for kind in kinds})


#: A restore to 100: kv from 0, a window of 30 from 60.
PIECES = (piece(60, "kv"), piece(20, "kv", "window"), piece(20, "kv", "window", of=50))
LAYOUT = fake_layout("kv", "window", window=30)


@pytest.mark.parametrize(
    ("to", "used"),
    [
        (100, [60, 20, 20]),
        (99, [60, 20, 19]),
        (90, [60, 20, 10]),
        (89, None),
        (80, None),
        (1, None),
        (0, None),
    ],
)
def test_sliding_layers_bound_how_far_back_a_restore_can_go(to, used):
    """A position is possible as long as the tokens that sliding layers look back on were fetched."""
    cut = cut_back(PIECES, LAYOUT, 100, to)
    assert used == (None if cut is None else [piece.used for piece in cut])


@pytest.mark.parametrize(("to", "used"), [(100, [60, 20, 20]), (81, [60, 20, 1]), (80, [60, 20]), (5, [5])])
def test_full_attention_goes_back_to_any_position(to, used):
    """Where every token was fetched, every position is possible."""
    cut = cut_back(PIECES, fake_layout("kv"), 100, to)
    assert used == [piece.used for piece in cut]


def test_a_state_is_that_of_one_position():
    """A layout with recurrent layers resumes where the snapshot was taken and nowhere else."""
    pieces = (piece(60, "kv"), piece(40, "kv", "state"))
    layout = fake_layout("kv", "state")
    assert pieces == cut_back(pieces, layout, 100, 100)
    assert cut_back(pieces, layout, 100, 99) is None


def test_overlapping_blocks_are_cut_each_at_its_place():
    """Kinds that come from different blocks are cut at the same position."""
    pieces = (piece(100, "kv"), piece(50, "window"), piece(40, "window"))
    assert [95, 50, 35] == [cut.used for cut in cut_back(pieces, LAYOUT, 100, 95)]
    assert [55, 45] == [cut.used for cut in cut_back(pieces, LAYOUT, 100, 55)]
