"""Tiny GGUF files with random weights, written as llama.cpp's converter writes them."""

import hashlib
import json
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from gguf import GGMLQuantizationType, GGUFWriter, quantize
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers, trainers

from omlx.models.catalog import CatalogEntry, Wheel

# six layers: mlx-lm's Gemma 3 wants one that is global
HIDDEN, HEADS, KV_HEADS, HEAD_DIM, INNER, LAYERS = 32, 4, 2, 8, 64, 6
TEMPLATE = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
CORPUS = [
    "The quick brown fox jumps over the lazy dog, and the dog sleeps on.",
    "def area(width, height):\n    return width * height\n\n\nprint(area(12, 345))",
    "the theory of the other thing that they thought through together",
    "12345 of 12345 and 12345 of 12345",
]
NORMAL, CONTROL, USER_DEFINED, BYTE = 1, 3, 4, 6


def byte_level_tokenizer() -> Tokenizer:
    """The tokenizer that a llama file is made from: SmolLM's kind."""
    tokenizer = Tokenizer(models.BPE())
    byte_level = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.pre_tokenizer = byte_level  # learn merges of digits, so that splitting them makes a difference
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        special_tokens=[AddedToken(t, special=True) for t in ("<|endoftext|>", "<|im_start|>", "<|im_end|>")],
        show_progress=False,
    )
    tokenizer.train_from_iterator(CORPUS, trainer)
    digits = pre_tokenizers.Digits(individual_digits=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, byte_level])
    return tokenizer


def sentencepiece_vocabulary() -> list[tuple[str, int]]:
    """Pieces with their types, in Gemma's order: control, user-defined, bytes, merged pieces, characters."""
    trained = Tokenizer(models.BPE())
    trainer = trainers.BpeTrainer(vocab_size=120, show_progress=False)
    trained.train_from_iterator([text.replace(" ", "▁") for text in CORPUS], trainer)
    learned = sorted(trained.get_vocab().items(), key=lambda item: item[1])
    merged = [piece for piece, _ in learned if len(piece) > 1 and piece != "\n\n"]
    single = [piece for piece, _ in learned if len(piece) == 1]
    return [
        *[(token, CONTROL) for token in ("<pad>", "<eos>", "<bos>", "<unk>")],
        *[(token, USER_DEFINED) for token in ("\n\n", "  ", "<table>")],
        *[(f"<0x{value:02X}>", BYTE) for value in range(256)],
        *[(piece, NORMAL) for piece in merged + sorted({*single, *"<0xA>"})],
        *[(piece, NORMAL) for piece in ("A>", "0A>", "x0A>", "0x0A>")],  # one merge short of a byte token
    ]


def random_weights(architecture: str, vocabulary: int) -> dict[str, np.ndarray]:
    """Weights by their mlx-lm names, before llama.cpp's converter changed any."""
    shapes: dict[str, tuple[int, ...]] = {
        "model.embed_tokens.weight": (vocabulary, HIDDEN),
        "model.norm.weight": (HIDDEN,),
    }
    for layer in range(LAYERS):
        shapes |= {f"model.layers.{layer}.{name}.weight": s for name, s in _block(architecture).items()}
    rng = np.random.default_rng(7)
    return {name: rng.standard_normal(shape, dtype=np.float32) for name, shape in shapes.items()}


def _block(architecture: str) -> dict[str, tuple[int, ...]]:
    block: dict[str, tuple[int, ...]] = {
        "self_attn.q_proj": (HEADS * HEAD_DIM, HIDDEN),
        "self_attn.k_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.v_proj": (KV_HEADS * HEAD_DIM, HIDDEN),
        "self_attn.o_proj": (HIDDEN, HEADS * HEAD_DIM),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
        "input_layernorm": (HIDDEN,),
        "post_attention_layernorm": (HIDDEN,),
    }
    if architecture == "gemma3":
        block |= {f"{place}_feedforward_layernorm": (HIDDEN,) for place in ("pre", "post")}
        block |= {f"self_attn.{name}_norm": (HEAD_DIM,) for name in "qk"}
    return block


_GGUF_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(architecture: str, name: str) -> str:
    """llama.cpp's name of a weight."""
    if name == "model.embed_tokens.weight":
        return "token_embd.weight"
    if name == "model.norm.weight":
        return "output_norm.weight"
    _, _, layer, rest = name.removesuffix(".weight").split(".", 3)
    after_attention = "post_attention_norm" if architecture == "gemma3" else "ffn_norm"
    return f"blk.{layer}.{_GGUF_NAMES.get(rest, after_attention)}.weight"


