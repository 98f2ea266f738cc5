"""Through the store and back: what either tier returns restores the bits that were computed."""

import numpy as np
import pytest

from omlx.prefix.hasher import Chain
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.types import Fingerprint
from tests.kv.parity import CHUNK, Piece, cold_run, forward, restored, tiny

MODEL = Fingerprint("a" * 32)


def _keep(store: BlockStore, family: str) -> None:
    """Put the blocks of the family's cold run into a store, each as its chunk was computed."""
    cold, model = cold_run(family), tiny(family)
    chain = Chain(MODEL, cold.tokens[:0], None)
    for start, end, records in cold.captured:
        placement = store.put(chain.cut(cold.tokens[start:end]), records, model.layout)
        assert placement.hot or placement.cold


def _last_logits(store: BlockStore, family: str, num_tokens: int):
    """Return where a prompt of the run's first tokens resumes, and the logits of what it computes."""
    cold, model = cold_run(family), tiny(family)
    tokens = cold.tokens[:num_tokens]
    loaded = store.load(store.match(MODEL, tokens, model.layout), model.layout)
    pieces = [Piece(piece.used, piece.block.num_tokens, piece.records) for piece in loaded.pieces]
    caches = restored(model, pieces, loaded.resume)
    return loaded.resume, np.array(forward(model, caches, tokens[loaded.resume :]))


def test_a_prompt_found_in_either_tier_is_bit_equal_to_a_cold_run(tmp_path, family, cold):
    """From RAM, and from disk after a restart, a repeated prompt's last token has the same bits."""
    count = len(cold.tokens)
    hot = BlockStore(HotTier(2**28), None)
    _keep(hot, family)
    stored = BlockStore(None, ColdTier(tmp_path, 2**28, min_free_bytes=0))
    _keep(stored, family)
    assert stored.flush(30)
    stored.close()
    reopened = BlockStore(None, ColdTier(tmp_path, 2**28, min_free_bytes=0))
    for store in (hot, reopened):
        resume, logits = _last_logits(store, family, count)
        assert resume == count - 1
        np.testing.assert_array_equal(logits, cold.logits[-1:])
        store.close()


@pytest.mark.parametrize("family", ["qwen3_5", "mamba2", "recurrent_gemma", "baichuan_m1"])
def test_a_branch_resumes_at_the_last_state_before_it(family):
    """A prompt that leaves the run between two snapshots goes on from the earlier one."""
    store = BlockStore(HotTier(2**28), None)
    _keep(store, family)
    resume, _ = _last_logits(store, family, 3 * CHUNK + 9)
    assert 3 * CHUNK == resume
    store.close()
