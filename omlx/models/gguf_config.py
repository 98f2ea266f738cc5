"""Derive mlx-lm's `config.json` and `generation_config.json` from a GGUF file's metadata."""

from typing import Any

from omlx.errors import ModelLoadError
from omlx.models.gguf_file import GGUFFile

# Gemma 3 has values that GGUF does not carry (the reference implementation and llama.cpp have them built in)
_GEMMA3_LOCAL_ROPE = 10_000.0
_GEMMA3_PATTERN = 6  # every sixth layer is global
_GEMMA3_27B_LAYERS = 62  # this size alone scales queries by hidden / heads instead of head_dim


def model_config(file: GGUFFile, *, tied: bool) -> dict[str, Any]:
    """Return the values of `config.json`. `tied`: the embedding is the output matrix too."""
    config = _shared(file) | {"tie_word_embeddings": tied, **_end_tokens(file)}
    if file.architecture == "gemma3":
        return config | _gemma3(file, config)
    return config | _llama(file)


def generation_config(file: GGUFFile) -> dict[str, Any]:
    """Return the values of `generation_config.json`: the special token ids."""
    ids = {f"{name}_token_id": file.get(f"tokenizer.ggml.{key}_token_id") for name, key in _ID_KEYS}
    return {key: value for key, value in ids.items() if value is not None} | _end_tokens(file)


_ID_KEYS = (("bos", "bos"), ("pad", "padding"))


def _end_tokens(file: GGUFFile) -> dict[str, Any]:
    ids = [file.get(f"tokenizer.ggml.{key}_token_id") for key in ("eos", "eot")]
    unique = list(dict.fromkeys(token for token in ids if token is not None))
    return {"eos_token_id": unique[0] if len(unique) == 1 else unique} if unique else {}


def _shared(file: GGUFFile) -> dict[str, Any]:
    heads = _one_number(file, "{arch}.attention.head_count")
    hidden = file.require("{arch}.embedding_length")
    return {
        "hidden_size": hidden,
        "num_hidden_layers": file.require("{arch}.block_count"),
        "intermediate_size": _one_number(file, "{arch}.feed_forward_length"),
        "num_attention_heads": heads,
        "num_key_value_heads": file.get("{arch}.attention.head_count_kv", heads),
        "head_dim": file.get("{arch}.attention.key_length", hidden // heads),
        "rms_norm_eps": file.require("{arch}.attention.layer_norm_rms_epsilon"),
        "max_position_embeddings": file.require("{arch}.context_length"),
        "vocab_size": file.shape("token_embd.weight")[0],
        "rope_scaling": _rope_scaling(file),
    }


def _one_number(file: GGUFFile, key: str) -> int:
    value = file.require(key)
    if not isinstance(value, int):
        raise ModelLoadError(
            f"{file.path}: '{key.replace('{arch}', file.architecture)}' differs between layers",
            hint="use a model whose layers have one shape",
        )
    return value


def _rope_scaling(file: GGUFFile) -> dict[str, Any] | None:
    kind = file.get("{arch}.rope.scaling.type", "none")
    if kind == "none":
        return None
    if kind == "linear":
        return {"rope_type": "linear", "factor": file.require("{arch}.rope.scaling.factor")}
    raise ModelLoadError(
        f"{file.path}: rotary scaling of type '{kind}' is not supported; supported: none, linear",
        hint="use an MLX folder made from the original weights",
    )


def _llama(file: GGUFFile) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "architectures": ["LlamaForCausalLM"],
        "rope_theta": file.get("llama.rope.freq_base", 10_000.0),
        "attention_bias": "blk.0.attn_q.bias" in file.tensor_names,
        "mlp_bias": "blk.0.ffn_up.bias" in file.tensor_names,
    }


def _gemma3(file: GGUFFile, shared: dict[str, Any]) -> dict[str, Any]:
    large = shared["num_hidden_layers"] == _GEMMA3_27B_LAYERS
    scalar = shared["hidden_size"] // shared["num_attention_heads"] if large else shared["head_dim"]
    return {
        "model_type": "gemma3_text",
        "architectures": ["Gemma3ForCausalLM"],
        "rope_theta": file.get("gemma3.rope.freq_base", 1_000_000.0),
        "rope_local_base_freq": _GEMMA3_LOCAL_ROPE,
        "sliding_window": file.require("gemma3.attention.sliding_window"),
        "sliding_window_pattern": _GEMMA3_PATTERN,
        "query_pre_attn_scalar": scalar,
    }
