"""What the parity tests share: a tiny model of every family, run on the grid, captured and restored."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from tests.tiny_models import CONFIGS, make_module, settings_of  # loads the BLAS, before MLX

# isort: split
import mlx.core as mx
from mlx_lm.models.cache import ConcatenateKVCache, make_prompt_cache

from omlx.kv.capture import capture
from omlx.kv.layout import probe_layout
from omlx.kv.quantize import quantize_caches
from omlx.kv.restore import restore
from omlx.pipeline.chunks import chunk_ends
from omlx.pipeline.work import Piece
from omlx.prefix.layout import Layout
from omlx.store.record import Record, check_record

CHUNK = 64
#: The bound of the contract on float32 logits between grid points.
BOUND = 1e-4

Captured = list[tuple[int, int, dict[str, Record]]]


@dataclass(frozen=True)
class Tiny:
    """A model as the engine holds it."""

    module: Any
    new_caches: Callable[[], list[Any]]
    layout: Layout


def _quantized(bits: int) -> tuple[Any, Callable[[], list[Any]]]:
    module = make_module(settings_of("llama", hidden_size=128))
    return module, lambda: quantize_caches(make_prompt_cache(module), bits, 32).caches


def _concatenating() -> tuple[Any, Callable[[], list[Any]]]:
    module = make_module(settings_of("llama"))
    return module, lambda: [ConcatenateKVCache() for _ in module.layers]


#: Families that are a choice of caches, not of the model.
_CHOICES = {
    "llama_concatenate": _concatenating,
    "llama_8_bits": lambda: _quantized(8),
    "llama_4_bits": lambda: _quantized(4),
}
FAMILIES = (*CONFIGS, *_CHOICES)


@cache
def tiny(family: str) -> Tiny:
    """Return the family's model, made once."""
    if family in _CHOICES:
        module, new_caches = _CHOICES[family]()
    else:
        module = make_module(settings_of(family))

        def new_caches() -> list[Any]:
            return make_prompt_cache(module)

    return Tiny(module, new_caches, probe_layout(module, new_caches()))


#: Families that are smooth in their inputs: rounding stays rounding. Elsewhere it may tip a choice of experts
#: or a step of quantization, with or without a cache, and then one token's logits jump.
SMOOTH = frozenset(
    {
        "llama",
        "llama_concatenate",
        "gemma3",
        "qwen3_5",
        "mamba2",
        "falcon_h1",
        "baichuan_m1",
        "recurrent_gemma",
    }
)


def assert_within_bound(family: str, left, right) -> None:
    """Assert that logits of the same tokens differ by rounding alone; where that may tip things, most do."""
    by_token = np.abs(left - right).max(axis=1)
    if family in SMOOTH:
        assert by_token.max() <= BOUND
    else:
        assert np.median(by_token) <= (100 * BOUND if family.endswith("_bits") else BOUND)


def tokens_of(count: int, seed: int = 0):
    """Return random tokens, the same for the same arguments."""
    return np.random.default_rng(seed).integers(8, 500, count).astype(np.int32)


def forward(model: Tiny, caches, tokens) -> Any:
    """Run tokens in one piece; return their logits `(tokens, vocabulary)`, evaluated."""
    logits = model.module(mx.array(np.asarray(tokens))[None], cache=caches)[0]
    mx.eval(logits, [layer.state for layer in caches])
    return logits


def run(model: Tiny, caches, tokens, start: int = 0, *, captured: Captured | None = None, cuts=()):
    """Prefill from `start` on the grid, then run the last token; return the logits of all as NumPy."""
    logits = []
    for end in chunk_ends(start, len(tokens) - 1, CHUNK, cuts):
        logits.append(forward(model, caches, tokens[start:end]))
        if captured is not None:
            captured.append((start, end, capture_range(model, caches, start, end)))
        start = end
    logits.append(forward(model, caches, tokens[-1:]))
    return np.concatenate([np.array(part.astype(mx.float32)) for part in logits])


def decode(model: Tiny, caches, tokens, start: int, *, every: int) -> Captured:
    """Run tokens from `start` one by one; return what was captured each time `every` were new."""
    captured: Captured = []
    since = start
    for position in range(start, len(tokens)):
        forward(model, caches, tokens[position : position + 1])
        if position + 1 - since == every:
            captured.append((since, position + 1, capture_range(model, caches, since, position + 1)))
            since = position + 1
    return captured


def capture_range(model: Tiny, caches, start: int, end: int) -> dict[str, Record]:
    """Capture one range, and see that its records have the shapes that the layout gives."""
    records = capture(caches, model.layout, [(start, end)])[0]
    for record in records.values():
        check_record(record, model.layout, end - start)
    return records


def host_copy(record: Record) -> Record:
    """Return a record as it comes from a file: host buffers only, in memory of their own."""
    return Record(record.kind, {name: buffer.copy() for name, buffer in record.buffers.items()}, None)


def pieces_to(captured: Captured, resume: int, *, from_disk: bool = False) -> list[Piece]:
    """Return the pieces of `[0, resume)`."""
    return [
        Piece(
            min(end, resume) - start,
            end - start,
            {kind: host_copy(record) if from_disk else record for kind, record in records.items()},
        )
        for start, end, records in captured
        if start < resume
    ]


def restored(model: Tiny, pieces: Sequence[Piece], resume: int) -> list[Any]:
    """Return fresh caches, filled from the pieces."""
    caches = model.new_caches()
    restore(caches, model.layout, pieces, resume)
    return caches


def resumed(model: Tiny, tokens, pieces: Sequence[Piece], resume: int):
    """Restore to `resume` and run the rest; return its logits."""
    return run(model, restored(model, pieces, resume), tokens, resume)


#: Tokens of a cold run: long enough for four chunks, six windows, and an end that lies on no grid.
NUM_TOKENS = 300


class Cold:
    """A cold run: tokens, the logits of all of them, and what was captured at each chunk end."""

    def __init__(self, model: Tiny) -> None:
        self.tokens = tokens_of(NUM_TOKENS)
        self.captured: Captured = []
        self.logits = run(model, model.new_caches(), self.tokens, captured=self.captured)


@cache
def cold_run(family: str) -> Cold:
    """Return a cold run of the family's model, made once."""
    return Cold(tiny(family))
