"""What is asked of each family of mlx-lm caches, dispatched on the class of a layer's cache.

    traits  what record the layer needs
    read    what it holds now
    fill    make a fresh one hold that

A class is met when a file of this room registers exactly that class; a subclass may mean something else. A
model with any other class runs uncached.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import mlx.core as mx

from omlx.types import RecordKind

_BATCH = "it holds the rows of a batch; take one sequence out of it first (`extract`)"

#: Classes of mlx-lm that are not met, by full name, and why. Completeness is tested against mlx-lm itself.
UNSUPPORTED: dict[str, str] = {
    "mlx_lm.models.cache.BatchKVCache": _BATCH,
    "mlx_lm.models.cache.BatchRotatingKVCache": _BATCH,
    # Why not a `state` record: compressed groups grow with the sequence, so every snapshot would hold all of
    # it. Why not `kv`: a row stands for a group of tokens, and the rows of the open group are unfinished
    # sums.
    "mlx_lm.models.deepseek_v41.LayerCache": "it merges tokens into rows and cannot be cut at a token",
}


class UnsupportedCacheError(Exception):
    """A cache class that no family meets. The message names the class, and the reason where one is known."""

    def __init__(self, kind: type, reason: str | None = None) -> None:
        name = f"{kind.__module__}.{kind.__qualname__}"
        reason = reason or UNSUPPORTED.get(name)
        super().__init__(f"{name} ({reason})" if reason else name)


@dataclass(frozen=True, slots=True)
class Traits:
    """The kind of record a layer needs, and how far it looks back if it drops tokens."""

    kind: RecordKind
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Held:
    """What a layer's cache holds.

    Arrays of tokens are `(1, heads, tokens, dim)`: the last `tokens` tokens before `end`, in order. Arrays of
    a state are `(1, ...)`, and `end` is None: a state does not know its position. No arrays: nothing was
    written yet.
    """

    arrays: Mapping[str, mx.array]
    end: int | None = None

    def first(self) -> int:
        """Return the position of the first token that is held."""
        assert self.end is not None  # asked of arrays of tokens only
        return self.end - next(iter(self.arrays.values())).shape[2]


@singledispatch
def traits(cache: Any) -> Traits:
    """Return what a layer's cache is. Raises UnsupportedCacheError."""
    raise UnsupportedCacheError(type(cache))


@singledispatch
def read(cache: Any) -> Held:
    """Return what a layer's cache holds. Lazy; changes nothing."""
    raise UnsupportedCacheError(type(cache))


@singledispatch
def fill(cache: Any, arrays: Mapping[str, mx.array], end: int) -> None:  # noqa: ARG001 - the signature of all families
    """Make a fresh cache hold arrays, as if it had computed tokens `[0, end)`. Takes over the arrays."""
    raise UnsupportedCacheError(type(cache))
