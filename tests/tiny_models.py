"""Tiny real models with random weights, one per family of caches, made in a fraction of a second."""

import importlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import omlx.models  # noqa: F401 - loads the fast BLAS before MLX
import mlx.core as mx  # noqa: I001
from mlx.utils import tree_flatten
from tests.tiny import CHATML, make_tokenizer

VOCABULARY = 512

#: Config of each family. `window` families slide over 48 tokens, so that short prompts cross many windows.
CONFIGS: dict[str, dict[str, Any]] = {
    "llama": {
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
    },
    "gemma3": {
        "model_type": "gemma3_text",
        "hidden_size": 64,
        "num_hidden_layers": 6,
        "intermediate_size": 128,
        "num_attention_heads": 4,
        "num_key_value_heads": 1,
        "head_dim": 16,
        "query_pre_attn_scalar": 16,
        "vocab_size": VOCABULARY,
        "sliding_window": 48,
        "sliding_window_pattern": 3,
        "max_position_embeddings": 65536,
    },
}


def make_model(
    folder: Path, family: str, *, seed: int = 0, template: str | None = CHATML, **config: Any
) -> Path:
    """Write a complete model folder: random float32 weights, config and a byte-level tokenizer; return it."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {**CONFIGS[family], **config}
    module = importlib.import_module(f"mlx_lm.models.{settings['model_type']}")
    mx.random.seed(seed)
    model = module.Model(module.ModelArgs.from_dict(settings))
    weights = dict(tree_flatten(model.parameters()))
    mx.eval(weights)
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    (folder / "config.json").write_text(json.dumps(settings))
    make_tokenizer(folder, template)
    return folder


Maker = Callable[..., Path]
