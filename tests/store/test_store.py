"""Both tiers behind one door."""

import os
import random
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import pytest
from structlog.testing import capture_logs

from omlx.errors import CacheError
from omlx.prefix.hasher import Chain
from omlx.store.record import Record
from omlx.store.store import BlockStore, Placement
from omlx.types import as_tokens
from tests.sequences import (
    FULL,
    HYBRID,
    LAYOUTS,
    MODEL,
    OTHER_MODEL,
    RECURRENT,
    SLIDING,
    branch,
    chain,
    even,
    record,
    records,
    wide,
)

MIB = 1024**2
BIG = wide(512)
BIG_BYTES = 16 * 2 * 2 * 512 * 4


def put(store, blocks, layout=FULL):
    """Put blocks in order."""
    return [store.put(block, records(block, layout), layout) for block in blocks]


def reuse(store, tokens, layout=FULL, fingerprint=MODEL):
    """Match and load; return the resume point, after comparing all that was loaded with what was put."""
    match = store.match(fingerprint, as_tokens(tokens), layout)
    loaded = store.load(match, layout)
    for piece in loaded.pieces:
        assert fingerprint == piece.block.fingerprint
        for kind, found in piece.records.items():
            for name, array in record(piece.block, kind, layout).buffers.items():
                assert array.tobytes() == found.buffers[name].tobytes()
    assert_complete(loaded, layout)
    return loaded.resume


def assert_complete(loaded, layout):
    """Every kind of the layout has what it needs at the resume point."""
    if not loaded.resume:
        assert () == loaded.pieces
        return
    begins = {"kv": 0, "window": max(0, loaded.resume - layout.window_tokens())}
    for kind in layout.kinds():
        spans = [(p.block.start, p.block.start + p.used) for p in loaded.pieces if kind in p.records]
        assert loaded.resume == spans[-1][1]
        if kind in begins:
            assert spans[0][0] <= begins[kind]
            assert all(a[1] == b[0] for a, b in pairwise(spans))


def path_of(store, block, kind="kv"):
    """Return the file of a record."""
    cold = store._cold
    return cold.directory / cold._table.ledger.records(block.name)[kind].filename


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
@pytest.mark.parametrize("tiers", ["hot", "cold", "both"])
def test_what_was_put_is_found(stores, layout, tiers):
    """Every layout is restored bit for bit from RAM, from disk, and from both."""
    store = stores.store(hot=None if tiers == "cold" else 16 * MIB, cold=None if tiers == "hot" else 16 * MIB)
    placements = put(store, chain(range(96), even(6)), layout)
    assert [Placement(hot=tiers != "cold", cold=tiers != "hot")] * 6 == placements
    assert store.flush(10)
    assert 96 == reuse(store, range(100), layout)
    assert [] == store.verify()


@pytest.mark.parametrize("layout", LAYOUTS.values(), ids=LAYOUTS)
def test_a_restart_finds_everything(stores, layout):
    """B12: after a restart the same prompt is restored from disk alone."""
    store = stores.store()
    put(store, chain(range(96), even(6)), layout)
    stores.close(store)
    store = stores.store()
    assert 96 == reuse(store, range(100), layout)
    assert (0, 0) == (store.stats().hot_hit_records, store.stats().cold.corrupt_records)
    assert 96 == reuse(store, range(100), layout)
    assert store.stats().hot_hit_records == store.stats().cold_hit_records
    assert [] == store.verify()


def test_a_match_changes_nothing(stores):
    """A lookup is no use: neither counters, nor sizes, nor access times change."""
    store = stores.store()
    put(store, chain(range(48), even(3)))
    store.flush(10)
    before = store.stats()
    used = {name: (use.accessed, use.uses) for name, use in store._cold._table.ledger._used.items()}
    assert 48 == store.match(MODEL, as_tokens(range(60)), FULL).resume
    assert before == store.stats()
    assert used == {name: (use.accessed, use.uses) for name, use in store._cold._table.ledger._used.items()}


@pytest.mark.parametrize(("missing", "resume"), [(1, 0), (5, 64), (8, 112)])
def test_one_missing_block_keeps_those_before_it(stores, missing, resume):
    """A3: blocks before a deleted one are used; it is written again, and then all are used again."""
    store = stores.store()
    blocks = chain(range(128), even(8))
    put(store, blocks)
    store.flush(10)
    victim = path_of(store, blocks[missing - 1])
    stores.close(store)
    victim.unlink()
    store = stores.store()
    assert resume == reuse(store, range(130))
    put(store, blocks)
    store.flush(10)
    assert path_of(store, blocks[missing - 1]).exists()
    assert 128 == reuse(store, range(130))
    stores.close(store)
    store = stores.store()
    assert 128 == reuse(store, range(130))
    assert [] == store.verify()


