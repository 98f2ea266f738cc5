"""Chunks end on an absolute grid, so a resumed run has the shapes of a cold one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlx.pipeline.chunks import chunk_ends, grid_floor

CUTS = st.lists(st.integers(0, 300), max_size=5)


@pytest.mark.parametrize(
    ("start", "end", "cuts", "ends"),
    [
        (0, 10, [], [4, 8, 10]),
        (0, 8, [], [4, 8]),
        (3, 10, [], [4, 8, 10]),
        (0, 10, [5, 9], [4, 5, 8, 9, 10]),
        (5, 10, [5, 0, 10, 77], [8, 10]),
        (7, 7, [], []),
        (9, 7, [], []),
    ],
)
def test_a_chunk_ends_at_the_grid_at_a_cut_and_at_the_end(start, end, cuts, ends):
    """Chunks of 4 end at multiples of 4, at cuts inside the range, and at its end."""
    assert ends == list(chunk_ends(start, end, 4, cuts))


@given(st.integers(0, 300), st.integers(1, 64), CUTS, st.data())
def test_a_run_resumed_at_a_chunk_end_goes_on_like_a_cold_one(end, chunk_tokens, cuts, data):
    """From any chunk end on, the chunks are those of the run from 0."""
    cold = list(chunk_ends(0, end, chunk_tokens, cuts))
    assert cold == sorted(set(cold))
    assert all(high - low <= chunk_tokens for low, high in zip([0, *cold], cold, strict=False))
    if cold:
        resume = data.draw(st.sampled_from(cold))
        assert [point for point in cold if point > resume] == list(
            chunk_ends(resume, end, chunk_tokens, cuts)
        )


@given(st.integers(0, 300), st.integers(1, 64), CUTS)
def test_the_floor_is_the_last_chunk_end(position, chunk_tokens, cuts):
    """The last grid point at or before a position is where the last chunk of a cold run ended, or 0."""
    ends = [0, *chunk_ends(0, 400, chunk_tokens, cuts)]
    assert max(point for point in ends if point <= position) == grid_floor(position, chunk_tokens, cuts)
