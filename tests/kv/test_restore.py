"""Restored equals computed: caches filled from records go on exactly as those that computed them."""

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from omlx.config.settings import ModelSettings
from omlx.models.load import load
from omlx.models.loaded import LoadedModel
import mlx.core as mx  # noqa: I001 - after omlx.models, which loads the BLAS

from omlx.kv.capture import capture
from omlx.kv.restore import restore
from omlx.pipeline.chunks import chunk_ends
from omlx.pipeline.work import Piece
from omlx.store.record import Record

CHUNK = 64
#: The bound of the contract on float32 logits between grid points.
BOUND = 1e-4


def _run(loaded: LoadedModel, caches, tokens, start: int, captured: list | None = None):
    """Prefill from `start` on the grid, then run the last token; return its logits as NumPy."""
    for end in chunk_ends(start, len(tokens) - 1, CHUNK):
        loaded.module(mx.array(tokens[start:end])[None], cache=caches)
        mx.eval([cache.state for cache in caches])
        if captured is not None:
            captured.append((start, end, capture(caches, loaded.layout, [(start, end)])[0]))
        start = end
    logits = loaded.module(mx.array(tokens[-1:])[None], cache=caches)
    mx.eval(logits)
    return np.array(logits)


def _pieces(captured: Sequence, resume: int, *, from_disk: bool) -> list[Piece]:
    """Return the pieces of `[0, resume)`; from disk means host buffers only, copied as a file would be."""
    pieces = []
    for start, end, records in captured:
        if start < resume:
            held = {kind: _host_copy(record) if from_disk else record for kind, record in records.items()}
            pieces.append(Piece(min(end, resume) - start, end - start, held))
    return pieces


def _host_copy(record: Record) -> Record:
    return Record(record.kind, {name: buffer.copy() for name, buffer in record.buffers.items()}, None)


def _tokens(count: int, seed: int = 0):
    return np.random.default_rng(seed).integers(8, 500, count).astype(np.int32)


@pytest.fixture
def loaded(model_folder: Path) -> LoadedModel:
    return load("tiny", ModelSettings(path=str(model_folder)), model_folder)


@pytest.fixture
def cold(loaded: LoadedModel):
    """Return tokens, what was captured while they were computed, and the logits of the last one."""
    tokens, captured = _tokens(400), []
    return tokens, captured, _run(loaded, loaded.new_caches(), tokens, 0, captured)


def _resumed(loaded: LoadedModel, cold, resume: int, *, from_disk: bool):
    tokens, captured, _ = cold
    caches = loaded.new_caches()
    restore(caches, loaded.layout, _pieces(captured, resume, from_disk=from_disk), resume)
    return _run(loaded, caches, tokens, resume)


@pytest.mark.parametrize("resume", [*range(CHUNK, 399, CHUNK), 399])
def test_a_resume_at_a_grid_point_is_bit_equal_to_a_cold_run(loaded, cold, resume):
    """At multiples of the chunk, and before the last token, the logits have the same bits."""
    np.testing.assert_array_equal(cold[2], _resumed(loaded, cold, resume, from_disk=False))


def test_a_resume_between_grid_points_differs_by_rounding_alone(loaded, cold):
    """At 20 random cut points the logits stay within the bound of the contract."""
    rng = random.Random(7)
    differences = [
        float(np.abs(_resumed(loaded, cold, rng.randrange(1, 399), from_disk=False) - cold[2]).max())
        for _ in range(20)
    ]
    assert max(differences) <= BOUND


def test_records_in_ram_and_from_disk_are_bit_equal(loaded, cold):
    """At 20 random cut points it makes no difference whether a record was ready or had been stored."""
    rng = random.Random(11)
    for resume in [rng.randrange(1, 399) for _ in range(20)]:
        hot = _resumed(loaded, cold, resume, from_disk=False)
        np.testing.assert_array_equal(hot, _resumed(loaded, cold, resume, from_disk=True))


