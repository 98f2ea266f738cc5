"""Convert one GGUF file into a folder that mlx-lm loads: config, weights, tokenizer.

The weights are dequantized, not translated: a small model that is dequantized and quantized again to 4 bit
babbles, and float32 is what MLX's CPU backend computes fast (see `blas`). bfloat16 is for Metal.
"""

import json
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from omlx.errors import ModelLoadError
from omlx.models.gguf_config import generation_config, model_config
from omlx.models.gguf_file import GGUFFile
from omlx.models.gguf_tokenizer import build_tokenizer, tokenizer_config
from omlx.models.gguf_weights import ARCHITECTURES, Dtype, num_bytes, plan_weights, write_weights

#: Raised whenever the same GGUF gives a different folder, so that prepared models are made anew.
CONVERTER_VERSION = 1

WEIGHTS = "model.safetensors"


def convert(
    source: Path,
    folder: Path,
    *,
    dtype: Dtype = "float32",
    on_bytes: Callable[[int, int], object] = lambda _written, _total: None,
) -> Path:
    """Make `folder` a model for mlx-lm out of the GGUF file `source`, and return it.

    The folder appears whole or not at all; one that is there already is replaced.

    Args:
        source: the GGUF file.
        folder: where the model is to be; its parent is made where it is missing.
        dtype: "float32" or "bfloat16": how the weights are stored and computed.
        on_bytes: called as weights are written, with the bytes just written and the bytes in all.

    Raises:
        ModelLoadError: the file cannot be read, or its architecture or tokenizer is not supported.
        OSError: the folder cannot be written.
    """
    if dtype not in get_args(Dtype):
        raise ModelLoadError(
            f"dtype {dtype!r} is not supported", hint=f"use one of: {', '.join(get_args(Dtype))}"
        )
    file = GGUFFile(source)
    if file.architecture not in ARCHITECTURES:
        raise ModelLoadError(
            f"{source}: architecture '{file.architecture}' is not supported; "
            f"supported: {', '.join(ARCHITECTURES)}",
            hint="use an MLX folder of this model",
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    scratch = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.new-"))
    try:
        _write_folder(file, scratch, dtype, on_bytes)
        replace_folder(scratch, folder)
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    return folder


def _write_folder(file: GGUFFile, folder: Path, dtype: Dtype, on_bytes: Callable[[int, int], object]) -> None:
    plan = plan_weights(file)
    total = num_bytes(plan, dtype)
    tied = all(weight.source != "output.weight" for weight in plan)
    _write_json(folder / "config.json", model_config(file, tied=tied) | {"torch_dtype": dtype})
    _write_json(folder / "generation_config.json", generation_config(file))
    _write_json(folder / "tokenizer_config.json", tokenizer_config(file))
    build_tokenizer(file).save(str(folder / "tokenizer.json"), pretty=False)
    write_weights(file, plan, folder / WEIGHTS, dtype, lambda written: on_bytes(written, total))


def _write_json(path: Path, values: dict[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


def replace_folder(scratch: Path, folder: Path) -> None:
    """Rename `scratch` to `folder`, on the same disk; an older folder is removed."""
    scratch.chmod(0o777 & ~_umask())
    if not folder.exists():
        scratch.rename(folder)
        return
    old = Path(tempfile.mkdtemp(dir=folder.parent, prefix=f".{folder.name}.old-"))
    folder.rename(old / folder.name)
    scratch.rename(folder)
    shutil.rmtree(old, ignore_errors=True)


def _umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask
