"""The store against a naive model, over random histories with restarts and crashes."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.types import as_tokens
from tests.sequences import LAYOUTS, MODEL, branch, chain, record, records

MIB = 1024**2


class StoreMachine(RuleBasedStateMachine):
    """Put, cancel, look up, load, hold, evict, delete, restart and crash; the model is the list of all blocks ever put.

    The model does not know what was evicted. It knows what may be found at most, and that whatever is found
    must be complete and right: each record is computed anew from all tokens before its end.
    """

    #: Rules taken over all histories.
    steps = 0

    @initialize(
        layout=st.sampled_from(sorted(LAYOUTS)),
        hot=st.sampled_from([None, 3 * 1024, MIB]),
        cold=st.sampled_from([None, MIB // 2 + 350 * 1024, 8 * MIB]),
    )
    def open(self, layout, hot, cold):
        """Choose layout and budgets."""
        self.layout = LAYOUTS[layout]
        self.hot, self.cold = (MIB, None) if hot is None and cold is None else (hot, cold)
        self.directory = Path(tempfile.mkdtemp(prefix="omlx-machine-"))
        self.stores = []
        self.blocks = {}
        self.sequences = [[]]
        self.held = []
        self.start()

    def start(self):
        """Open a store over the directory."""
        hot = None if self.hot is None else HotTier(self.hot)
        cold = None if self.cold is None else ColdTier(self.directory / "cache", self.cold, min_free_bytes=0)
        self.store = BlockStore(hot, cold)
        self.stores.append(self.store)

    @rule(data=st.data())
    def put(self, data):
        """Continue a known sequence from its end with new tokens, as the next turn does."""
        base = data.draw(st.sampled_from(self.sequences))
        new = data.draw(st.lists(st.integers(0, 2), min_size=1, max_size=40))
        self.write([*base, *new], data.draw(st.integers(1, len(base) + len(new))))

    @rule(data=st.data(), cancelled=st.booleans())
    def edit(self, data, cancelled):
        """Leave a known sequence somewhere; a request that is cancelled keeps what it had computed alone."""
        base = data.draw(st.sampled_from(self.sequences))
        keep = data.draw(st.integers(0, len(base)))
        new = data.draw(st.lists(st.integers(0, 2), min_size=2, max_size=40))
        tokens = [*base[:keep], *new]
        if cancelled:
            tokens = tokens[: keep + data.draw(st.integers(1, len(new) - 1))]
        self.write(tokens, data.draw(st.integers(1, len(tokens))))

    @rule(seed=st.integers(100, 2**20))
    def pass_by(self, seed):
        """A long prompt that shares nothing and is never asked again wants the room of others."""
        self.write([seed, *range(3, 160)], 80)
        self.sequences.pop()

    def write(self, tokens, cut):
        """Store what is not stored of a sequence, in two blocks at most, as `writeback` would."""
        match = self.store.match(MODEL, as_tokens(tokens), self.layout, limit=len(tokens))
        start = match.matched
        self.sequences.append(tokens)
        if start == len(tokens):
            return
        cuts = sorted({cut, len(tokens)} - set(range(start + 1)))
        parent = match.parent(start)
        made = branch(tokens, start, cuts, self.blocks[parent]) if parent else chain(tokens, cuts)
        for block in made:
            placement = self.store.put(block, records(block, self.layout), self.layout)
            if not (placement.hot or placement.cold):
                break
            self.blocks[block.name] = block

    @rule(data=st.data(), tail=st.lists(st.integers(0, 2), max_size=5))
    def load(self, data, tail):
        """Load what a prompt can reuse, and compare every array and the resume point with the model."""
        prompt = [*data.draw(st.sampled_from(self.sequences)), *tail, 9]
        match = self.store.match(MODEL, as_tokens(prompt), self.layout)
        loaded = self.store.load(match, self.layout)
        assert match.matched <= self.common(prompt)
        assert loaded.resume <= loaded.match.matched
        for piece in loaded.pieces:
            assert piece.block.tokens.tolist()[: piece.used] == prompt[piece.block.start :][: piece.used]
        self.compare(loaded)
        self.held = [*self.held[-3:], loaded]
        if not self.is_tight() and "state" not in self.layout.kinds():
            assert loaded.resume == min(match.matched, len(prompt) - 1) == self.common(prompt)

    def compare(self, loaded):
        """Compare every array that was loaded with one that is computed anew."""
        for piece in loaded.pieces:
            for kind, found in piece.records.items():
                expected = record(self.blocks[piece.block.name], kind, self.layout).buffers
                assert {n: a.tobytes() for n, a in expected.items()} == {
                    n: a.tobytes() for n, a in found.buffers.items()
                }

    @rule()
    def go_on(self):
        """A sequence that holds what it loaded finds it as it was, whatever happened to the store since."""
        for loaded in self.held:
            self.compare(loaded)

    def common(self, prompt):
        """Return how many tokens of the prompt stand in some sequence that was put."""
        return max(
            next(
                (i for i, (a, b) in enumerate(zip(known, prompt, strict=False)) if a != b),
                min(len(known), len(prompt)),
            )
            for known in self.sequences
        )

    def is_tight(self):
        """Return whether something may have been evicted or lost."""
        stats = self.store.stats()
        evicted = stats.hot and (stats.hot.evicted_records or stats.hot.refused_records) and not self.cold
        return evicted or self.cold == MIB // 2 + 350 * 1024 or self.lost

    lost = False

    @rule()
    def flush(self):
        """Wait for the writer."""
        assert self.store.flush(10)

    @precondition(lambda self: self.cold)
    @rule()
    def restart(self):
        """Close and open again."""
        self.store.flush(10)
        self.lost |= any(not self.store._cold.holds(name) for name in self.blocks)
        self.store.close()
        self.start()

    @precondition(lambda self: self.cold and len(self.stores) < 4)
    @rule()
    def crash(self):
        """Open the directory again without closing it: what was queued may be lost, nothing else."""
        self.lost = True
        self.start()

    @precondition(lambda self: self.cold)
    @rule(data=st.data())
    def delete_a_file(self, data):
        """Somebody deletes a file."""
        choice = data.draw(st.integers(0, 2**16))
        self.store.flush(10)
        ledger = self.store._cold._table.ledger
        files = sorted(
            (name, kind, r.filename) for name in self.blocks for kind, r in ledger.records(name).items()
        )
        if files:
            self.lost = True
            (self.directory / "cache" / files[choice % len(files)][2]).unlink(missing_ok=True)
            self.store._cold._clean_up_at = 0
            self.store._cold.maintain()

    @rule()
    def resubmit(self):
        """Queue what is in RAM only."""
        self.store.resubmit(list(self.blocks)[:5])

    @invariant()
    def verified(self):
        """All invariants hold, but for holes that a deleted file made."""
        if not hasattr(self, "store"):
            return
        StoreMachine.steps += 1
        self.store.flush(10)
        assert [] == [problem for problem in self.store.verify() if "continues" not in problem]

    def teardown(self):
        """Close all stores."""
        for store in getattr(self, "stores", []):
            if store is not self.store:
                store.flush(10)
        for store in getattr(self, "stores", []):
            store.close()
        if hasattr(self, "directory"):
            shutil.rmtree(self.directory)


def test_whatever_is_found_is_complete_and_right():
    """Over 500 steps and more of random histories, no lookup, tier or sequence holds what was not computed so."""
    StoreMachine.steps = 0
    run_state_machine_as_test(
        StoreMachine,
        settings=settings(
            max_examples=40,
            stateful_step_count=30,
            deadline=None,
            suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
        ),
    )
    assert StoreMachine.steps >= 500
