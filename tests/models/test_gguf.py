import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import mlx.core as mx
import numpy as np
import pytest
from gguf import GGMLQuantizationType, dequantize, quantize
from mlx_lm import load
from mlx_lm.tokenizer_utils import BPEStreamingDetokenizer, SPMStreamingDetokenizer
from transformers import AutoTokenizer

from omlx.errors import ModelLoadError
from omlx.models.gguf import convert
from tests.models.tiny_gguf import (
    KV_HEADS,
    as_stored,
    byte_level_tokenizer,
    sentencepiece_vocabulary,
    write_gguf,
)

TEXTS = [
    "The quick brown fox, 12345 times!",
    "naïve café — 日本語 🎉🇩🇪 \u200d",
    "a\n\n\nb\n  c\t\td\r\n",
    "def f(x):\n    return x**2\n\n\tpass\n",
    "  leading and trailing  ",
    "",
]
ARCHITECTURES = pytest.mark.parametrize("architecture", ["llama", "gemma3"])


def weights_of(folder: Path) -> dict[str, np.ndarray]:
    """The tensors in a converted folder, by name."""
    return {name: np.array(array) for name, array in mx.load(str(folder / "model.safetensors")).items()}


@pytest.fixture
def llama(tmp_path: Path) -> Path:
    """A tiny llama model, converted."""
    write_gguf(tmp_path / "tiny.gguf", "llama")
    return convert(tmp_path / "tiny.gguf", tmp_path / "llama")


@pytest.fixture
def gemma(tmp_path: Path) -> Path:
    """A tiny Gemma 3 model, converted."""
    write_gguf(tmp_path / "tiny.gguf", "gemma3")
    return convert(tmp_path / "tiny.gguf", tmp_path / "gemma")


@ARCHITECTURES
def test_weights_are_the_originals(tmp_path: Path, architecture: str) -> None:
    """Every weight comes out under its mlx-lm name as it was before llama.cpp permuted or shifted it."""
    expected = write_gguf(tmp_path / "tiny.gguf", architecture)
    actual = weights_of(convert(tmp_path / "tiny.gguf", tmp_path / "out"))
    assert set(expected) == set(actual)
    for name, weight in expected.items():
        if architecture == "gemma3" and "norm" in name:  # one was added and taken away again
            np.testing.assert_allclose(actual[name], weight, atol=1e-6, err_msg=name)
        else:
            np.testing.assert_array_equal(actual[name], weight, err_msg=name)