def test_tokens_captured_while_decoding_restore_within_the_bound(loaded):
    """KV of decoded tokens carries the rounding of decoding: a resume after it stays within the bound."""
    tokens, captured = _tokens(230), []
    caches = loaded.new_caches()
    _run(loaded, caches, tokens[:201], 0, captured)
    for position in range(201, 229):
        loaded.module(mx.array(tokens[position : position + 1])[None], cache=caches)
    captured.append((200, 229, capture(caches, loaded.layout, [(200, 229)])[0]))
    fresh = _run(loaded, loaded.new_caches(), tokens, 0)
    resumed = loaded.new_caches()
    restore(resumed, loaded.layout, _pieces(captured, 229, from_disk=True), 229)
    assert float(np.abs(_run(loaded, resumed, tokens, 229) - fresh).max()) <= BOUND


def test_records_do_not_change_when_the_sequence_goes_on(loaded):
    """A record is a copy: what the sequence computes later leaves its bytes as they were."""
    tokens = _tokens(200)
    caches = loaded.new_caches()
    captured: list = []
    _run(loaded, caches, tokens[:101], 0, captured)
    before = {(i, k): _host_copy(r).buffers for i, (_, _, rs) in enumerate(captured) for k, r in rs.items()}
    loaded.module(mx.array(tokens[101:])[None], cache=caches)
    mx.eval([cache.state for cache in caches])
    for i, (_, _, records) in enumerate(captured):
        for kind, record in records.items():
            for name, buffer in record.buffers.items():
                np.testing.assert_array_equal(before[i, kind][name], buffer)


def test_a_record_keeps_no_more_memory_than_its_tokens(tmp_path):
    """Also for a model of one layer a record is a copy, not a view that keeps the whole sequence alive."""
    from tests.tiny_models import make_model

    folder = make_model(tmp_path / "one", "llama", num_hidden_layers=1)
    loaded = load("one", ModelSettings(path=str(folder)), folder)
    caches = loaded.new_caches()
    tokens = _tokens(100)
    loaded.module(mx.array(tokens)[None], cache=caches)
    record = capture(caches, loaded.layout, [(0, 8)])[0]["kv"]
    keys = caches[0].keys
    mx.eval(keys)
    whole = np.asarray(memoryview(keys))
    assert not any(np.shares_memory(whole, buffer) for buffer in record.buffers.values())


def test_bfloat16_survives_the_trip_to_host_and_back(tmp_path):
    """A bfloat16 model's records are stored as uint16 and come back with the same bits."""
    from mlx.utils import tree_map
    from tests.tiny_models import make_model

    folder = make_model(tmp_path / "half", "llama")
    weights = mx.load(str(folder / "model.safetensors"))
    mx.save_safetensors(str(folder / "model.safetensors"), tree_map(lambda w: w.astype(mx.bfloat16), weights))
    loaded = load("half", ModelSettings(path=str(folder)), folder)
    assert {"uint16"} == {spec.dtype for spec in loaded.layout.tensors("kv")}
    tokens, captured = _tokens(200), []
    fresh = _run_bf16(loaded, loaded.new_caches(), tokens, 0, captured)
    caches = loaded.new_caches()
    restore(caches, loaded.layout, _pieces(captured, 128, from_disk=True), 128)
    assert bool(mx.array_equal(fresh, _run_bf16(loaded, caches, tokens, 128, None)))


def _run_bf16(loaded, caches, tokens, start, captured):
    for end in chunk_ends(start, len(tokens) - 1, CHUNK):
        loaded.module(mx.array(tokens[start:end])[None], cache=caches)
        mx.eval([cache.state for cache in caches])
        if captured is not None:
            captured.append((start, end, capture(caches, loaded.layout, [(start, end)])[0]))
        start = end
    return loaded.module(mx.array(tokens[-1:])[None], cache=caches)
