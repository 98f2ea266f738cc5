"""Carry out work with MLX: the only place where a stage's wish touches the device."""

import time
from collections.abc import Callable, Sequence
from typing import Any

from omlx.engine.sequence import RunningSequence
from omlx.kv.capture import capture
from omlx.kv.restore import restore
from omlx.models.loaded import LoadedModel
from omlx.pipeline.work import Capture, Decode, Open, Prefill, Work
from omlx.store.record import Record
from omlx.types import RecordKind


class Executor:
    """Run one piece of work at a time. Device thread only.

    Args:
        get_model: returns the loaded weights of a model by name.
    """

    def __init__(self, get_model: Callable[[str], LoadedModel]) -> None:
        self._get_model = get_model

    def run(self, work: Work) -> Any:
        """Return the work's result, as `omlx.pipeline.work` promises it."""
        match work:
            case Open():
                return self._open(work)
            case Prefill(sequence, end):
                assert isinstance(sequence, RunningSequence)
                return sequence.prefill(end)
            case Decode(sequence, last):
                assert isinstance(sequence, RunningSequence)
                return sequence.step(last=last)
            case Capture(sequence, ranges):
                assert isinstance(sequence, RunningSequence)
                return self._capture(sequence, ranges)

    def _open(self, work: Open) -> RunningSequence:
        loaded = self._get_model(work.model)
        started = time.perf_counter()
        caches = loaded.new_caches()
        if work.resume:
            assert loaded.layout is not None  # nothing is restored for a model that runs uncached
            restore(caches, loaded.layout, work.pieces, work.resume)
        sequence = RunningSequence(loaded, caches, work.tokens, work.sampling, work.resume)
        sequence.spend("restore", started)
        return sequence

    @staticmethod
    def _capture(
        sequence: RunningSequence, ranges: Sequence[tuple[int, int]]
    ) -> list[dict[RecordKind, Record]]:
        layout = sequence.loaded.layout
        assert layout is not None  # writeback asks nothing of a model that runs uncached
        return capture(sequence.caches, layout, ranges, sequence.offset)
