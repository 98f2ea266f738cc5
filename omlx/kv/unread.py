"""Values that a cache holds and its model never reads: zeros beside the keys of DeepSeek V3.2's indexer.

They are not worth storing. That they are zero proves nothing by itself (those of a padding token may be, too): the
model is run on from where it stands, once as it is and once with ones in their place. Where the logits have the same
bits, nothing reads them.
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import mlx.core as mx
from mlx_lm.models.cache import KVCache

from omlx.kv.families import Path, fill, member, read, walk

#: Any tokens do; every vocabulary has these.
_TOKENS = (1, 2, 3)


def unread_values(model: Any, caches: Sequence[Any], position: int) -> frozenset[Path]:
    """Return the layers whose values the model, which has run `position` tokens, would not miss.

    Leaves the caches run on where any layer was in doubt.
    """
    suspects = [path for path, cache in walk(caches) if type(cache) is KVCache and _zero_beside_keys(cache)]
    if not suspects:
        return frozenset()
    held = {path: read(cache).arrays for path, cache in walk(caches)}
    before = _run_on(model, caches, held, position)
    return frozenset(
        path
        for path in suspects
        if mx.array_equal(before, _run_on(model, caches, held, position, spoiled=[path])).item()
    )


def _zero_beside_keys(cache: KVCache) -> bool:
    arrays = read(cache).arrays
    if not arrays or not arrays["values"].size:
        return False
    return bool(mx.any(arrays["keys"]).item()) and not mx.any(arrays["values"]).item()


def _run_on(
    model: Any,
    caches: Sequence[Any],
    held: Mapping[Path, Mapping[str, mx.array]],
    position: int,
    spoiled: Collection[Path] = (),
) -> mx.array:
    """Return the logits of the next tokens, with ones for the values of some layers."""
    for path, arrays in held.items():
        given = {name: array[:] for name, array in arrays.items()}  # what is filled in is written into
        if path in spoiled:
            given["values"] = mx.ones_like(given["values"])
        if given:
            fill(member(caches, path), given, position)
    logits: mx.array = model(mx.array([_TOKENS]), cache=caches)
    mx.eval(logits)
    return logits
