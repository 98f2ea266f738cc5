"""Captured records: copies of exactly the tokens asked for, states of exactly one position."""

import numpy as np
import pytest

from omlx.errors import CacheError
from omlx.store.tensorfile import pack, read, write
from tests.kv.parity import (
    CHUNK,
    Tiny,
    cold_run,
    forward,
    host_copy,
    pieces_to,
    resumed,
    run,
    tiny,
    tokens_of,
)
from tests.tiny_models import WINDOW, make_module, settings_of

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import KVCache, make_prompt_cache

from omlx.kv.capture import capture
from omlx.kv.layout import probe_layout
from omlx.kv.transfer import to_device


def _computed(model: Tiny, num_tokens: int):
    caches = model.new_caches()
    forward(model, caches, tokens_of(num_tokens))
    return caches


def test_only_the_range_that_ends_at_the_position_has_a_state():
    """Of several ranges, the state belongs to the one that ends where the sequence stands."""
    model = tiny("qwen3_5")
    caches = _computed(model, 32)
    first, second = capture(caches, model.layout, [(0, 16), (16, 32)])
    assert set(first) == {"kv"}
    assert set(second) == {"kv", "state"}
    (ahead,) = capture(caches, model.layout, [(0, 16)], position=32)
    assert set(ahead) == {"kv"}


def test_a_state_that_has_not_its_full_size_is_not_captured():
    """An n-gram's context of two tokens is no record: its shape is not the layout's."""
    model = tiny("longcat_flash_ngram")
    assert set(capture(_computed(model, 2), model.layout, [(0, 2)])[0]) == {"kv"}
    assert set(capture(_computed(model, 3), model.layout, [(0, 3)])[0]) == {"kv", "state"}


@pytest.mark.parametrize("family", ["gemma3", "llama4"])
def test_a_token_that_a_window_has_dropped_cannot_be_captured(family):
    """Once a token has left a sliding or chunked layer it has no record: an error, never other bytes."""
    model = tiny(family)
    caches = _computed(model, 2 * WINDOW)
    for token in tokens_of(2):
        forward(model, caches, [token])
    with pytest.raises(CacheError, match="are not in a layer"):
        capture(caches, model.layout, [(0, 8)])


def test_a_cache_that_the_model_does_not_use_has_no_part_in_the_layout():
    """A layer whose cache is never written, as some models have, is neither stored nor asked for."""
    module = tiny("llama").module
    caches = [*make_prompt_cache(module), KVCache()]
    assert probe_layout(module, caches) == tiny("llama").layout


def test_a_record_keeps_no_more_memory_than_its_tokens():
    """Also for a model of one layer a record is a copy, not a view that keeps the whole sequence alive."""
    module = make_module(settings_of("llama", num_hidden_layers=1))
    layout = probe_layout(module, make_prompt_cache(module))
    caches = make_prompt_cache(module)
    mx.eval(module(mx.array(tokens_of(100))[None], cache=caches))
    record = capture(caches, layout, [(0, 8)])[0]["kv"]
    mx.eval(caches[0].keys)
    whole = np.asarray(memoryview(caches[0].keys))
    assert not any(np.shares_memory(whole, buffer) for buffer in record.buffers.values())


def test_a_record_survives_a_file_and_the_device_byte_by_byte(tmp_path, family, model):
    """Written, read, brought to the device and written again, a record has the same bytes."""
    _, _, records = cold_run(family).captured[1]
    for kind, record in records.items():
        first = pack(record, 0)
        write(first, tmp_path / kind)
        stored = read(tmp_path / kind, first.row)
        to_device(stored)
        assert [bytes(chunk) for chunk in pack(stored, 0).chunks] == [bytes(chunk) for chunk in first.chunks]


def test_bfloat16_survives_the_trip_to_host_and_back():
    """Records of bfloat16 are stored as uint16 and come back with the same bits; states stay float32."""
    module = make_module(settings_of("qwen3_5"))
    module.set_dtype(mx.bfloat16)

    def new_caches():
        return make_prompt_cache(module)

    model = Tiny(module, new_caches, probe_layout(module, new_caches()))
    assert {spec.dtype for spec in model.layout.tensors("kv")} == {"uint16"}
    assert {spec.dtype for spec in model.layout.tensors("state")} == {"uint16", "float32"}
    tokens, captured = tokens_of(200), []
    fresh = run(model, new_caches(), tokens, captured=captured)
    pieces = pieces_to(captured, 2 * CHUNK, from_disk=True)
    np.testing.assert_array_equal(resumed(model, tokens, pieces, 2 * CHUNK), fresh[2 * CHUNK :])


def test_a_record_from_a_file_is_made_a_device_record_once():
    """The second use of a record finds its arrays ready, over the memory that its host form has too."""
    record = host_copy(cold_run("llama").captured[0][2]["kv"])
    first, second = to_device(record), to_device(record)
    assert all(first[name] is second[name] for name in first)