@pytest.mark.parametrize("kind", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"])
def test_quantized_weights_are_dequantized(tmp_path: Path, kind: str) -> None:
    """A quantized matrix becomes exactly what the reference dequantizer makes of it, rows in order."""
    quantization = GGMLQuantizationType[kind]
    originals = write_gguf(tmp_path / "tiny.gguf", quantization=quantization)
    actual = weights_of(convert(tmp_path / "tiny.gguf", tmp_path / "out"))
    for name in ("model.embed_tokens.weight", "model.layers.1.self_attn.k_proj.weight"):
        stored = as_stored("llama", name, originals[name])
        expected = dequantize(quantize(stored, quantization), quantization)
        np.testing.assert_array_equal(as_stored("llama", name, actual[name]), expected)


def test_bfloat16_rounds_to_nearest_even(tmp_path: Path) -> None:
    """A bfloat16 folder holds the weights rounded as MLX rounds them."""
    originals = write_gguf(tmp_path / "tiny.gguf")
    folder = convert(tmp_path / "tiny.gguf", tmp_path / "out", dtype="bfloat16")
    for name, actual in mx.load(str(folder / "model.safetensors")).items():
        assert actual.dtype == mx.bfloat16
        assert mx.array_equal(mx.array(originals[name]).astype(mx.bfloat16), actual), name


def test_large_tensors_are_written_in_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A tensor that is converted a few rows at a time is the same as one converted at once."""
    monkeypatch.setattr("omlx.models.gguf_file._SLAB_ELEMENTS", 100)
    expected = write_gguf(tmp_path / "tiny.gguf")
    written: list[int] = []
    folder = convert(tmp_path / "tiny.gguf", tmp_path / "out", on_bytes=lambda n, _total: written.append(n))
    for name, actual in weights_of(folder).items():
        np.testing.assert_array_equal(actual, expected[name], err_msg=name)
    assert sum(weight.nbytes for weight in expected.values()) == sum(written)


@ARCHITECTURES
def test_mlx_lm_loads_the_folder(tmp_path: Path, architecture: str) -> None:
    """mlx-lm loads the folder strictly and computes finite float32 logits for the whole vocabulary."""
    write_gguf(tmp_path / "tiny.gguf", architecture)
    model, tokenizer = load(str(convert(tmp_path / "tiny.gguf", tmp_path / "out")))
    logits = model(mx.array([tokenizer.encode("the quick fox")]))
    assert logits.dtype == mx.float32
    assert logits.shape[-1] == len(tokenizer)
    assert mx.isfinite(logits).all().item()


def test_config_carries_the_metadata(tmp_path: Path) -> None:
    """config.json says what the metadata say: sizes, rotary base and scaling, window, and every end token."""
    extra = {
        "gemma3.rope.freq_base": 5e5,
        "gemma3.rope.scaling.type": "linear",
        "gemma3.rope.scaling.factor": 8.0,
        "tokenizer.ggml.eot_token_id": 6,
    }
    write_gguf(tmp_path / "tiny.gguf", "gemma3", extra=extra)
    folder = convert(tmp_path / "tiny.gguf", tmp_path / "out")
    config = json.loads((folder / "config.json").read_text())
    assert config["model_type"] == "gemma3_text"
    assert config["num_key_value_heads"] == KV_HEADS
    assert config["rope_theta"] == 5e5
    assert config["rope_scaling"] == {"rope_type": "linear", "factor": 8.0}
    assert config["sliding_window"] == 16
    assert config["eos_token_id"] == [1, 6]
    assert config["tie_word_embeddings"] is True
    assert load(str(folder))[1].eos_token_ids == {1, 6}


def test_byte_level_ids_are_the_originals(llama: Path) -> None:
    """A byte-level tokenizer gives the ids of the one the file was made from, digits one by one."""
    original, tokenizer = byte_level_tokenizer(), AutoTokenizer.from_pretrained(llama)
    for text in [*TEXTS, "<|im_start|>user\nhi<|im_end|>"]:
        assert original.encode(text).ids == tokenizer.encode(text)
    assert tokenizer.convert_ids_to_tokens(tokenizer.encode("12345")) == list("12345")


def test_sentencepiece_merges_follow_from_the_vocabulary(gemma: Path) -> None:
    """A SentencePiece tokenizer takes user-defined pieces whole, then merges the lowest id first."""
    tokenizer = AutoTokenizer.from_pretrained(gemma)
    pieces = {piece: i for i, (piece, _) in enumerate(sentencepiece_vocabulary())}
    for text in ["the other thing", "they thought", "return width"]:
        assert merge_by_id(text, pieces) == tokenizer.encode(text, add_special_tokens=False)
    tokens = tokenizer.convert_ids_to_tokens(
        tokenizer.encode("the\n\n\n<table>  dog", add_special_tokens=False)
    )
    assert tokens[tokens.index("\n\n") :][:4] == ["\n\n", "\n", "<table>", "  "]


def merge_by_id(text: str, pieces: dict[str, int]) -> list[int]:
    """SentencePiece's algorithm, written plainly: join the best pair of neighbours until none is a piece."""
    parts = list(text.replace(" ", "▁"))
    while True:
        joined = [(pieces[a + b], i) for i, (a, b) in enumerate(pairwise(parts)) if a + b in pieces]
        if not joined:
            return [pieces[part] for part in parts]
        _, i = min(joined)
        parts[i : i + 2] = [parts[i] + parts[i + 1]]


def test_sentencepiece_falls_back_to_bytes(gemma: Path) -> None:
    """A character outside the vocabulary becomes its UTF-8 bytes; text that spells a byte token does not."""
    tokenizer = AutoTokenizer.from_pretrained(gemma)
    ids = tokenizer.encode("é", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(ids) == ["<0xC3>", "<0xA9>"]
    spelled = tokenizer.encode("<0x0A>", add_special_tokens=False)
    assert tokenizer.convert_ids_to_tokens(spelled) == ["<", "0x0A>"]


@pytest.mark.parametrize(("model", "first"), [("llama", []), ("gemma", [2])])
def test_text_survives(request: pytest.FixtureRequest, model: str, first: list[int]) -> None:
    """Text comes back from its ids unchanged; a start token stands before it where the file says so."""
    tokenizer = AutoTokenizer.from_pretrained(request.getfixturevalue(model))
    assert tokenizer.is_fast
    for text in TEXTS:
        ids = tokenizer.encode(text)
        plain = tokenizer.encode(text, add_special_tokens=False)
        assert ids == first + plain
        assert tokenizer.decode(plain) == text


def test_detokenizers_are_inferred(llama: Path, gemma: Path) -> None:
    """mlx-lm streams text with its fast detokenizers, not with the naive one."""
    assert load(str(llama))[1].detokenizer.__class__ is BPEStreamingDetokenizer
    spm = load(str(gemma))[1]
    assert spm.detokenizer.__class__ is SPMStreamingDetokenizer
    assert isinstance(spm._detokenizer, SPMStreamingDetokenizer)
    assert spm._detokenizer.trim_space is False


def test_chat_template_is_carried_over(llama: Path, gemma: Path) -> None:
    """The chat template of the file renders; a file without one has none."""
    tokenizer = AutoTokenizer.from_pretrained(llama)
    messages = [{"role": "user", "content": "hi"}]
    render = partial(tokenizer.apply_chat_template, messages, tools=None, add_generation_prompt=True)
    assert render(tokenize=False) == "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n"
    assert AutoTokenizer.from_pretrained(gemma).chat_template is None


@pytest.mark.parametrize(
    ("extra", "tensors", "message"),
    [
        (
            {"general.architecture": "rwkv9"},
            {},
            "architecture 'rwkv9' is not supported; supported: llama, gemma3",
        ),
        ({"tokenizer.ggml.pre": "odd"}, {}, "pre-tokenizer 'odd' is not supported; supported: gpt-2, smollm"),
        ({"llama.rope.scaling.type": "yarn"}, {}, "rotary scaling of type 'yarn'"),
        ({}, {"rope_freqs.weight": np.ones(4, np.float32)}, "no place for tensor 'rope_freqs.weight'"),
        ({}, {"blk.1.attn_v.weight": None}, "tensors are missing: blk.1.attn_v.weight"),
    ],
)
def test_unsupported_files_are_refused(tmp_path: Path, extra: dict, tensors: dict, message: str) -> None:
    """A file that cannot be converted faithfully is refused with the reason, and leaves nothing behind."""
    write_gguf(tmp_path / "tiny.gguf", extra=extra, tensors=tensors)
    with pytest.raises(ModelLoadError, match=message) as caught:
        convert(tmp_path / "tiny.gguf", tmp_path / "out")
    assert caught.value.hint
    assert [path.name for path in tmp_path.iterdir()] == ["tiny.gguf"]


@pytest.mark.parametrize("keep", [0, 3, 20, 1000, 9000, -1])
def test_truncated_files_are_refused(tmp_path: Path, keep: int) -> None:
    """A file cut short anywhere is refused by name, and leaves nothing behind."""
    path = tmp_path / "tiny.gguf"
    write_gguf(path)
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(ModelLoadError, match=r"tiny\.gguf: not a whole GGUF file"):
        convert(path, tmp_path / "out")
    assert [entry.name for entry in tmp_path.iterdir()] == ["tiny.gguf"]


def test_other_files_are_refused(tmp_path: Path) -> None:
    """A file that is not GGUF, and one that is not there, are refused by name."""
    (tmp_path / "notes.txt").write_text("not a model, by any means")
    with pytest.raises(ModelLoadError, match=r"notes\.txt: not a whole GGUF file"):
        convert(tmp_path / "notes.txt", tmp_path / "out")
    with pytest.raises(ModelLoadError, match=r"absent\.gguf: no such file"):
        convert(tmp_path / "absent.gguf", tmp_path / "out")


def test_unknown_dtype_is_refused(tmp_path: Path) -> None:
    """A dtype that is not offered is refused with those that are."""
    with pytest.raises(ModelLoadError, match="use one of: float32, bfloat16"):
        convert(tmp_path / "tiny.gguf", tmp_path / "out", dtype="int4")  # type: ignore[arg-type]


def test_an_older_folder_is_replaced(tmp_path: Path) -> None:
    """A folder that is there already is replaced as a whole, and the same file gives the same bytes."""
    write_gguf(tmp_path / "tiny.gguf")
    first = convert(tmp_path / "tiny.gguf", tmp_path / "out")
    before = {path.name: path.read_bytes() for path in first.iterdir()}
    (first / "stale.bin").touch()
    second = convert(tmp_path / "tiny.gguf", tmp_path / "out")
    assert before == {path.name: path.read_bytes() for path in second.iterdir()}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["out", "tiny.gguf"]
