"""Volume: how many bytes the cold tier may take now. Pure arithmetic over measured values.

    volume   |---- others ----|-- ours --|------------- free -------------|
                                         may grow to min(budget, max_share * (ours + free)),
                                         and free never falls below min_free

Measured before each block is written, since others fill the volume too.
"""

import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

#: Bytes of the volume that are free for this user. Raises OSError.
FreeBytes = Callable[[Path], int]


def free_bytes(directory: Path) -> int:
    """Return the bytes that an ordinary user may still write on the directory's volume. Raises OSError."""
    return shutil.disk_usage(directory).free


@dataclass(frozen=True, slots=True)
class Allowance:
    """The limits of the cold tier: a budget, a share of the volume's free space, a floor that stays free."""

    budget_bytes: int
    max_share: float
    min_free_bytes: int

    def limit(self, ours: int, free: int) -> int:
        """Return how many bytes we may hold."""
        return min(self.budget_bytes, int(self.max_share * (ours + free)))

    def excess(self, ours: int, free: int, need: int) -> int:
        """Return how many bytes must go before `need` more may be written; 0 when there is room."""
        return max(0, ours + need - self.limit(ours, free), self.min_free_bytes + need - free)
