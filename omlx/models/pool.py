"""The models in memory, by name. Loaded on first use, on the device thread.

Why it holds no lock: it is touched on the device thread only; other threads only peek.
"""

from collections.abc import Callable

from omlx.models.loaded import LoadedModel


class ModelPool:
    """Keep what was loaded.

    Args:
        load: loads one model by its configured name.
    """

    def __init__(self, load: Callable[[str], LoadedModel]) -> None:
        self._load = load
        self._loaded: dict[str, LoadedModel] = {}

    def get(self, name: str) -> LoadedModel:
        """Return the model, loading it when it is not in memory. Raises ModelLoadError."""
        if name not in self._loaded:
            self._loaded[name] = self._load(name)
        return self._loaded[name]

    def peek(self, name: str) -> LoadedModel | None:
        """Return the model if it is in memory. Safe on any thread: one look into a dict."""
        return self._loaded.get(name)