def test_sessions_never_get_each_others_records(stores):
    """A5: 20 sessions, RAM for 2, resumed by 4 threads in random order: each gets its own records, always."""
    store = stores.store(hot=2 * 7 * 1024 * 2)
    sessions = []
    for code in range(20):
        tokens = [*range(16), *(10_000_000 + code * 8 + digit for digit in range(8)), *range(200, 288)]
        sessions.append(tokens)
        put(store, chain(tokens, [16, 24, 40, 56, 72, 88, 104, 112]), SLIDING)
    store.flush(10)
    order = [tokens for tokens in sessions for _ in range(5)]
    random.Random(0).shuffle(order)
    with ThreadPoolExecutor(4) as threads:
        resumes = list(threads.map(lambda tokens: reuse(store, [*tokens, 1], SLIDING), order))
    assert [112] * 100 == resumes
    assert store.stats().cold_hit_records > 100
    assert [] == store.verify()


def test_a_corrupt_record_is_a_shorter_match_once(stores):
    """A6: 64 flipped bytes: a shorter match, one counter, one line, the file gone.

    Other requests are not touched.
    """
    store = stores.store()
    blocks, others = chain(range(96), even(6)), chain(range(500, 596), even(6))
    put(store, [*blocks, *others])
    store.flush(10)
    victim = path_of(store, blocks[3])
    stores.close(store)
    data = bytearray(victim.read_bytes())
    data[-100:-36] = bytes(byte ^ 0xFF for byte in data[-100:-36])
    victim.write_bytes(data)
    store = stores.store()
    assert 96 == store.match(MODEL, as_tokens(range(100)), FULL).resume
    with capture_logs() as lines:
        assert 48 == reuse(store, range(100))
    assert 1 == len([line for line in lines if line["event"] == "cache record corrupt"])
    assert (1, 1) == (store.stats().cold.corrupt_records, store.stats().shortened_loads)
    assert not victim.exists()
    assert 96 == reuse(store, range(500, 600))
    assert 48 == reuse(store, range(100))
    assert 1 == store.stats().cold.corrupt_records
    assert [] == store.verify()


@pytest.mark.parametrize("damage", [-1, -100, -1000, +10])
def test_a_file_of_the_wrong_length_is_a_miss(stores, damage):
    """B10: files that were cut or that grew are rejected, and dropped."""
    store = stores.store(hot=None)
    blocks = chain(range(48), even(3))
    put(store, blocks)
    store.flush(10)
    os.truncate(path_of(store, blocks[1]), path_of(store, blocks[1]).stat().st_size + damage)
    assert 16 == reuse(store, range(50))
    assert 1 == store.stats().cold.corrupt_records


def test_missing_state_is_never_a_hit(stores):
    """A10: kv without its state is not used: the match falls back to the last complete snapshot."""
    store = stores.store()
    blocks = chain(range(96), even(6))
    put(store, blocks, HYBRID)
    store.flush(10)
    victims = [path_of(store, block, "state") for block in blocks[4:]]
    stores.close(store)
    for victim in victims:
        victim.unlink()
    assert 64 == reuse(stores.store(), range(100), HYBRID)


def test_models_share_nothing(stores):
    """A8: the same prompt under another fingerprint finds nothing, and both keep their own."""
    store = stores.store()
    put(store, chain(range(48), even(3)))
    assert 0 == reuse(store, range(50), fingerprint=OTHER_MODEL)
    put(store, chain(range(48), even(3), OTHER_MODEL))
    assert 48 == reuse(store, range(50))
    assert 48 == reuse(store, range(50), fingerprint=OTHER_MODEL)


def test_record_of_another_shape_is_refused(stores):
    """I3: a record that does not have the layout's shapes is an error at `put`, and a miss at `load`."""
    store = stores.store(hot=None)
    (block,) = chain(range(16), [16])
    with pytest.raises(CacheError, match="layout says"):
        store.put(block, records(block, wide(8)), FULL)
    put(store, [block], wide(8))
    store.flush(10)
    assert 0 == reuse(store, range(20), FULL)
    assert 1 == store.stats().cold.corrupt_records


