"""ColdTier (API draft; filled in soon)."""

from pathlib import Path


class ColdTier:
    """Records on disk under a budget of real bytes."""

    def __init__(
        self,
        directory: Path,
        budget_bytes: int,
        *,
        max_share: float = 0.9,
        min_free_bytes: int = 1024**3,
    ) -> None:
        """`max_share`: of (free + own) bytes of the volume; `min_free_bytes`: left free whatever the budget."""
        raise NotImplementedError
