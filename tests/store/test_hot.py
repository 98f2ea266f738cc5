"""The tier in RAM."""

from omlx.store.hot import HotTier
from tests.sequences import FULL, chain, even, records, wide

BLOCK = 16 * 2 * 2 * 4 * 4  # bytes of a 16-token block of FULL


def fill(tier, blocks):
    """Insert the blocks of a chain, each on the path of those before it."""
    return [
        tier.insert(block, records(block, FULL), 0, [b.name for b in blocks[:i]])[0]
        for i, block in enumerate(blocks)
    ]


def test_budget_holds_at_all_times():
    """B13: whatever is put in, the tier never holds more than its budget, and says what it holds."""
    tier = HotTier(5 * BLOCK)
    for start in range(0, 1000, 100):
        fill(tier, chain(range(start, start + 64), even(4)))
        assert tier.stats().bytes <= 5 * BLOCK
        assert [] == tier.verify()
    assert 5 * BLOCK == tier.stats().bytes


def test_arrays_are_capped():
    """F8: the number of arrays is bounded as well as their bytes."""
    tier = HotTier(1000 * BLOCK, max_arrays=6)
    for start in (0, 100):
        fill(tier, chain(range(start, start + 32), even(2)))
    assert 6 == tier.stats().arrays
    assert [] == tier.verify()


def test_a_growing_conversation_never_loses_its_head():
    """B11: 30 turns of one block each, room for 12: what is kept is the head, and is kept to the end."""
    tier = HotTier(12 * BLOCK)
    blocks = chain(range(480), even(30))
    for turn, block in enumerate(blocks):
        tier.touch(b.name for b in reversed(blocks[:turn]) if tier.holds(b.name))
        tier.insert(block, records(block, FULL), 0, [b.name for b in blocks[:turn]])
        assert all(tier.holds(b.name) for b in blocks[: min(turn + 1, 12)])


def test_another_conversation_takes_over():
    """A new conversation gets two fifths of the tier at once, more when it is used again, and then all of it."""
    tier = HotTier(10 * BLOCK)
    old, new = chain(range(160), even(10)), chain(range(500, 660), even(10))
    fill(tier, old)
    tier.touch([b.name for b in reversed(old)])
    for kept in (4, 8, 10):
        assert [True] * kept + [False] * (10 - kept) == fill(tier, new)
        tier.touch([b.name for b in reversed(new[:kept])])
    assert not any(tier.holds(b.name) for b in old)


def test_giant_prompt_does_not_flush_the_rest():
    """A prompt larger than the tier, used once, leaves what is in use, up to three fifths of the budget."""
    tier = HotTier(12 * BLOCK)
    used = chain(range(96), even(6))
    fill(tier, used)
    tier.touch([b.name for b in reversed(used)])
    fill(tier, chain(range(1000, 1800), even(50)))
    assert all(tier.holds(b.name) for b in used)


def test_too_large_is_refused():
    """A record larger than the budget is refused, and nothing goes for it."""
    tier = HotTier(4 * BLOCK)
    fill(tier, chain(range(32), even(2)))
    (big,) = chain(range(100, 116), [16])
    layout = wide(64)
    assert (False, ()) == tier.insert(big, records(big, layout), 0, ())
    assert (2 * BLOCK, 1) == (tier.stats().bytes, tier.stats().refused_records)


def test_pins_are_counted():
    """A block pinned twice stays until it is unpinned twice."""
    tier = HotTier(2 * BLOCK)
    (pinned,) = chain(range(16), [16])
    fill(tier, [pinned])
    tier.pin([pinned.name, pinned.name])
    tier.unpin([pinned.name])
    for start in (100, 200):
        fill(tier, chain(range(start, start + 16), [16]))
    assert tier.holds(pinned.name)
    tier.unpin([pinned.name])
    assert 0 == tier.stats().pinned_blocks
    for start in (300, 400):
        fill(tier, chain(range(start, start + 16), [16]))
    assert not tier.holds(pinned.name)


def test_a_hit_is_a_reference():
    """The record that comes out is the one that went in."""
    tier = HotTier(BLOCK)
    (block,) = chain(range(16), [16])
    given = records(block, FULL)
    tier.insert(block, given, 0, ())
    assert tier.get(block.name, "kv") is given["kv"]
    assert (True, ()) == tier.insert(block, records(block, FULL), 0, ())
    assert tier.get(block.name, "kv") is given["kv"]


def test_a_lower_limit_holds_at_once_and_can_be_lifted():
    """F8: told to hold less, the tier drops blocks, used again or not, but no pinned one; then it may grow again."""
    tier = HotTier(8 * BLOCK)
    blocks = chain(range(64), even(4))
    fill(tier, blocks)
    tier.touch([block.name for block in blocks])
    gone = tier.limit(2 * BLOCK)
    assert [block.name for block in reversed(blocks[2:])] == [name for name, _ in gone]
    fill(tier, chain(range(200, 264), even(4)))
    assert tier.stats().bytes <= 2 * BLOCK
    [(pinned, _), *_] = tier.blocks()
    tier.pin([pinned.name])
    tier.limit(0)
    assert [pinned] == [block for block, _ in tier.blocks()]
    tier.limit(100 * BLOCK)
    fill(tier, chain(range(300, 556), even(16)))
    assert tier.stats().budget_bytes == tier.stats().bytes == 8 * BLOCK
    assert [] == tier.verify()
