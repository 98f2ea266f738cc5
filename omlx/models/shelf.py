"""Shelf: the models that were downloaded or prepared on this machine, and how to take one off it. No MLX.

What lies in a folder that the person named is the person's: it is not on the shelf.
"""

import shutil
from dataclasses import dataclass
from pathlib import Path

from omlx.blas import user_cache
from omlx.models.catalog import CATALOG
from omlx.models.describe import hub_name
from omlx.models.discover import hub_cache


@dataclass(frozen=True, slots=True)
class Kept:
    """A model on the shelf: its folders, in all revisions and precisions, and the bytes of their files."""

    path: str
    folders: tuple[Path, ...]
    nbytes: int


def find_kept(path: str) -> Kept | None:
    """Return the model that a hub name or a name of the catalog stands for; None when it is not on the shelf."""
    if path.lower() in CATALOG:
        found = sorted((user_cache() / "models").glob(f"{path.lower()}-*"))
    else:
        repository = "models--" + hub_name(path)[0].replace("/", "--")
        found = [hub_cache() / repository, hub_cache() / ".locks" / repository]
    folders = tuple(folder for folder in found if folder.is_dir())
    if not folders or path.count("/") > 1:
        return None
    return Kept(path, folders, sum(_size(folder) for folder in folders))


def remove(kept: Kept) -> None:
    """Delete a model's folders. Raises OSError."""
    for folder in kept.folders:
        shutil.rmtree(folder)


def _size(folder: Path) -> int:
    """Return the bytes of a folder's files; a link to one of them is not counted again."""
    return sum(file.lstat().st_size for file in folder.rglob("*") if file.is_file() and not file.is_symlink())
