"""Fingerprint: the identity of a model as far as its KV is concerned. By content, never by name or path. No MLX.

It covers the weights (header and size of each file, samples of each tensor), the config (quantization included), the
tokenizer and chat template, code that the folder brings, options that change the cache, and the version of mlx-lm's
cache code. Moving, copying or touching a folder keeps it; changing a tensor, a rope value or the template does not. One
value changed in the middle of a large tensor goes unseen: reading 20 GB takes 10 s, the samples 0.1 s.
"""

import hashlib
import struct
from collections.abc import Iterator, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from omlx.errors import ModelLoadError
from omlx.types import Fingerprint

#: Raised when the meaning of stored records changes without their schema changing.
IDENTITY_VERSION = 2

_TEXT_FILES = (
    "config.json",
    "tokenizer.json",
    "tokenizer.model",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "chat_template.jinja",
    "chat_template.json",
)
_SAMPLE_BYTES = 4096
_SAMPLES = 64
#: Of each tensor: three samples of this size, or all of one that is small (a norm of 8,192 values in float16).
_TENSOR_BYTES = 1024
_SMALL_BYTES = 16 * 1024


def fingerprint(
    folder: Path, options: Mapping[str, object] | None = None, adapter: Path | None = None
) -> Fingerprint:
    """Return the identity of the model in a folder, with an adapter and the options that change its KV.

    Reads some 256 KiB of each weight file and 3 to 16 KiB of each tensor, and text files and adapter weights whole.
    Raises ModelLoadError when there are no weights, or a file is not what it should be.
    """
    weights = sorted(folder.glob("*.safetensors"))
    if not weights:
        raise ModelLoadError(f"{folder} has no *.safetensors weights", hint="give the folder of an MLX model")
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(folder, weights, adapter):
        digest.update(part)
    for key, value in sorted((options or {}).items()):
        digest.update(f"{key}={value!r}\0".encode())
    minor = ".".join(version("mlx-lm").split(".")[:2])
    digest.update(f"mlx-lm {minor}, identity {IDENTITY_VERSION}".encode())
    return Fingerprint(digest.hexdigest())


def _parts(folder: Path, weights: list[Path], adapter: Path | None) -> Iterator[bytes]:
    # some folders bring the code that computes their model
    for path in (*(folder / name for name in _TEXT_FILES), *sorted(folder.glob("*.py"))):
        yield from _text_parts(path)
    for path in weights:
        yield from _weight_parts(path)
    if adapter is not None:
        for path in sorted(adapter.glob("adapter*")):
            yield from _text_parts(path)


def _text_parts(path: Path) -> Iterator[bytes]:
    if path.exists():
        content = path.read_bytes()
        yield f"{path.name}\0{len(content)}\0".encode()
        yield content


def _weight_parts(path: Path) -> Iterator[bytes]:
    """Yield a weight file's size, its safetensors header, and samples: of each tensor, and evenly spread."""
    size = path.stat().st_size
    yield f"weights\0{size}\0".encode()
    with path.open("rb") as file:
        header = file.read(8)
        if len(header) < 8 or (length := struct.unpack("<Q", header)[0]) > size - 8:
            raise ModelLoadError(f"{path} is not a complete safetensors file", hint="download it again")
        described = file.read(length)
        yield described
        start = 8 + length
        spread = [(start + (size - start) * i // _SAMPLES, _SAMPLE_BYTES) for i in range(_SAMPLES)]
        for offset, count in [*spread, *_tensor_samples(path, described, start)]:
            file.seek(offset)
            yield file.read(count)


def _tensor_samples(path: Path, header: bytes, start: int) -> Iterator[tuple[int, int]]:
    """Yield offset and length of each tensor's samples: both ends and the middle, all of a small one.

    Why each: one norm, or one matrix of one layer, may be all that a fine-tune or an edit has changed.
    """
    try:
        tensors = msgspec.json.decode(header, type=dict[str, dict[str, Any]])
        extents = [entry["data_offsets"] for name, entry in tensors.items() if name != "__metadata__"]
    except (msgspec.MsgspecError, KeyError) as error:
        raise ModelLoadError(f"{path} has no safetensors header", hint="download it again") from error
    for begin, end in sorted(extents):
        if end - begin <= _SMALL_BYTES:
            yield start + begin, end - begin
        else:
            middle = (begin + end - _TENSOR_BYTES) // 2
            yield from ((start + at, _TENSOR_BYTES) for at in (begin, middle, end - _TENSOR_BYTES))