def test_a_fork_writes_only_what_is_new(stores):
    """A request that leaves a stored one in mid-block stores its own tokens from there on."""
    store = stores.store()
    put(store, chain(range(48), even(3)))
    tokens = [*range(40), *range(900, 940)]
    match = store.match(MODEL, as_tokens(tokens), FULL)
    assert (40, 40) == (match.resume, match.stored)
    cursor = Chain(MODEL, as_tokens(tokens[:40]), match.parent(40))
    block = cursor.cut(as_tokens(tokens[40:]))
    assert Placement(hot=True, cold=True) == store.put(block, records(block, FULL), FULL)
    store.flush(10)
    assert 80 == reuse(store, [*tokens, 1])
    assert 48 == reuse(store, range(60))


def test_a_growing_conversation_writes_new_blocks_only(stores):
    """B15: 20 turns of one block each write 20 records; sending a prompt again writes none."""
    store = stores.store()
    blocks = chain(range(320), even(20))
    for turn in range(1, 21):
        put(store, blocks[:turn])
        store.flush(10)
    stats = store.stats().cold
    assert 20 == stats.written_records
    assert stats.written_bytes <= 1.2 * 20 * FULL.record_bytes("kv", 16)
    put(store, blocks)
    store.flush(10)
    assert stats.written_bytes == store.stats().cold.written_bytes


def test_a_slow_disk_leaves_no_hole(stores):
    """B6: the writer cannot keep up: queued bytes stay bounded, and what is on disk is an unbroken head."""

    def slow(_directory):
        time.sleep(0.02)
        return 10**12

    store = stores.store(hot=None, queue_bytes=5 * BIG_BYTES, free=slow)
    blocks = chain(range(64 * 16), even(64))
    placements = []
    for block in blocks:
        placements.append(store.put(block, records(block, BIG), BIG).cold)
        assert store.stats().queue.bytes <= 5 * BIG_BYTES
    assert placements == sorted(placements, reverse=True)
    assert 5 <= sum(placements) < 64
    assert store.flush(10)
    assert 16 * sum(placements) == reuse(store, range(64 * 16), BIG)
    assert store.stats().queue.rejected_records > 0
    assert [] == store.verify()


def test_what_the_queue_refused_is_written_later(stores):
    """B6: blocks in RAM that the queue had no room for are written when it is idle, and by `resubmit`."""

    def slow(_directory):
        time.sleep(0.01)
        return 10**12

    store = stores.store(queue_bytes=3 * BIG_BYTES, free=slow)
    blocks = chain(range(40 * 16), even(40))
    placements = put(store, blocks, BIG)
    assert all(p.hot for p in placements)
    assert not all(p.cold for p in placements)
    assert store.flush(20)
    assert all(store._cold.holds(block.name) for block in blocks)
    assert 40 == store.resubmit(block.name for block in blocks)


def test_a_lookup_that_races_a_write_is_served_from_ram(stores):
    """Records that are still queued are found, with or without a hot tier."""

    def slow(_directory):
        time.sleep(0.05)
        return 10**12

    store = stores.store(hot=None, free=slow)
    put(store, chain(range(96), even(6)))
    match = store.match(MODEL, as_tokens(range(100)), FULL)
    assert (96, 96) == (match.resume, match.hot_tokens + match.cold_tokens)
    assert match.hot_tokens > 0
    assert 96 == reuse(store, range(100))
    store.flush(10)
    assert 96 == store.match(MODEL, as_tokens(range(100)), FULL).cold_tokens


def test_close_keeps_the_hottest(stores):
    """B7: 100 blocks in RAM that the queue cannot hold are all on disk after close.

    Twice in quick succession too.
    """
    blocks = chain(range(1600), even(100))
    store = stores.store(queue_bytes=4 * FULL.record_bytes("kv", 16))
    put(store, blocks)
    stores.close(store)
    store = stores.store()
    assert 1600 == reuse(store, range(1700))
    more = branch(range(1680), 1600, [1616, 1632, 1648, 1664, 1680], blocks[-1])
    put(store, more)
    stores.close(store)
    assert 1680 == reuse(stores.store(), range(1700))


def test_close_tells_what_it_gave_up(stores):
    """B7: when the time at close runs out, the number of records that were given up is logged."""

    def slow(_directory):
        time.sleep(0.05)
        return 10**12

    store = stores.store(free=slow)
    put(store, chain(range(1600), even(100)))
    stores._open.remove(store)
    with capture_logs() as lines:
        store.close(timeout_s=0.2)
    (line,) = [line for line in lines if "given up" in line["event"]]
    assert line["queued"] > 50


