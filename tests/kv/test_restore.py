"""Restored equals computed: caches filled from records go on exactly as those that computed them."""

import random

import numpy as np
import pytest

from omlx.errors import CacheError
from tests.kv.parity import (
    BOUND,
    CHUNK,
    assert_within_bound,
    cold_run,
    decode,
    host_copy,
    pieces_to,
    restored,
    resumed,
    run,
    tiny,
    tokens_of,
)

# isort: split
from omlx.kv.families import read, walk
from omlx.kv.restore import restore


def test_a_resume_at_a_grid_point_is_bit_equal_to_a_cold_run(model, cold):
    """At multiples of the chunk, and before the last token, all logits have the bits of a cold run."""
    end = len(cold.tokens) - 1
    for resume in [*range(CHUNK, end, CHUNK), end]:
        logits = resumed(model, cold.tokens, pieces_to(cold.captured, resume), resume)
        np.testing.assert_array_equal(logits, cold.logits[resume:])


def test_a_resume_anywhere_is_bit_equal_to_a_cold_run_with_a_chunk_end_there(model, cold):
    """Between grid points only the chunks' shape differs: a cold run that is cut there has the same bits."""
    for resume in random.Random(7).sample(range(5, len(cold.tokens) - 1), 2):
        captured: list = []
        cut = run(model, model.new_caches(), cold.tokens, captured=captured, cuts=[resume])
        logits = resumed(model, cold.tokens, pieces_to(captured, resume), resume)
        np.testing.assert_array_equal(logits, cut[resume:])


def test_a_resume_between_grid_points_differs_by_rounding_alone(family, model, cold):
    """Whether the records were cut there or longer ones are used in part, logits stay within the bound."""
    for resume in random.Random(11).sample(range(5, len(cold.tokens) - 1), 2):
        captured = cold.captured
        if "state" in model.layout.kinds():  # a state cannot be used in part
            captured = []
            run(model, model.new_caches(), cold.tokens[: resume + 1], captured=captured)
        logits = resumed(model, cold.tokens, pieces_to(captured, resume), resume)
        assert_within_bound(family, logits, cold.logits[resume:])


def test_records_in_ram_and_from_disk_are_bit_equal(model, cold):
    """It makes no difference whether a record was ready or had been stored."""
    for resume in (3 * CHUNK, len(cold.tokens) - 1):
        hot = resumed(model, cold.tokens, pieces_to(cold.captured, resume), resume)
        stored = resumed(model, cold.tokens, pieces_to(cold.captured, resume, from_disk=True), resume)
        np.testing.assert_array_equal(hot, stored)


def test_records_of_other_tokens_change_the_answer(model, cold):
    """What is restored matters: with records of another prompt, logits move by far more than the bound."""
    captured: list = []
    run(model, model.new_caches(), tokens_of(len(cold.tokens), seed=5), captured=captured)
    for resume in (3 * CHUNK, len(cold.tokens) - 1):
        logits = resumed(model, cold.tokens, pieces_to(captured, resume), resume)
        assert np.abs(logits - cold.logits[resume:]).max() > 100 * BOUND


def test_tokens_captured_while_decoding_restore_the_caches_that_decoded_them(family, model, cold):
    """After two windows of decoded tokens a prompt goes on as from the live caches, and as a cold run."""
    every = min((group.window for group in model.layout.groups if group.window), default=40)
    end = CHUNK + 2 * every
    caches = restored(model, pieces_to(cold.captured, CHUNK), CHUNK)
    captured = cold.captured[:1] + decode(model, caches, cold.tokens[:end], CHUNK, every=every)
    live = run(model, caches, cold.tokens, end)
    logits = resumed(model, cold.tokens, pieces_to(captured, end, from_disk=True), end)
    np.testing.assert_array_equal(logits, live)
    assert_within_bound(family, logits, cold.logits[end:])


def test_records_do_not_change_when_the_sequence_goes_on(model, cold):
    """A record is a copy: what the sequence computes later leaves its bytes as they were."""
    caches = model.new_caches()
    captured: list = []
    run(model, caches, cold.tokens[:101], captured=captured)
    records = [record for _, _, by_kind in captured for record in by_kind.values()]
    before = [host_copy(record).buffers for record in records]
    run(model, caches, cold.tokens, 101)
    for record, buffers in zip(records, before, strict=True):
        assert record.buffers.keys() == buffers.keys()
        for name, buffer in buffers.items():
            np.testing.assert_array_equal(record.buffers[name], buffer)


def test_a_missing_kind_of_record_is_an_error_that_fills_nothing(model, cold):
    """A restore that lacks what one kind of layer needs raises, and leaves every cache empty."""
    for kind in model.layout.kinds():
        pieces = pieces_to(cold.captured, 2 * CHUNK, from_disk=True)
        for piece in pieces:
            piece.records.pop(kind)
        caches = model.new_caches()
        with pytest.raises(CacheError, match=f"no {kind} record"):
            restore(caches, model.layout, pieces, 2 * CHUNK)
        assert not any(read(cache).arrays for _, cache in walk(caches))


def test_a_state_used_in_part_is_an_error():
    """A state is that of its block's end: a piece that ends before it cannot give one."""
    with pytest.raises(CacheError, match="no state record of position 100"):
        restored(tiny("mamba2"), pieces_to(cold_run("mamba2").captured, 100), 100)


def test_records_that_do_not_reach_back_are_an_error():
    """Without the first block of `kv`, or with a part of the last window alone, there is no restore."""
    pieces = pieces_to(cold_run("llama").captured, 2 * CHUNK)
    with pytest.raises(CacheError, match="no kv record holds token 0 of"):
        restored(tiny("llama"), pieces[1:], 2 * CHUNK)
    pieces = pieces_to(cold_run("gemma3").captured, 2 * CHUNK + 9)
    del pieces[0].records["window"], pieces[1].records["window"]
    with pytest.raises(CacheError, match="no window record holds token 89 of"):
        restored(tiny("gemma3"), pieces, 2 * CHUNK + 9)
