"""Copy computed KV out of a running sequence, as records that nothing else changes.

Records are copies: a view would keep the sequence's whole buffer alive, and every later step would have to
copy that buffer instead of writing into it.
"""

from collections.abc import Sequence
from typing import Any

import mlx.core as mx

from omlx.errors import CacheError
from omlx.kv.families import member, read
from omlx.kv.family import Held
from omlx.kv.layout import array_name
from omlx.kv.transfer import to_device, to_record
from omlx.prefix.layout import LayerGroup, Layout
from omlx.store.record import Record
from omlx.types import RecordKind

__all__ = ["capture", "to_device", "to_record"]


def capture(
    caches: Sequence[Any], layout: Layout, ranges: Sequence[tuple[int, int]], position: int | None = None
) -> list[dict[RecordKind, Record]]:
    """Return one mapping of records per token range `[start, end)`, evaluated, in host and device form.

    `position` is how many tokens the sequence has run, by default the end of the last range. Only a range
    that ends there has a `state` record. Raises CacheError when a layer has already dropped a token of a
    range.
    """
    if position is None:
        position = ranges[-1][1] if ranges else 0
    captured: list[dict[RecordKind, dict[str, mx.array]]] = [{} for _ in ranges]
    for group in layout.groups:
        layers = [read(member(caches, path)) for path in group.layers]
        for by_kind, (start, end) in zip(captured, ranges, strict=True):
            if group.kind != "state":
                by_kind.setdefault(group.kind, {}).update(_tokens(group, layers, start, end))
            elif end == position:
                by_kind.setdefault(group.kind, {}).update(_state(group, layers))
    if any(group.kind == "state" for group in layout.groups):
        _drop_partial_states(layout, captured)
    mx.eval(captured)
    return [{kind: to_record(kind, arrays) for kind, arrays in by_kind.items()} for by_kind in captured]


def _tokens(group: LayerGroup, layers: Sequence[Held], start: int, end: int) -> dict[str, mx.array]:
    """Return a group's arrays for tokens `[start, end)`: each `(layers, heads, end - start, dim)`."""
    stacked = {}
    for spec in group.tensors:
        parts = []
        for held in layers:
            first = held.first() if held.arrays else end
            if start < first or end > (held.end or 0):
                raise CacheError(
                    f"tokens [{start}, {end}) are not in a layer that holds [{first}, {held.end})"
                )
            parts.append(held.arrays[array_name(spec)][:, :, start - first : end - first])
        stacked[spec.name] = _stacked(parts)
    return stacked


def _state(group: LayerGroup, layers: Sequence[Held]) -> dict[str, mx.array]:
    """Return a group's arrays: each `(layers, ...)`. One that has not its full size yet is left out."""
    stacked = {}
    for spec in group.tensors:
        parts = [held.arrays[array_name(spec)] for held in layers if array_name(spec) in held.arrays]
        if parts and (len(parts), *parts[0].shape[1:]) == spec.shape:
            stacked[spec.name] = _stacked(parts)
    return stacked


def _stacked(parts: Sequence[mx.array]) -> mx.array:
    """Return `(1, ...)` arrays as one copy `(len(parts), ...)`."""
    # joining one array to nothing copies it; stacking it may share its buffer
    return mx.concatenate([*parts, parts[0][:0]] if len(parts) == 1 else list(parts), axis=0)


def _drop_partial_states(layout: Layout, captured: Sequence[dict[RecordKind, dict[str, mx.array]]]) -> None:
    """Remove `state` arrays where some are missing: no record shortens a match, a partial one breaks it."""
    names = {spec.name for spec in layout.tensors("state")}
    for by_kind in captured:
        if by_kind.get("state", {}).keys() != names:
            by_kind.pop("state", None)
