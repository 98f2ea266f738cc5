"""What a trace says would go is what then goes."""

import contextlib
import sqlite3
from dataclasses import replace

from omlx.explain.chain import evictions, planned
from omlx.explain.disk import DiskStore
from omlx.explain.dry import dry_run, dry_state
from omlx.store.cold import ColdTier
from omlx.store.eviction import Cost
from omlx.store.hot import HotTier
from omlx.store.preview import preview
from omlx.store.schema import block_key
from omlx.store.store import BlockStore
from omlx.text.chat import TextPrompt
from tests.explain.conftest import Bench

#: A block of 256 tokens of the fake model has 4 KiB.
BLOCK_BYTES = 256 * 16


def text(seed: str, blocks: int) -> TextPrompt:
    """Return a prompt of that many blocks."""
    return TextPrompt((seed + " and so on, line by line. " * 400)[: 256 * blocks])


def keys(store: BlockStore, tier: str) -> set:
    """Return what could go from a tier."""
    view = next(view for view in store.views() if view.tier == tier)
    return {(resident.name, kind) for resident in view.residents for kind in resident.records}


def test_h7_the_preview_is_what_goes(tmp_path):
    """H7: the oldest leaves go first, as many as foretold; nothing goes while asking."""
    store = BlockStore(HotTier(12 * BLOCK_BYTES), None)
    bench = Bench(store)
    groups = []
    for seed in ("first", "second", "third"):
        known = keys(store, "hot")
        bench.ask(text(seed, 3))
        groups.append(keys(store, "hot") - known)
    before = keys(store, "hot")
    [gone] = bench.explain(text("fourth", 5)).evictions
    assert before == keys(store, "hot")
    bench.ask(text("fourth", 5))
    lost = before - keys(store, "hot")
    assert gone.records == len(lost)
    untouched = next((at for at, group in enumerate(groups) if not group <= lost), len(groups))
    assert [] == [group for group in groups[untouched + 1 :] if group & lost]
    store.close()


def test_a_prompt_that_fits_evicts_nothing(bench):
    """With room to spare nothing would go."""
    assert () == bench.explain(text("one", 3)).evictions


def test_what_cannot_fit_is_said_to_be_refused(tmp_path):
    """A prompt larger than the tier is said not to fit, and is not kept whole."""
    store = BlockStore(HotTier(4 * BLOCK_BYTES), None)
    bench = Bench(store)
    [gone] = bench.explain(text("giant", 9)).evictions
    assert ("hot", True) == (gone.tier, gone.refused)
    bench.ask(text("giant", 9))
    assert len(keys(store, "hot")) < 9
    store.close()


def test_h7_the_disk_too(tmp_path):
    """H7: on disk the records that are foretold are among those that go."""
    cold = ColdTier(tmp_path / "blocks", 1024 * 1024, min_free_bytes=0)
    store = BlockStore(None, cold)
    bench = Bench(store)
    number = 0
    while not bench.explain(text("next", 6)).evictions:
        bench.ask(text(f"number {number}", 6))
        assert store.flush(10)
        number += 1
    before = keys(store, "cold")
    state = dry_state(bench.request(text("next", 6)), bench.talk.model)
    dry_run(bench.chain.stages, state, bench.talk.services)
    match = store.match(state.model.fingerprint, state.tokens, state.model.layout)
    new = planned(state, match, state.plan, bench.chain, bench.talk.services)
    [gone] = evictions(store.views(), match, new, state)
    bench.ask(text("next", 6))
    assert store.flush(10)
    lost = before - keys(store, "cold")
    assert gone.records <= len(lost)
    store.close()


def _aged(directory, names, seconds: float) -> None:
    """Set back the last use of blocks that are on disk, as if so many seconds had passed."""
    with contextlib.closing(sqlite3.connect(directory / "cache.db")) as table, table:
        for name in names:
            table.execute(
                "UPDATE Cache SET access_time = access_time - ? WHERE key = ?", (seconds, block_key(name))
            )


def test_h7_what_has_expired_goes_first(tmp_path):
    """H7: with an age limit, old blocks go before newer ones, used again or not; as foretold, and at a clean-up."""
    directory, options = tmp_path / "blocks", {"min_free_bytes": 0, "max_age_s": 86_400.0}
    store = BlockStore(None, ColdTier(directory, 2**30, **options))
    bench = Bench(store)
    groups = {}
    for seed in ("used again", "plain"):
        known = keys(store, "cold")
        for _ in range(2 if seed == "used again" else 1):
            bench.ask(text(seed, 2 if seed == "used again" else 6))
            assert store.flush(10)
        groups[seed] = keys(store, "cold") - known
    store.close()
    _aged(directory, {name for name, _ in groups["used again"]}, 2 * 86_400)
    disk = DiskStore(directory, 2**30, 1.0, 86_400.0)
    [view] = disk.views()
    full = replace(view, budget=view.held)
    foretold = preview(full, [Cost(BLOCK_BYTES)] * 3, ())
    assert set(foretold.evicted) <= groups["used again"]
    assert foretold.evicted
    store = BlockStore(None, ColdTier(directory, 2**30, **options))
    assert groups["plain"] == keys(store, "cold")
    store.close()
