"""A model folder that costs next to nothing: a real tokenizer over one narrow layer of random weights.

With it everything around the model can be measured and worn out on any machine: 24,000 tokens are prefilled in a second
on two cores. What it says means nothing.
"""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from safetensors.numpy import save_file
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

_WIDTH = 32
#: Special tokens of the tokenizer that is made here.
_SPECIALS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_TEMPLATE = """
{%- if tools %}{{- '<|im_start|>system\\n# Tools\\n' }}
{%- for tool in tools %}{{- tool | tojson + '\\n' }}{%- endfor %}{{- '<|im_end|>\\n' }}{%- endif %}
{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content }}
{%- for call in message.tool_calls or [] %}{{- '\\n<tool_call>\\n' + (call.function | tojson) + '\\n</tool_call>' }}
{%- endfor %}
{{- '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}
"""
#: What of a model folder is its text.
_TEXT_FILES = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "chat_template.jinja")


def write_thin_model(
    folder: Path, *, text_of: Path | None = None, seed: int = 0, window_tokens: int = 131_072
) -> Path:
    """Write a model into `folder`; return it.

    Its tokenizer and chat template are those of the model folder `text_of`, else a byte-level one made here.
    """
    folder.mkdir(parents=True, exist_ok=True)
    if text_of is None:
        _write_text(folder)
    else:
        for name in _TEXT_FILES:
            if (text_of / name).is_file():
                shutil.copyfile(text_of / name, folder / name)
    vocabulary = Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab(with_added_tokens=True)
    tokens = max(vocabulary.values()) + 1
    (folder / "config.json").write_text(json.dumps(_config(tokens, window_tokens)))
    save_file(_weights(tokens, seed), folder / "model.safetensors", metadata={"format": "mlx"})
    return folder


def _write_text(folder: Path) -> None:
    letters = sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE({letter: number for number, letter in enumerate(letters)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(text, special=True, normalized=False) for text in _SPECIALS])
    tokenizer.save(str(folder / "tokenizer.json"))
    config = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|im_end|>",
        "chat_template": _TEMPLATE,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


def _config(vocabulary_tokens: int, window_tokens: int) -> dict[str, Any]:
    return {
        "model_type": "llama",
        "hidden_size": _WIDTH,
        "num_hidden_layers": 1,
        "intermediate_size": _WIDTH,
        "num_attention_heads": 1,
        "num_key_value_heads": 1,
        "rms_norm_eps": 1e-5,
        "vocab_size": vocabulary_tokens,
        "max_position_embeddings": window_tokens,
        "tie_word_embeddings": True,
    }


def _weights(vocabulary_tokens: int, seed: int) -> dict[str, npt.NDArray[np.float32]]:
    rng = np.random.default_rng(seed)
    square = {
        f"model.layers.0.{name}.weight": (_WIDTH, _WIDTH)
        for name in (
            *(f"self_attn.{part}_proj" for part in "qkvo"),
            *(f"mlp.{part}_proj" for part in ("gate", "up", "down")),
        )
    }
    shapes = {"model.embed_tokens.weight": (vocabulary_tokens, _WIDTH), **square}
    weights = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    norms = ("layers.0.input_layernorm", "layers.0.post_attention_layernorm", "norm")
    return weights | {f"model.{name}.weight": np.ones(_WIDTH, np.float32) for name in norms}
