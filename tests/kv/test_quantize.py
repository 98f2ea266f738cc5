"""Quantized keys and values: what they save, what is left out, and what is refused."""

import pytest

from omlx.errors import ModelLoadError
from tests.kv.parity import tiny
from tests.tiny_models import make_module, settings_of

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import QuantizedKVCache, RotatingKVCache, make_prompt_cache

from omlx.kv.layout import probe_layout
from omlx.kv.quantize import check_quantized, quantize_caches


def _maker(module):
    return lambda: make_prompt_cache(module)


def test_every_full_attention_layer_is_quantized():
    """A llama's caches are all replaced, with the width and group size asked for, and none is left."""
    quantized = quantize_caches(make_prompt_cache(tiny("llama").module), 4, 32)
    assert ((),) == (quantized.left,)
    assert [(4, 32)] * 3 == [(cache.bits, cache.group_size) for cache in quantized.caches]


def test_layers_that_cannot_be_quantized_are_named():
    """A sliding model keeps its sliding layers as they are, and says which."""
    module = make_module(settings_of("gemma3", head_dim=32))
    left = check_quantized(module, _maker(module), 4, 32)
    assert ("layer 0 (RotatingKVCache)", "layer 1 (RotatingKVCache)") == left[:2]
    kinds = [type(cache) for cache in quantize_caches(make_prompt_cache(module), 4, 32).caches]
    assert [RotatingKVCache, RotatingKVCache, QuantizedKVCache] * 2 == kinds


@pytest.mark.parametrize("group_size", [32, 64])
def test_four_bits_take_the_expected_share_of_float16(group_size):
    """Scales and biases included, 4 bits take 0.28 to 0.35 of the bytes per token of float16."""
    module = make_module(settings_of("llama", hidden_size=256))
    module.set_dtype(mx.float16)
    whole = probe_layout(module, make_prompt_cache(module)).token_bytes()
    quantized = quantize_caches(make_prompt_cache(module), 4, group_size).caches
    assert 0.28 <= probe_layout(module, quantized).token_bytes() / whole <= 0.35


def test_a_head_dimension_that_is_no_multiple_of_the_group_is_refused():
    """The error names the layer, its head dimension and the group sizes that would do."""
    module = make_module(settings_of("llama", hidden_size=128))
    with pytest.raises(ModelLoadError, match=r"layer 0 has a head dimension of 32.* use a group size of 32"):
        check_quantized(module, _maker(module), 4, 64)


@pytest.mark.parametrize(("bits", "group_size"), [(3, 64), (16, 64), (4, 48)])
def test_a_width_that_does_not_exist_is_refused(bits, group_size):
    """The error lists what there is."""
    with pytest.raises(ModelLoadError, match="use bits of 2 or 4 or 8 and a group size of 32 or 64 or 128"):
        check_quantized(tiny("llama").module, _maker(tiny("llama").module), bits, group_size)


@pytest.mark.parametrize("family", ["mamba2", "deepseek_v32"])
def test_a_model_without_such_layers_is_refused(family):
    """Where nothing would be quantized the setting is an error, not silence."""
    module = tiny(family).module
    with pytest.raises(ModelLoadError, match="no layer of this model"):
        check_quantized(module, _maker(module), 4, 32)


def test_a_model_whose_attention_cannot_read_them_is_refused():
    """Attention sinks do not work with quantized keys in mlx-lm: that is said when the model is loaded."""
    module = make_module(settings_of("gpt_oss", head_dim=32))
    with pytest.raises(ModelLoadError, match=r"cannot read quantized keys and values: .*sinks"):
        check_quantized(module, _maker(module), 4, 32)
