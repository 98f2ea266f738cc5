"""HotTier (API draft; filled in soon)."""


class HotTier:
    """Records ready in RAM under a budget."""

    def __init__(self, budget_bytes: int, max_arrays: int = 16384) -> None:
        raise NotImplementedError