def test_hot_only_conversation_keeps_its_head(stores):
    """B11: RAM for 12 blocks, no disk, 30 turns: all that fits is reused, never nothing."""
    store = stores.store(hot=12 * FULL.record_bytes("kv", 16), cold=None)
    blocks = chain(range(480), even(30))
    for turn, block in enumerate(blocks):
        assert 16 * min(turn, 12) == reuse(store, range(16 * turn + 1))
        store.put(block, records(block, FULL), FULL)
        assert [] == store.verify()


def test_hot_only_conversation_outlives_a_giant_prompt(stores):
    """B11: a conversation in use stays in RAM when a prompt larger than RAM comes by once."""
    store = stores.store(hot=12 * FULL.record_bytes("kv", 16), cold=None)
    blocks = chain(range(96), even(6))
    put(store, blocks)
    assert 96 == reuse(store, range(100))
    put(store, chain(range(1000, 1480), even(30)))
    assert 96 == reuse(store, range(100))


def test_sliding_conversation_drops_old_windows_first(stores):
    """B11: on a sliding model it is the old window records that go; the conversation stays a full hit."""
    per_block = SLIDING.record_bytes("kv", 16)
    store = stores.store(hot=16 * per_block, cold=None)
    blocks = chain(range(160), even(10))
    for turn, block in enumerate(blocks):
        assert 16 * turn == reuse(store, range(16 * turn + 1), SLIDING)
        store.put(block, records(block, SLIDING), SLIDING)
    assert 160 == reuse(store, range(200), SLIDING)
    assert [] == store.verify()


def test_hybrid_conversation_drops_old_states_first(stores):
    """B11: on a hybrid model old snapshots go first; the conversation stays a full hit."""
    heavy = wide(4)
    layout = type(heavy)(
        (heavy.groups[0], type(heavy.groups[0])("state", ((0,),), RECURRENT.groups[0].tensors))
    )
    room = 12 * layout.record_bytes("kv", 16) + 4 * layout.record_bytes("state", 16)
    store = stores.store(hot=room, cold=None)
    blocks = chain(range(192), even(12))
    for turn, block in enumerate(blocks):
        assert 16 * turn == reuse(store, range(16 * turn + 1), layout)
        store.put(block, records(block, layout), layout)
    assert 192 == reuse(store, range(200), layout)


def test_hot_eviction_falls_back_to_disk(stores):
    """What RAM has no room for comes from disk; both budgets hold."""
    store = stores.store(hot=4 * 1024)
    blocks = chain(range(160), even(10))
    put(store, blocks)
    store.flush(10)
    for _ in range(3):
        assert 160 == reuse(store, range(170))
        assert store.stats().hot.bytes <= 4 * 1024
    assert [] == store.verify()


def test_a_block_without_its_parent_is_refused(stores):
    """A block that could never be found is not kept anywhere."""
    store = stores.store()
    blocks = chain(range(32), even(2))
    assert Placement(hot=False, cold=False) == store.put(blocks[1], records(blocks[1], FULL), FULL)
    assert 0 == store.stats().index_blocks


def test_device_arrays_stay_in_ram(stores):
    """A record that has device arrays alone is kept hot, and is not written."""
    store = stores.store()
    (block,) = chain(range(16), [16])
    arrays = {name: np.asarray(a) for name, a in record(block, "kv", FULL).buffers.items()}
    assert Placement(hot=True, cold=False) == store.put(block, {"kv": Record("kv", None, arrays)}, FULL)
    store.flush(10)
    assert 16 == store.load(store.match(MODEL, as_tokens(range(20)), FULL), FULL).resume
    assert 0 == store.stats().cold.records


def test_clear_forgets_one_model_or_all(stores):
    """H4: clearing one model leaves the other; clearing all leaves nothing in RAM or on disk."""
    store = stores.store()
    put(store, chain(range(48), even(3)))
    put(store, chain(range(48), even(3), OTHER_MODEL))
    store.flush(10)
    assert 3 == store.clear(MODEL)
    assert [0, 48] == [reuse(store, range(50)), reuse(store, range(50), fingerprint=OTHER_MODEL)]
    assert 3 == store.clear()
    stats = store.stats()
    assert (0, 0, 0) == (stats.hot.records, stats.cold.records, stats.index_blocks)
    assert [] == list(stores.directory.rglob("*.omlx.*"))
    assert [] == store.verify()


