"""How much of a prompt can be restored."""

from itertools import pairwise, product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omlx.prefix.index import BlockIndex
from omlx.prefix.layout import Layout
from omlx.prefix.match import Match, Step, plan_match
from omlx.types import as_tokens
from tests.sequences import FULL, HYBRID, LAYOUTS, MODEL, RECURRENT, SLIDING, branch, chain, even


def plan(blocks, tokens, layout: Layout, presence=None, limit=None) -> Match:
    """Plan a match over an index of these blocks; without `presence` all records are hot."""
    index = BlockIndex()
    for block in blocks:
        index.insert(block)
    everything = dict.fromkeys(layout.kinds(), "hot")
    return plan_match(
        MODEL,
        index.walk(MODEL, as_tokens(tokens)),
        layout,
        (lambda name: everything) if presence is None else (lambda name: presence.get(name, everything)),
        len(tokens) - 1 if limit is None else limit,
    )


def test_full_attention_resumes_at_the_last_common_token():
    """A prompt that changes its tail resumes at the first difference, whole blocks or not."""
    found = plan(chain(range(48), even(3)), [*range(40), 7, 7, 7], FULL)
    assert (40, 40, 40) == (found.resume, found.matched, found.stored)
    assert [(0, 16), (16, 16), (32, 8)] == [(p.block.start, p.used) for p in found.pieces]
    assert found.shortfall is None


def test_repeated_prompt_computes_one_token():
    """A2: the last token is always computed; the tokens before it are all reused."""
    found = plan(chain(range(48), even(3)), range(48), FULL)
    assert (47, 48, 48) == (found.resume, found.matched, found.stored)
    assert "always computed" in str(found.shortfall)


def test_missing_kv_record_shortens():
    """A3: blocks before a missing record are used, those behind it are not."""
    blocks = chain(range(128), even(8))
    for missing in range(8):
        found = plan(blocks, range(129), FULL, {blocks[missing].name: {}})
        assert 16 * missing == found.resume == found.stored
        assert 128 == found.matched
        assert f"no kv record holds token {16 * missing}" == str(found.shortfall)


def test_state_is_needed_exactly_at_the_resume_point():
    """A10: a hybrid model resumes only where a snapshot is, never at a place that merely has kv."""
    blocks = chain(range(96), even(6))
    gone = {blocks[4].name: {"kv": "hot"}, blocks[5].name: {"kv": "hot"}}
    found = plan(blocks, range(97), HYBRID, gone)
    assert (64, 96, 96) == (found.resume, found.matched, found.stored)
    assert [("kv",)] * 3 + [("kv", "state")] == [tuple(p.tiers) for p in found.pieces]
    assert "no state snapshot in (64, 96]" == str(found.shortfall)


def test_state_inside_a_block_cannot_be_used():
    """A snapshot is that of a block's end: a prompt that leaves the block before has none."""
    assert 16 == plan(chain(range(32), even(2)), [*range(30), 7, 7], HYBRID).resume


def test_recurrent_model_needs_the_snapshot_alone():
    """Without attention, one record restores any number of tokens.

    The tokens are still compared on the way.
    """
    blocks = chain(range(64), even(4))
    only_last = {b.name: {} for b in blocks[:3]}
    found = plan(blocks, range(65), RECURRENT, only_last)
    assert (64, 64, 0) == (found.resume, found.hot_tokens, found.cold_tokens)
    assert [blocks[3].name] == [p.block.name for p in found.pieces]


def test_old_window_records_are_not_needed():
    """Of window records, only the last `window` tokens before the resume point are needed."""
    blocks = chain(range(96), even(6))
    old = {b.name: {"kv": "hot"} for b in blocks[:4]}
    found = plan(blocks, range(97), SLIDING, old)
    assert 96 == found.resume
    assert [64, 80] == [p.block.start for p in found.pieces if "window" in p.tiers]
    assert 6 == sum("kv" in p.tiers for p in found.pieces)


def test_every_token_with_window_records_is_a_resume_point():
    """G1: a sliding model resumes at any token, inside blocks too."""
    blocks = chain(range(96), even(6))
    for end in range(1, 96):
        found = plan(blocks, [*range(end), 999], SLIDING)
        assert end == found.resume
        covered = {
            t
            for p in found.pieces
            if "window" in p.tiers
            for t in range(p.block.start, p.block.start + p.used)
        }
        assert set(range(max(0, end - 32), end)) <= covered


def test_missing_window_record_moves_the_resume_point():
    """A window record that is missing close before the end moves the resume point to where none is needed."""
    blocks = chain(range(96), even(6))
    found = plan(blocks, range(97), SLIDING, {blocks[4].name: {"kv": "hot"}})
    assert (64, 64) == (found.resume, found.stored)
    assert "window records before token 96 are gone: resumes at 64" == str(found.shortfall)


