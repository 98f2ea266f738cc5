"""Tiny real models with random weights, one per family of caches, made in a fraction of a second.

Window families slide over 48 tokens, so that short prompts cross many windows.
"""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omlx.models  # noqa: F401 - loads the fast BLAS, before MLX

# isort: split
import mlx.core as mx
from mlx.utils import tree_flatten

from tests.tiny import CHATML, make_tokenizer

VOCABULARY = 512
WINDOW = 48

_LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "hidden_size": 64,
    "num_hidden_layers": 3,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-5,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
    "tie_word_embeddings": True,
}
_GEMMA3: dict[str, Any] = {
    "model_type": "gemma3_text",
    "hidden_size": 64,
    "num_hidden_layers": 6,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 1,
    "head_dim": 16,
    "query_pre_attn_scalar": 16,
    "vocab_size": VOCABULARY,
    "sliding_window": WINDOW,
    "sliding_window_pattern": 3,
    "max_position_embeddings": 65536,
}
#: Full and sliding attention in turn, with attention sinks and experts.
_GPT_OSS: dict[str, Any] = {
    "model_type": "gpt_oss",
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 64,
    "num_local_experts": 4,
    "num_experts_per_tok": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
    "sliding_window": WINDOW,
    "rope_theta": 10000,
}
_LINEAR: dict[str, Any] = {
    "hidden_size": 64,
    "num_hidden_layers": 4,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "linear_num_value_heads": 4,
    "linear_num_key_heads": 2,
    "linear_key_head_dim": 32,
    "linear_value_head_dim": 16,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "full_attention_interval": 2,
    "tie_word_embeddings": True,
    "max_position_embeddings": 65536,
}
#: Gated delta nets and full attention in turn.
_QWEN3_NEXT: dict[str, Any] = {
    **_LINEAR,
    "model_type": "qwen3_next",
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "decoder_sparse_step": 1,
    "mlp_only_layers": [],
    "shared_expert_intermediate_size": 64,
    "moe_intermediate_size": 32,
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.5,
}
_QWEN3_5: dict[str, Any] = {"model_type": "qwen3_5", "text_config": {**_LINEAR, "model_type": "qwen3_5_text"}}
#: Recurrent layers alone: no layer knows the position of the sequence.
_MAMBA2: dict[str, Any] = {
    "model_type": "mamba2",
    "num_heads": 8,
    "head_dim": 16,
    "hidden_size": 64,
    "intermediate_size": 128,
    "state_size": 16,
    "num_hidden_layers": 3,
    "layer_norm_epsilon": 1e-5,
    "conv_kernel": 4,
    "n_groups": 1,
    "use_bias": False,
    "use_conv_bias": True,
    "tie_word_embeddings": True,
    "time_step_limit": [0.001, 0.1],
    "time_step_rank": "auto",
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
}
_LATENT: dict[str, Any] = {
    "hidden_size": 64,
    "num_attention_heads": 4,
    "kv_lora_rank": 32,
    "q_lora_rank": 32,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 16,
    "v_head_dim": 16,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
    "attention_bias": False,
}
#: A CacheList of latent attention and indexer keys; the indexer picks 64 tokens, so it matters past that.
_DEEPSEEK_V32: dict[str, Any] = {
    **_LATENT,
    "model_type": "deepseek_v32",
    "num_hidden_layers": 2,
    "intermediate_size": 128,
    "moe_intermediate_size": 32,
    "n_routed_experts": 4,
    "n_shared_experts": 1,
    "num_experts_per_tok": 2,
    "first_k_dense_replace": 1,
    "index_head_dim": 16,
    "index_n_heads": 4,
    "index_topk": 64,
}
_LONGCAT: dict[str, Any] = {
    **_LATENT,
    "ffn_hidden_size": 128,
    "expert_ffn_hidden_size": 32,
    "moe_topk": 2,
    "n_routed_experts": 4,
    "zero_expert_num": 2,
    "zero_expert_type": "identity",
    "num_layers": 2,
    "routed_scaling_factor": 1.0,
    "mla_scale_q_lora": True,
    "mla_scale_kv_lora": True,
}
#: A CacheList of two latent attentions a layer.
_LONGCAT_FLASH: dict[str, Any] = {**_LONGCAT, "model_type": "longcat_flash", "attention_method": "MLA"}
#: The same, and a state of the last three token ids.
_LONGCAT_NGRAM: dict[str, Any] = {
    **_LONGCAT,
    "model_type": "longcat_flash_ngram",
    "ngram_vocab_size_ratio": 2,
    "emb_split_num": 2,
}
#: Chunked attention in three layers of four.
_LLAMA4: dict[str, Any] = {
    "model_type": "llama4",
    "text_config": {
        "model_type": "llama4_text",
        "attention_bias": False,
        "attention_chunk_size": WINDOW,
        "head_dim": 16,
        "hidden_size": 64,
        "interleave_moe_layer_step": 2,
        "intermediate_size": 32,
        "intermediate_size_mlp": 128,
        "max_position_embeddings": 65536,
        "num_attention_heads": 4,
        "num_experts_per_tok": 1,
        "num_hidden_layers": 4,
        "num_key_value_heads": 2,
        "num_local_experts": 4,
        "rms_norm_eps": 1e-5,
        "rope_scaling": None,
        "rope_theta": 10000.0,
        "use_qk_norm": True,
        "vocab_size": VOCABULARY,
    },
}
#: A CacheList of a state and full attention in each layer.
_FALCON_H1: dict[str, Any] = {
    "model_type": "falcon_h1",
    "hidden_size": 64,
    "head_dim": 16,
    "intermediate_size": 128,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_hidden_layers": 2,
    "mamba_d_ssm": 64,
    "mamba_d_head": 16,
    "mamba_n_heads": 4,
    "mamba_d_state": 16,
    "embedding_multiplier": 1.0,
    "lm_head_multiplier": 4.0,
    "ssm_out_multiplier": 1.0,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
}
#: A CacheList of a state and full or sliding attention: all three kinds of record.
_BAICHUAN_M1: dict[str, Any] = {
    "model_type": "baichuan_m1",
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "num_swa_attention_heads": 4,
    "num_swa_key_value_heads": 2,
    "rope_theta": 10000.0,
    "sliding_window": WINDOW,
    "sliding_window_layers": [1],
    "conv_window": 2,
    "rms_norm_eps": 1e-6,
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
}
#: States and sliding attention, no layer that keeps everything.
_RECURRENT_GEMMA: dict[str, Any] = {
    "model_type": "recurrent_gemma",
    "attention_bias": False,
    "conv1d_width": 4,
    "hidden_size": 64,
    "intermediate_size": 128,
    "logits_soft_cap": 30.0,
    "num_attention_heads": 4,
    "num_hidden_layers": 3,
    "num_key_value_heads": 1,
    "rms_norm_eps": 1e-6,
    "rope_theta": 10000.0,
    "attention_window_size": WINDOW,
    "block_types": ["recurrent", "recurrent", "attention"],
    "vocab_size": VOCABULARY,
    "max_position_embeddings": 65536,
}
#: Block-sparse attention whose indexer keeps keys and values of no width.
_MINIMAX_M3: dict[str, Any] = {
    "model_type": "minimax_m3_vl",
    "text_config": {
        "model_type": "minimax_m3",
        "hidden_size": 64,
        "intermediate_size": 32,
        "dense_intermediate_size": 128,
        "shared_intermediate_size": 32,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "num_hidden_layers": 2,
        "num_local_experts": 4,
        "num_experts_per_tok": 2,
        "head_dim": 16,
        "moe_layer_freq": [0, 1],
        "sparse_attention_freq": [0, 1],
        "index_n_heads": 2,
        "index_head_dim": 16,
        "index_block_size": 16,
        "index_topk_blocks": 2,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 65536,
    },
}

