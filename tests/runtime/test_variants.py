"""Every chain that can be configured reuses a prompt, or is known not to."""

import pytest

from tests.serving import serving, settings_for
from tests.tiny_models import make_model

PROMPT = "The index keeps each block, the writer follows the queue, and every worker reads its own file. " * 6
VARIANTS = {
    "default": ("default", {}),
    "RAM alone": ("ram_only", {}),
    "disk alone": ("default", {"lookup": {"tiers": ["cold"]}, "writeback": {"tiers": ["cold"]}}),
    "chunks of 32": ("default", {"prefill": {"chunk_tokens": 32}}),
    "blocks of 16": ("default", {"writeback": {"block_tokens": 16}}),
    "exact": ("default", {"prefill": {"exact": True, "chunk_tokens": 64}}),
    "KV of 8 bits": ("default", {"prefill": {"kv_bits": 8, "kv_group_size": 32}}),
    "KV of 4 bits": ("default", {"prefill": {"kv_bits": 4, "kv_group_size": 32}}),
    "no rewrites": ("default", {"normalize": {"rules": []}}),
    "no cache": ("no_cache", {}),
}


@pytest.fixture(scope="module")
def wide_heads(tmp_path_factory):
    """Return a model whose heads are wide enough to be quantized."""
    return make_model(tmp_path_factory.mktemp("wide") / "model", "llama", hidden_size=128)


@pytest.mark.parametrize("variant", VARIANTS)
def test_c17_the_same_request_twice_hits(variant, wide_heads, tmp_path):
    """C17: asked twice, each variant of the chain on a real model answers the second time from the cache, alike."""
    pipeline, stages = VARIANTS[variant]
    settings = settings_for(wide_heads, tmp_path, pipeline=pipeline, stages=stages)
    with serving(settings) as server:
        first = server.complete(PROMPT)
        if server.runtime._store is not None:
            assert server.runtime._store.flush(10)
        second = server.complete(PROMPT)
    usage = second["usage"]
    if variant == "no cache":
        assert 0 == usage["prompt_tokens_details"]["cached_tokens"]
        return
    grid = 64 if variant == "exact" else 1
    assert usage["prompt_tokens_details"]["cached_tokens"] >= (usage["prompt_tokens"] - 1) // grid * grid
    assert first["choices"][0]["text"] == second["choices"][0]["text"]
    # C18: what is reported as restored was not computed
    computed = usage["omlx"]["prefilled_tokens"]
    assert usage["prompt_tokens"] - usage["prompt_tokens_details"]["cached_tokens"] == computed
