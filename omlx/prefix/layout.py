"""Layout: what a model's cache is made of, as plain values.

`omlx.kv` derives it from mlx-lm's caches once, when the model is loaded. Layers of one kind and shape form a
group; a group's arrays are stacked, so a record holds few arrays however many layers the model has.
"""

from collections.abc import Iterator

import msgspec

from omlx.types import RecordKind

#: By how many tokens mlx-lm's caches grow at once.
_STEP_TOKENS = 256


class TensorSpec(msgspec.Struct, frozen=True):
    """One stacked array of a record.

    `shape` without the token axis being known: -1 stands where the number of tokens goes, for example
    `(layers, kv_heads, -1, head_dim)`; a `state` record has no token axis. `dtype` is the NumPy name of the
    stored form (bfloat16 is stored as uint16).
    """

    name: str
    shape: tuple[int, ...]
    dtype: str

    def bytes_for(self, num_tokens: int) -> int:
        """Return the array's bytes for that many tokens."""
        size = {"float32": 4, "float16": 2, "uint16": 2, "uint32": 4, "uint8": 1, "int32": 4, "int64": 8}[
            self.dtype
        ]
        for extent in self.shape:
            size *= num_tokens if extent == -1 else extent
        return size


class LayerGroup(msgspec.Struct, frozen=True):
    """Layers of one kind and shape.

    `window` is the number of tokens a sliding layer looks back on (its own token included), else None.
    `layers` are indices into the model's list of caches; a member of a CacheList is addressed by a path.
    """

    kind: RecordKind
    layers: tuple[tuple[int, ...], ...]
    tensors: tuple[TensorSpec, ...]
    window: int | None = None


class Layout(msgspec.Struct, frozen=True):
    """All groups of a model's cache, in a fixed order. Tensor names are unique over the whole layout."""

    groups: tuple[LayerGroup, ...]

    def kinds(self) -> tuple[RecordKind, ...]:
        """Return the kinds of record a block of this model can hold, each once."""
        return tuple(dict.fromkeys(group.kind for group in self.groups))

    def window_tokens(self) -> int:
        """Return how many tokens of `window` records a resume needs before it: the largest window."""
        return max((group.window or 0 for group in self.groups if group.kind == "window"), default=0)

    def tensors(self, kind: RecordKind) -> Iterator[TensorSpec]:
        """Yield the arrays of one kind of record."""
        for group in self.groups:
            if group.kind == kind:
                yield from group.tensors

    def record_bytes(self, kind: RecordKind, num_tokens: int) -> int:
        """Return the bytes of one record of that kind and length."""
        return sum(spec.bytes_for(num_tokens) for spec in self.tensors(kind))

    def sequence_bytes(self, num_tokens: int) -> int:
        """Return about how many bytes the live caches of a sequence of that length take.

        A cache grows by steps of tokens; a sliding layer holds its window, and what a step adds to it. Layers of which
        one array alone is stored may hold another of its size that nothing reads.
        """
        grown = -(-num_tokens // _STEP_TOKENS) * _STEP_TOKENS
        total = 0
        for group in self.groups:
            held = min(grown, group.window + _STEP_TOKENS) if group.window else grown
            unread = group.kind == "kv" and len(group.tensors) == 1
            total += sum(spec.bytes_for(held) for spec in group.tensors) * (2 if unread else 1)
        return total

    def token_bytes(self) -> int:
        """Return the bytes that one more token adds to the stored records (states not counted)."""
        return sum(self.record_bytes(kind, 1) for kind in self.kinds() if kind != "state")
