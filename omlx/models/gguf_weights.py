"""Turn the tensors of a GGUF file into the weights that mlx-lm expects, streamed into one safetensors file.

Two things differ besides names (llama.cpp, `convert_hf_to_gguf.py`):

- `llama`: the rows of attn_q and attn_k are permuted so that rotary pairs are neighbours; here they are put
  back into halves.
- `gemma3`: norm weights are stored plus one; mlx-lm adds the one itself.
"""

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeAlias

import numpy as np
import numpy.typing as npt

from omlx.errors import ModelLoadError
from omlx.models.gguf_file import Float32s, GGUFFile

Dtype: TypeAlias = Literal["float32", "bfloat16"]

_BLOCK_NAME = re.compile(r"blk\.(\d+)\.(.+)\.(weight|bias)")
_TOP_LEVEL = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",  # absent where the embedding is used for both
}
_COMMON = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
_BLOCK_TABLES = {
    "llama": {**_COMMON, "ffn_norm": "post_attention_layernorm"},
    "gemma3": {
        **_COMMON,
        "attn_q_norm": "self_attn.q_norm",
        "attn_k_norm": "self_attn.k_norm",
        "post_attention_norm": "post_attention_layernorm",
        "ffn_norm": "pre_feedforward_layernorm",
        "post_ffw_norm": "post_feedforward_layernorm",
    },
}
ARCHITECTURES = tuple(_BLOCK_TABLES)


@dataclass(frozen=True, slots=True)
class Weight:
    """One tensor on its way: GGUF name, mlx-lm name, and shape."""

    source: str
    target: str
    shape: tuple[int, ...]


def plan_weights(file: GGUFFile) -> list[Weight]:
    """Return what becomes of each tensor.

    Raises:
        ModelLoadError: a tensor has no place in the mlx-lm model, or one that it needs is missing.
    """
    table = _BLOCK_TABLES[file.architecture]
    plan = [Weight(name, _target(file, name, table), file.shape(name)) for name in file.tensor_names]
    blocks = range(file.require("{arch}.block_count"))
    needed = {f"blk.{block}.{name}.weight" for block in blocks for name in table}
    needed |= set(_TOP_LEVEL) - {"output.weight"}
    if missing := sorted(needed - {weight.source for weight in plan}):
        raise ModelLoadError(
            f"{file.path}: tensors are missing: {', '.join(missing[:5])} ({len(missing)} in all)",
            hint="use a file with the whole model",
        )
    return plan


def write_weights(
    file: GGUFFile, plan: list[Weight], path: Path, dtype: Dtype, on_bytes: Callable[[int], object]
) -> None:
    """Write the tensors of `plan` as `dtype` to a safetensors file, a slab at a time.

    `on_bytes` is called with the number of bytes just written.
    """
    header = _header(plan, dtype)
    with path.open("wb") as out:
        out.write(len(header).to_bytes(8, "little") + header)
        for weight in plan:
            for slab in _converted(file, weight):
                on_bytes(out.write(_cast(slab, dtype).data.cast("B")))


def num_bytes(plan: list[Weight], dtype: Dtype) -> int:
    """Return the bytes that the tensors of `plan` take as `dtype`."""
    return sum(_size(weight, dtype) for weight in plan)


def _target(file: GGUFFile, name: str, table: dict[str, str]) -> str:
    if name in _TOP_LEVEL:
        return _TOP_LEVEL[name]
    match = _BLOCK_NAME.fullmatch(name)
    if match is None or match[2] not in table:
        raise ModelLoadError(
            f"{file.path}: no place for tensor '{name}' in architecture '{file.architecture}'",
            hint="use a model without it, or an MLX folder made from the original weights",
        )
    return f"model.layers.{match[1]}.{table[match[2]]}.{match[3]}"


def _converted(file: GGUFFile, weight: Weight) -> Iterator[Float32s]:
    name = weight.source
    if file.architecture == "llama" and ".attn_q." in name:
        yield halves(file.tensor(name), file.require("llama.attention.head_count"))
    elif file.architecture == "llama" and ".attn_k." in name:
        yield halves(file.tensor(name), _kv_heads(file))
    elif file.architecture == "gemma3" and "norm" in name:
        yield file.tensor(name) - np.float32(1)
    else:
        yield from file.slabs(name)


def _kv_heads(file: GGUFFile) -> int:
    heads: int = file.get("llama.attention.head_count_kv") or file.require("llama.attention.head_count")
    return heads


def halves(rows: Float32s, num_heads: int) -> Float32s:
    """Undo the rotary permutation of `rows`, `(heads * head_dim, ...)`.

    Within a head, rows in the order 0, n, 1, n+1, ... come back as 0, 1, ..., n, n+1, ... (n: half its rows).
    """
    paired = rows.reshape(num_heads, rows.shape[0] // num_heads // 2, 2, *rows.shape[1:])
    return np.ascontiguousarray(paired.swapaxes(1, 2)).reshape(rows.shape)


def _cast(array: Float32s, dtype: Dtype) -> npt.NDArray[Any]:
    array = np.ascontiguousarray(array)
    return array if dtype == "float32" else to_bfloat16(array)


def to_bfloat16(array: Float32s) -> npt.NDArray[np.uint16]:
    """Round float32 to bfloat16, ties to even, as raw uint16: NumPy has no bfloat16. Finite values only."""
    bits = array.view(np.uint32)
    rounding = ((bits >> np.uint32(16)) & np.uint32(1)) + np.uint32(0x7FFF)
    return ((bits + rounding) >> np.uint32(16)).astype(np.uint16)


def _size(weight: Weight, dtype: Dtype) -> int:
    return int(np.prod(weight.shape)) * (4 if dtype == "float32" else 2)


def _header(plan: list[Weight], dtype: Dtype) -> bytes:
    """Return the JSON head of a safetensors file, padded so that the data is aligned to 8 bytes."""
    tensors: dict[str, Any] = {"__metadata__": {"format": "mlx"}}
    end = 0
    for weight in plan:
        start, end = end, end + _size(weight, dtype)
        tensors[weight.target] = {
            "dtype": "F32" if dtype == "float32" else "BF16",
            "shape": list(weight.shape),
            "data_offsets": [start, end],
        }
    text = json.dumps(tensors, separators=(",", ":")).encode()
    return text + b" " * (-len(text) % 8)
