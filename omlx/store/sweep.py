"""Sweep: compare the files of the cache directory with the table.

    in the table and there      fine
    in the table, not there     lost: the row goes
    ours, not in the table      left by a crash: deleted when older than `grace_s`, else counted (another
                                process may be about to announce it)
    any other file              counted, never touched

A cache directory may be given in error; only what bears our own kind of name in our own folders is deleted.
"""

import os
import time
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

from omlx.store.disk import DATABASE, remove_files, stem_of
from omlx.store.tensorfile import disk_bytes

_TABLE_FILES = {DATABASE, f"{DATABASE}-wal", f"{DATABASE}-shm", f"{DATABASE}-journal"}


@dataclass(frozen=True, slots=True)
class Census:
    """What a sweep found.

    `other_bytes`: of files without a row; `folder_bytes`: of the folders themselves.
    """

    removed_files: int = 0
    removed_bytes: int = 0
    other_files: int = 0
    other_bytes: int = 0
    folder_bytes: int = 0
    lost: tuple[str, ...] = ()


def sweep(directory: Path, filenames: Collection[str], reserved: Collection[str], grace_s: float) -> Census:
    """Delete old leftovers and count what remains. `filenames` are the table's, `reserved` stems in use.

    Raises OSError when the directory cannot be listed.
    """
    unseen = set(filenames)
    removed_files = removed_bytes = other_files = other_bytes = 0
    folder_bytes = disk_bytes(directory.stat())
    oldest = time.time() - grace_s
    for relative, status in _walk(directory):
        if status is None:
            folder_bytes += disk_bytes((directory / relative).stat())
            continue
        stem = stem_of(relative)
        if relative in unseen:
            unseen.discard(relative)
        elif stem is not None and stem in reserved:
            continue  # its reservation counts it
        elif stem is not None and status.st_mtime < oldest:
            remove_files(directory, stem)
            removed_files += 1
            removed_bytes += disk_bytes(status)
        elif relative not in _TABLE_FILES:
            other_files += 1
            other_bytes += disk_bytes(status)
    return Census(removed_files, removed_bytes, other_files, other_bytes, folder_bytes, tuple(sorted(unseen)))


def table_bytes(directory: Path) -> int:
    """Return the bytes on disk of the table and its log."""
    total = 0
    for name in _TABLE_FILES:
        try:
            total += disk_bytes((directory / name).stat())
        except FileNotFoundError:
            continue
    return total


def _walk(directory: Path) -> Iterator[tuple[str, os.stat_result | None]]:
    """Yield every file below, by relative path, with its status; folders with None.

    Links are not followed.
    """
    stack = [""]
    while stack:
        relative = stack.pop()
        with os.scandir(directory / relative) as entries:
            for entry in entries:
                path = f"{relative}/{entry.name}" if relative else entry.name
                if entry.is_dir(follow_symlinks=False):
                    stack.append(path)
                    yield path, None
                    continue
                try:
                    yield path, entry.stat(follow_symlinks=False)
                except FileNotFoundError:
                    continue  # deleted since it was listed
