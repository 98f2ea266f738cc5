"""A loaded model: weights on the device, and the plain value that the rest of omlx sees."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from omlx.pipeline.model import Model
from omlx.prefix.layout import Layout


@dataclass(frozen=True)
class LoadedModel:
    """Weights and their description. `module` is called as `module(tokens, cache=caches)`; it holds `nbytes`.

    `alone`: why its sequences decode one by one; None when they share a forward pass.
    """

    module: Any
    new_caches: Callable[[], list[Any]]
    model: Model
    nbytes: int = 0
    alone: str | None = None

    @property
    def layout(self) -> Layout | None:
        """Return what its cache is made of, or None when it runs uncached."""
        return self.model.layout