def as_stored(architecture: str, name: str, weight: np.ndarray) -> np.ndarray:
    """What llama.cpp's converter makes of a weight before it quantizes."""
    if architecture == "gemma3" and "norm" in name:
        return weight + 1
    heads = {"q_proj": HEADS, "k_proj": KV_HEADS}.get(name.split(".")[-2])
    if architecture == "llama" and heads:  # `permute` of convert_hf_to_gguf.py
        split = weight.reshape(heads, 2, weight.shape[0] // heads // 2, *weight.shape[1:])
        return split.swapaxes(1, 2).reshape(weight.shape)
    return weight


def write_gguf(
    path: Path,
    architecture: str = "llama",
    *,
    quantization: GGMLQuantizationType = GGMLQuantizationType.F32,
    extra: dict[str, Any] | None = None,
    tensors: dict[str, np.ndarray | None] | None = None,
) -> dict[str, np.ndarray]:
    """Write a whole tiny model and return its original weights.

    `extra`: metadata added or replaced, as strings or numbers. `tensors`: added, or left out where None.
    """
    writer = GGUFWriter(path, (extra or {}).get("general.architecture", architecture))
    vocabulary = _write_metadata(writer, architecture, extra or {})
    weights = random_weights(architecture, vocabulary)
    stored = {gguf_name(architecture, n): as_stored(architecture, n, w) for n, w in weights.items()}
    for name, weight in (stored | (tensors or {})).items():
        if weight is None:
            continue
        kind = quantization if weight.ndim == 2 else GGMLQuantizationType.F32
        writer.add_tensor(name, quantize(weight, kind), raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return weights


def _write_metadata(writer: GGUFWriter, architecture: str, extra: dict[str, Any]) -> int:
    writer.add_context_length(128)
    writer.add_embedding_length(HIDDEN)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_key_length(HEAD_DIM)
    writer.add_layer_norm_rms_eps(1e-5)
    if architecture == "gemma3":
        writer.add_sliding_window(16)
        size = _write_sentencepiece(writer)
    else:
        size = _write_byte_level(writer, extra.get("tokenizer.ggml.pre", "smollm"))
    for key, value in extra.items():
        if key in ("general.architecture", "tokenizer.ggml.pre"):
            continue
        if isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    return size


def _write_byte_level(writer: GGUFWriter, pre: str) -> int:
    tokenizer = byte_level_tokenizer()
    vocab = sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])
    merges = json_merges(tokenizer)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([token for token, _ in vocab])
    writer.add_token_types([CONTROL if i < 3 else NORMAL for _, i in vocab])
    writer.add_token_merges(merges)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_chat_template(TEMPLATE)
    return len(vocab)


def json_merges(tokenizer: Tokenizer) -> list[str]:
    """The merges of a BPE tokenizer, each as "left right"."""
    return [" ".join(pair) for pair in json.loads(tokenizer.to_str())["model"]["merges"]]


def _write_sentencepiece(writer: GGUFWriter) -> int:
    vocabulary = sentencepiece_vocabulary()
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([piece for piece, _ in vocabulary])
    writer.add_token_scores([-float(i) for i in range(len(vocabulary))])
    writer.add_token_types([kind for _, kind in vocabulary])
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)
    return len(vocabulary)


def tiny_entry(folder: Path, *, num_wheels: int = 1) -> CatalogEntry:
    """Write a tiny llama model as `num_wheels` wheels into `folder`, and return its catalog entry."""
    folder.mkdir(parents=True, exist_ok=True)
    gguf = folder / "tiny.gguf"
    write_gguf(gguf)
    data = gguf.read_bytes()
    gguf.unlink()
    step = -(-len(data) // num_wheels)
    wheels = tuple(
        _write_wheel(folder, f"omlx_tiny_part{i}", data[i * step : (i + 1) * step]) for i in range(num_wheels)
    )
    return CatalogEntry(
        name="tiny",
        summary="random weights",
        wheels=wheels,
        gguf_sha256=hashlib.sha256(data).hexdigest(),
        gguf_bytes=len(data),
        licence="Apache-2.0",
        by_default=True,
        has_chat_template=True,
        window_tokens=128,
    )


def _write_wheel(folder: Path, package: str, piece: bytes) -> Wheel:
    path = folder / f"{package}-1.0-py3-none-any.whl"
    info = f"{package}-1.0.dist-info"
    members = {
        f"{package}/piece.bin": piece,
        f"{info}/LICENSE": b"free",
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n".encode(),
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/RECORD": b"",
    }
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    content = path.read_bytes()
    return Wheel(
        distribution=package.replace("_", "-"),
        version="1.0",
        filename=path.name,
        sha256=hashlib.sha256(content).hexdigest(),
        size_bytes=len(content),
        pieces=(f"{package}/piece.bin",),
        notices=(f"{info}/LICENSE",),
    )
