"""Layers that drop tokens: any position can be resumed from the last window alone."""

import numpy as np
import pytest

from tests.kv.parity import BOUND, CHUNK, Tiny, decode, pieces_to, resumed, run, tiny, tokens_of
from tests.tiny_models import WINDOW, make_module, settings_of

# isort: split
from mlx_lm.models.cache import RotatingKVCache

FAMILIES = ("gemma3", "gpt_oss", "llama4", "recurrent_gemma", "baichuan_m1")


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("length", [WINDOW // 2, WINDOW, WINDOW + 1, 3 * WINDOW, 10 * WINDOW])
def test_a_repeated_prompt_computes_one_token_at_any_length(family, length):
    """Below, at and above the window a prompt resumes bit-equal before its last token and at a grid point."""
    model, tokens, captured = tiny(family), tokens_of(length), []
    logits = run(model, model.new_caches(), tokens, captured=captured)
    for resume in {length - 1, (length - 1) // CHUNK * CHUNK} - {0}:
        np.testing.assert_array_equal(
            resumed(model, tokens, pieces_to(captured, resume), resume), logits[resume:]
        )


@pytest.mark.parametrize("family", FAMILIES)
def test_a_resume_reads_the_last_window_only(family):
    """Window records older than the window before the resume point may be gone."""
    model, tokens, captured = tiny(family), tokens_of(4 * CHUNK + 2), []
    logits = run(model, model.new_caches(), tokens, captured=captured)
    pieces = pieces_to(captured, 4 * CHUNK, from_disk=True)
    for piece in pieces[:-1]:
        del piece.records["window"]
    assert WINDOW <= CHUNK
    np.testing.assert_array_equal(resumed(model, tokens, pieces, 4 * CHUNK), logits[4 * CHUNK :])


@pytest.mark.parametrize("family", FAMILIES)
def test_tokens_decoded_around_a_wrapped_ring_are_captured_in_order(family):
    """Captured a window at a time or one by one, decoded tokens give the same records."""
    model, tokens = tiny(family), tokens_of(4 * WINDOW)
    by_window, by_token = (
        decode(model, restored_start(model, tokens), tokens, WINDOW, every=every) for every in (WINDOW, 1)
    )
    for start, end, records in by_window:
        for name, buffer in records["window"].buffers.items():
            parts = [one["window"].buffers[name] for first, _, one in by_token if start <= first < end]
            np.testing.assert_array_equal(np.concatenate(parts, axis=2), buffer)


def restored_start(model: Tiny, tokens):
    """Return caches that hold the first window of tokens."""
    caches = model.new_caches()
    run(model, caches, tokens[:WINDOW])
    return caches


def test_what_a_kept_head_computes_depends_on_where_chunks_end():
    """Why `keep` is refused: mlx-lm answers differently when chunks end elsewhere, with nothing restored."""
    module = make_module(settings_of("llama"))
    model = Tiny(module, lambda: [RotatingKVCache(WINDOW, keep=4) for _ in module.layers], None)
    tokens = tokens_of(4 * CHUNK)
    whole = run(model, model.new_caches(), tokens)
    cut = run(model, model.new_caches(), tokens, cuts=[100])
    assert np.abs(whole - cut).max() > 100 * BOUND
