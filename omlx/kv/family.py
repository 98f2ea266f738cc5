"""What is asked of each family of mlx-lm caches, dispatched on the class of a layer's cache.

A class that no file of this room registers is unsupported: its model runs uncached.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import singledispatch
from typing import Any

import mlx.core as mx

from omlx.types import RecordKind


class UnsupportedCacheError(Exception):
    """A cache class that no family meets. The message names the class."""


@dataclass(frozen=True, slots=True)
class Traits:
    """The kind of record a layer needs, and how far it looks back if it slides."""

    kind: RecordKind
    window: int | None = None


@dataclass(frozen=True, slots=True)
class Span:
    """A layer's arrays for tokens `[first, end)`, in order, the token axis third: `(1, heads, end - first, dim)`."""

    first: int
    end: int
    arrays: Mapping[str, mx.array]


@singledispatch
def traits(cache: Any) -> Traits:
    """Return what a layer's cache is. Raises UnsupportedCacheError."""
    raise UnsupportedCacheError(f"{type(cache).__module__}.{type(cache).__qualname__}")


@singledispatch
def read(cache: Any) -> Span:
    """Return what a layer's cache holds, in the order of tokens. Lazy; changes nothing."""
    raise UnsupportedCacheError(type(cache).__qualname__)


@singledispatch
def fill(cache: Any, span: Span) -> None:
    """Make a fresh cache hold a span, as if it had computed tokens `[0, span.end)`. Takes over the arrays."""
    raise UnsupportedCacheError(type(cache).__qualname__)

