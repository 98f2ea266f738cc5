"""Read one GGUF file: metadata by key, tensors as float32.

Source: the GGUF specification and the `gguf` package of llama.cpp, which also dequantizes every common type.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize

from omlx.errors import ModelLoadError

Float32s = npt.NDArray[np.float32]

# rows dequantized at a time: bounds memory for embeddings of hundreds of thousands of rows
_SLAB_ELEMENTS = 16 * 1024 * 1024


class GGUFFile:
    """One GGUF file, mapped into memory.

    Raises:
        ModelLoadError: the file is missing, damaged, cut short, or not GGUF.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        if not path.is_file():
            raise ModelLoadError(f"{path}: no such file", hint="give the path of a .gguf file")
        with self._reading():
            self._reader = GGUFReader(path)
        self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}

    def get(self, key: str, default: Any = None) -> Any:
        """Return the metadata at `key`, or `default`; `{arch}` in a key stands for the architecture."""
        field = self._reader.get_field(self._key(key))
        if field is None:
            return default
        with self._reading():
            return field.contents()

    def require(self, key: str) -> Any:
        """Return the metadata at `key`; raise ModelLoadError where it is missing."""
        value = self.get(key)
        if value is None:
            raise ModelLoadError(
                f"{self.path}: the metadata lack '{self._key(key)}'",
                hint="use a file written by llama.cpp's converter",
            )
        return value

    def _key(self, key: str) -> str:
        return key.replace("{arch}", self.architecture) if "{arch}" in key else key

    @property
    def architecture(self) -> str:
        """The name under `general.architecture`."""
        return str(self.require("general.architecture"))

    @property
    def tensor_names(self) -> list[str]:
        """Names of all tensors, in the order of the file."""
        return list(self._tensors)

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor in row-major order: `(out, in)` for a matrix."""
        return tuple(int(size) for size in reversed(self._tensors[name].shape))

    def slabs(self, name: str) -> Iterator[Float32s]:
        """Yield a tensor as float32 in runs of whole rows, in order."""
        tensor = self._tensors[name]
        data = tensor.data.reshape(-1, tensor.data.shape[-1])
        row_elements = self.shape(name)[-1]
        step = max(1, _SLAB_ELEMENTS // row_elements)
        for start in range(0, len(data), step):
            with self._reading():
                slab = dequantize(data[start : start + step], tensor.tensor_type)
            yield np.asarray(slab, dtype=np.float32)

    def tensor(self, name: str) -> Float32s:
        """Return a whole tensor as float32, shaped as `shape` tells."""
        return np.concatenate(list(self.slabs(name))).reshape(self.shape(name))

    @contextmanager
    def _reading(self) -> Iterator[None]:
        """Turn what the `gguf` package raises for bad bytes into one error."""
        try:
            yield
        except NotImplementedError as error:
            raise ModelLoadError(
                f"{self.path}: tensors of an unsupported type: {error}",
                hint="use a Q4, Q5, Q6, Q8 or F16 file",
            ) from error
        except (ValueError, IndexError, KeyError, TypeError, OverflowError, OSError) as error:
            raise ModelLoadError(
                f"{self.path}: not a whole GGUF file: {error}", hint="download the file again"
            ) from error