#: Config of each family.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": _LLAMA,
    "gemma3": _GEMMA3,
    "gpt_oss": _GPT_OSS,
    "qwen3_next": _QWEN3_NEXT,
    "qwen3_5": _QWEN3_5,
    "mamba2": _MAMBA2,
    "deepseek_v32": _DEEPSEEK_V32,
    "longcat_flash": _LONGCAT_FLASH,
    "longcat_flash_ngram": _LONGCAT_NGRAM,
    "llama4": _LLAMA4,
    "falcon_h1": _FALCON_H1,
    "baichuan_m1": _BAICHUAN_M1,
    "recurrent_gemma": _RECURRENT_GEMMA,
    "minimax_m3_vl": _MINIMAX_M3,
}


def settings_of(family: str, **config: Any) -> dict[str, Any]:
    """Return a family's config; `config` goes where the text model's own keys are."""
    settings = dict(CONFIGS[family])
    if "text_config" in settings:
        return {**settings, "text_config": {**settings["text_config"], **config}}
    return {**settings, **config}


def make_module(settings: dict[str, Any], seed: int = 0) -> Any:
    """Return an mlx-lm model of that config with random float32 weights, evaluated."""
    module = importlib.import_module(f"mlx_lm.models.{settings['model_type']}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(settings))
    # what starts as zeros (attention sinks, routing biases) would do nothing and so prove nothing
    noise = [
        (name, 0.5 * mx.random.normal(weight.shape))
        for name, weight in tree_flatten(model.parameters())
        if weight.dtype == mx.float32 and not mx.any(weight).item()
    ]
    model.load_weights(noise, strict=False)
    mx.eval(model.parameters())
    return model


def make_model(
    folder: Path, family: str, *, seed: int = 0, template: str | None = CHATML, **config: Any
) -> Path:
    """Write a complete model folder: random float32 weights, config and a byte-level tokenizer; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = settings_of(family, **config)
    weights = dict(tree_flatten(make_module(settings, seed).parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(settings))
    make_tokenizer(folder, template)
    return folder


Maker = Callable[..., Path]
