"""Place: the directory of a cold tier, how it is opened, cleaned up, and found again.

A directory that vanished is made again only where it was: on the same device, in a parent that is still
there. An unplugged drive leaves its mount point behind, and the system's disk must not be filled in its
stead.
"""

import errno
import sqlite3
from dataclasses import dataclass
from pathlib import Path

import structlog

from omlx.store.disk import DATABASE
from omlx.store.table import Table
from omlx.store.volume import Allowance, FreeBytes
from omlx.types import BlockName
from omlx.units import format_size

_log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a cold tier is, and within which limits."""

    directory: Path
    allowance: Allowance
    free: FreeBytes
    protected_share: float
    grace_s: float
    max_age_s: float | None = None

    def open(self) -> Table:
        """Open the table, replacing a damaged one; clean up; come within the limits.

        Raises what is in TROUBLE.
        """
        try:
            table = self._open()
        except sqlite3.OperationalError:
            raise
        except sqlite3.DatabaseError as error:
            _log.error("cache table damaged, starting with an empty one", reason=str(error))
            for suffix in ("", "-wal", "-shm"):
                (self.directory / f"{DATABASE}{suffix}").unlink(missing_ok=True)
            table = self._open()
        table.drop_bare()
        self.clean_up(table, opening=True)
        return table

    def clean_up(self, table: Table, *, opening: bool = False) -> set[BlockName]:
        """Sweep, delete what expired, evict what is over the limits; return the blocks that changed. One summary line.

        The line is for everyone at the start and when something was cleaned, else for those who debug.
        """
        census, changed = table.sweep(self.grace_s)
        changed |= table.expire()
        changed |= table.trim()
        tell = _log.info if opening or census.removed_files or census.lost else _log.debug
        tell(
            "cache directory",
            directory=str(self.directory),
            size=format_size(table.total_bytes()),
            budget=format_size(self.allowance.budget_bytes),
            blocks=len(list(table.ledger.blocks())),
            removed_files=census.removed_files,
            lost_files=len(census.lost),
            other_files=census.other_files,
        )
        return changed

    def device(self) -> int:
        """Return the device that the directory is on. Raises OSError."""
        return self.directory.stat().st_dev

    def require(self, device: int) -> None:
        """Raise FileNotFoundError when the directory would be made anew on another device than that."""
        if (self.directory / DATABASE).exists():
            return
        place = self.directory if self.directory.exists() else self.directory.parent
        if place.stat().st_dev != device:
            raise FileNotFoundError(
                errno.ENOENT, "the volume of the cache is not mounted", str(self.directory)
            )

    def _open(self) -> Table:
        table = Table(self.directory, self.allowance, self.free, self.protected_share)
        table.ledger.max_age_s = self.max_age_s
        table.refresh()
        return table
