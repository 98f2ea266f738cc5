"""All families, registered; and the way from a model's list of caches to single ones.

A CacheList is no family: it is the caches of one layer, each addressed by a path (`(3, 1)`: the second of
layer 3).
"""

from collections.abc import Iterator, Sequence
from typing import Any

from mlx_lm.models.cache import CacheList

from omlx.kv import chunked, full, quantized, recurrent, sliding  # noqa: F401 - registers the families
from omlx.kv.family import UnsupportedCacheError, fill, read, traits

Path = tuple[int, ...]

__all__ = ["Path", "fill", "is_met", "member", "read", "traits", "walk"]


def is_met(kind: type) -> bool:
    """Return whether a family meets exactly this class of caches."""
    return kind in traits.registry and kind is not object


def walk(caches: Sequence[Any], before: Path = ()) -> Iterator[tuple[Path, Any]]:
    """Yield the path and cache of each layer, and of each member of a CacheList.

    Raises UnsupportedCacheError for a class that no family meets.
    """
    for index, cache in enumerate(caches):
        path = (*before, index)
        if type(cache) is CacheList:
            yield from walk(cache.caches, path)
        elif is_met(type(cache)):
            yield path, cache
        else:
            raise UnsupportedCacheError(type(cache))


def member(caches: Sequence[Any], path: Path) -> Any:
    """Return the cache at a path."""
    cache = caches[path[0]]
    for index in path[1:]:
        cache = cache[index]
    return cache