def test_blocks_of_a_time_of_trouble_are_written_afterwards(stores):
    """B5: what could not be written while the directory was gone is written when it is back."""
    store = stores.store(retry_s=0.2)
    store._cold._device += 1
    moved = stores.directory.rename(stores.directory.with_name("drive"))
    blocks = chain(range(64), even(4))
    put(store, blocks)
    assert not store.flush(0.1) or store.stats().cold.suspended
    assert "not mounted" in store.stats().cold.suspended
    assert 64 == reuse(store, range(70))
    moved.rename(stores.directory)
    time.sleep(0.25)
    assert store.flush(10)
    assert all(store._cold.holds(block.name) for block in blocks)


def test_two_stores_on_one_directory(stores):
    """B16: what one store writes, another finds.

    What one evicts is a miss for the other; both stay within the budget.
    """
    first, second = (stores.store(hot=None, cold=3 * MIB) for _ in range(2))
    blocks = chain(range(64), even(4))
    put(first, blocks, BIG)
    first.flush(10)
    assert 64 == reuse(second, range(70), BIG)
    for start in range(1000, 4000, 100):
        put(first if start % 200 else second, chain(range(start, start + 16), [16]), BIG)
        assert first.flush(10)
        assert second.flush(10)
        assert first.stats().cold.bytes <= 3 * MIB
    for store in (first, second):
        for start in range(1000, 4000, 100):
            assert reuse(store, range(start, start + 20), BIG) in (0, 16)
        assert [] == store.verify()
    assert first.stats().cold.records == second.stats().cold.records


def test_writer_outlives_an_unexpected_error(stores, monkeypatch):
    """F1: an error that nobody foresaw is logged with its traceback; the next block is written."""
    store = stores.store()
    blocks = [chain(range(s, s + 16), [16])[0] for s in (0, 100)]
    monkeypatch.setattr("omlx.store.tensorfile.pack", lambda *_: 1 / 0)
    with capture_logs() as lines:
        put(store, blocks[:1])
        assert store.flush(10)
    assert 1 == len([line for line in lines if line["event"] == "cache writer failed" and line["exc_info"]])
    monkeypatch.undo()
    put(store, blocks[1:])
    store.flush(10)
    assert [False, True] == [store._cold.holds(block.name) for block in blocks]
    assert 1 == store.stats().queue.abandoned_records


def test_pins_keep_a_prefix_in_ram(stores):
    """H3: pinned blocks survive any amount of other traffic."""
    store = stores.store(hot=8 * 1024, cold=None)
    pinned = chain(range(64), even(4))
    put(store, pinned)
    store.pin([block.name for block in pinned])
    for start in range(1000, 9000, 100):
        put(store, chain(range(start, start + 32), even(2)))
    assert 64 == reuse(store, range(70))
    store.unpin([block.name for block in pinned])
    assert 0 == store.stats().hot.pinned_blocks


def test_a_store_needs_a_tier():
    """Neither RAM nor disk is an error, not a cache that does nothing."""
    with pytest.raises(ValueError, match="hot tier, a cold tier"):
        BlockStore(None, None)


def test_orphans_are_cleared_alone(stores):
    """I4: once the models in use are known, only blocks of others can be cleared by that name; unknown, none can."""
    for fingerprint in (MODEL, OTHER_MODEL):
        store = stores.store()
        put(store, chain(range(48), even(3), fingerprint))
        stores.close(store)
    store = stores.store()
    assert 0 == store.clear_orphans()
    store.adopt(frozenset({MODEL}))
    orphaned = store.stats().cold.orphan_bytes
    assert 0 < orphaned < store.stats().cold.bytes
    assert 3 == store.clear_orphans()
    assert [48, 0] == [reuse(store, range(50)), reuse(store, range(50), fingerprint=OTHER_MODEL)]
    assert 0 == store.stats().cold.orphan_bytes


def test_what_another_process_uses_is_no_orphan(stores):
    """I4: a model that somebody used since the table was opened stays, whoever configured it."""
    first = stores.store()
    first.adopt(frozenset({MODEL}))
    put(first, chain(range(48), even(3), OTHER_MODEL))
    first.flush(10)
    assert 0 == first.stats().cold.orphan_bytes
    assert 0 == first.clear_orphans()