def test_tiers_are_counted_by_token():
    """Hot and cold tokens add up to the resume point; a token is cold when any of its records is."""
    blocks = chain(range(64), even(4))
    where = {
        blocks[1].name: {"kv": "cold", "window": "hot"},
        blocks[3].name: {"kv": "hot", "window": "cold"},
    }
    found = plan(blocks, range(65), SLIDING, where)
    assert (64, 32, 32) == (found.resume, found.hot_tokens, found.cold_tokens)
    last = chain(range(64), even(4))[3]
    found = plan(chain(range(64), even(4)), range(65), RECURRENT, {last.name: {"state": "cold"}})
    assert (0, 64) == (found.hot_tokens, found.cold_tokens)
    (cold_state,) = plan(chain(range(16), [16]), range(17), RECURRENT, None).pieces
    found = plan([cold_state.block], range(17), RECURRENT, {cold_state.block.name: {"state": "cold"}})
    assert (0, 16) == (found.hot_tokens, found.cold_tokens)


def test_parent_of_what_comes_next():
    """A new block at a position continues the block that holds the token before it."""
    tokens = [*range(20), *range(100, 120)]
    stored = chain(range(32), even(2))
    fork = branch(tokens, 20, [40], stored[1])
    found = plan([*stored, *fork], tokens, FULL)
    assert [None, stored[0].name, stored[0].name, stored[1].name, fork[0].name, fork[0].name] == [
        found.parent(p) for p in (0, 1, 16, 20, 21, 40)
    ]
    with pytest.raises(ValueError, match="past the 40 tokens"):
        found.parent(41)


def test_nothing_stored():
    """An empty store matches nothing, and gives no reason."""
    found = plan([], range(8), SLIDING)
    assert (0, 0, 0, (), None) == (found.resume, found.matched, found.stored, found.pieces, found.shortfall)


def naive_resume(steps, layout, presence, limit):
    """Try every position, longest first."""
    kinds = layout.kinds()
    for p in range(min(limit, max((s.end for s in steps), default=0)), 0, -1):
        need = {"kv": range(p), "window": range(max(0, p - layout.window_tokens()), p)}
        have = {
            k: {t for s in steps if k in presence(s.block.name) for t in range(s.block.start, s.end)}
            for k in need
        }
        tokens_there = all(set(need[k]) <= have[k] for k in need if k in kinds)
        states = {s.block.end for s in steps if s.end == s.block.end and "state" in presence(s.block.name)}
        if tokens_there and ("state" not in kinds or p in states):
            return p
    return 0


@settings(max_examples=300, deadline=None)
@given(
    layout=st.sampled_from(
        [*LAYOUTS.values(), Layout(SLIDING.groups[1:]), Layout((*SLIDING.groups, *RECURRENT.groups))]
    ),
    cuts=st.lists(st.sets(st.integers(1, 79), max_size=6), min_size=1, max_size=3),
    end=st.integers(1, 80),
    limit=st.integers(0, 80),
    seed=st.randoms(use_true_random=False),
)
def test_plan_equals_the_naive_model(layout, cuts, end, limit, seed):
    """The plan resumes where a search over all positions does, and its pieces hold what that needs."""
    tokens = list(range(80))
    blocks = {b.name: b for cut in cuts for b in chain(tokens, [*sorted(cut), 80])}
    tiers = [None, "hot", "cold"]
    where = {name: {k: t for k in layout.kinds() if (t := seed.choice(tiers)) is not None} for name in blocks}
    steps = tuple(
        sorted(
            (Step(b, min(b.end, end) - b.start) for b in blocks.values() if b.start < end),
            key=lambda s: s.block.start,
        )
    )
    found = plan_match(MODEL, steps, layout, where.__getitem__, limit)
    assert naive_resume(steps, layout, where.__getitem__, limit) == found.resume
    assert found.resume == found.hot_tokens + found.cold_tokens
    assert (found.shortfall is None) == (found.resume == found.matched)
    for kind, piece in product(layout.kinds(), found.pieces):
        if kind in piece.tiers:
            assert piece.tiers[kind] == where[piece.block.name][kind]
    begins = {"kv": 0, "window": max(0, found.resume - layout.window_tokens())}
    for kind in set(layout.kinds()) & begins.keys() if found.resume else ():
        spans = [(p.block.start, p.block.start + p.used) for p in found.pieces if kind in p.tiers]
        assert spans[0][0] <= begins[kind] < spans[0][1]
        assert found.resume == spans[-1][1]
        assert all(a[1] == b[0] for a, b in pairwise(spans))
