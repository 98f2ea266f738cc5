"""Carry out work with MLX: the only place where a stage's wish touches the device."""

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from omlx.engine.batch import Batch, Wanted
from omlx.engine.scheduler import may_share
from omlx.engine.sequence import RunningSequence
from omlx.kv.capture import capture
from omlx.kv.restore import restore
from omlx.models.loaded import LoadedModel
from omlx.pipeline.work import Capture, Decode, Decoded, Open, Prefill, Work
from omlx.store.record import Record
from omlx.types import RecordKind


class Executor:
    """Run one piece of work at a time, and one decode step for all sequences at once. Device thread only.

    Args:
        get_model: returns the loaded weights of a model by name.
    """

    def __init__(self, get_model: Callable[[str], LoadedModel]) -> None:
        self._get_model = get_model
        self._batches: list[Batch] = []

    def run(self, work: Work) -> Any:
        """Return the work's result, as `omlx.pipeline.work` promises it. `Decode` is not for this, see `decode`."""
        match work:
            case Open():
                return self._open(work)
            case Prefill(sequence, end):
                assert isinstance(sequence, RunningSequence)
                return sequence.prefill(end)
            case Capture(sequence, ranges):
                assert isinstance(sequence, RunningSequence)
                return self._capture(sequence, ranges)

    def decode(self, works: Sequence[Decode]) -> list[Decoded | None]:
        """Run one step for these sequences; return what became of each, None where its token comes a step later.

        A sequence that is left out has ended, or waits with caches of its own.
        """
        wanted = {_running(work.sequence): work.last for work in works}
        homes = {row: batch for batch in self._batches for row in wanted if row in batch}
        for row in wanted.keys() - homes.keys():
            homes[row] = self._home(row, homes)
        done: dict[RunningSequence, Decoded] = {}
        for batch in self._batches:
            done |= self._step(batch, {row: last for row, last in wanted.items() if homes[row] is batch})
        self._batches = [batch for batch in self._batches if len(batch)]
        return [done.get(_running(work.sequence)) for work in works]

    def forget(self, sequence: Any) -> None:
        """Hold nothing of a sequence any more: its request has ended."""
        for batch in self._batches:
            batch.forget(_running(sequence))
        self._batches = [batch for batch in self._batches if len(batch)]

    def num_rows(self) -> int:
        """Return how many sequences the batches hold. Any thread may ask: what it gets is of some moment lately."""
        return sum(len(batch) for batch in self._batches)

    def _home(self, row: RunningSequence, homes: Mapping[RunningSequence, Batch]) -> Batch:
        """Return the batch that a sequence is to join: a new one when no other may share with it."""
        for batch in self._batches if row.loaded.alone is None else ():
            lengths = [other.offset for other, home in homes.items() if home is batch]
            if batch.loaded is row.loaded and may_share(lengths, row.offset):
                return batch
        self._batches.append(Batch(row.loaded))
        return self._batches[-1]

    def _step(self, batch: Batch, wanted: Wanted) -> dict[RunningSequence, Decoded]:
        """Run a batch's step. A fault of the pass itself has spoilt the caches of all its rows, and of no others."""
        try:
            return batch.step(wanted)
        except Exception as error:  # noqa: BLE001 - the boundary between the batches of a round
            self._batches = [other for other in self._batches if other is not batch]
            return {row: Decoded(error=error) for row in wanted}

    def _open(self, work: Open) -> RunningSequence:
        loaded = self._get_model(work.model)
        started = time.perf_counter()
        caches = loaded.new_caches()
        if work.resume:
            assert loaded.layout is not None  # nothing is restored for a model that runs uncached
            restore(caches, loaded.layout, work.pieces, work.resume)
        sequence = RunningSequence(
            loaded, caches, work.tokens, work.sampling, work.resume, work.num_likeliest
        )
        sequence.spend("restore", started)
        return sequence

    @staticmethod
    def _capture(
        sequence: RunningSequence, ranges: Sequence[tuple[int, int]]
    ) -> list[dict[RecordKind, Record]]:
        layout = sequence.loaded.layout
        assert layout is not None  # writeback asks nothing of a model that runs uncached
        return capture(sequence.caches, layout, ranges, sequence.offset)


def _running(sequence: Any) -> RunningSequence:
    assert isinstance(sequence, RunningSequence)  # `Open` made it
    return sequence
