"""prefill: restore what was fetched and compute the rest of the prompt, in chunks on an absolute grid."""

from collections.abc import Sequence as Series
from typing import ClassVar

from omlx.config.settings import PositiveInt
from omlx.pipeline.chunks import chunk_ends, grid_floor
from omlx.pipeline.pieces import cut_back
from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Open, Piece, Prefill


class PrefillStage(Stage, frozen=True, tag="prefill"):
    """Compute the prompt's KV up to its last token but one (the first decode step runs the last).

    Options:
        chunk_tokens: the grid on which chunks end; also the longest piece of work between two decode steps.
        exact: step back to the last grid point instead of resuming between two, for an answer bit-equal to a
            cold run; costs up to one chunk of computing, or the whole prompt where a sliding or recurrent layer
            has no record at that point.
    """

    requires: ClassVar[tuple[str, ...]] = ("request", "model", "tokens")
    uses: ClassVar[tuple[str, ...]] = ("segments", "restored")
    assigns: ClassVar[tuple[str, ...]] = ("sequence",)
    lane: ClassVar[Lane] = "device"

    chunk_tokens: PositiveInt = 512
    exact: bool = False

    def run(self, state: State, services: Services) -> Steps:
        """Open the sequence, then run one chunk at a time."""
        cuts = [segment.end for segment in state.segments]
        end = len(state.tokens) - 1
        resume, pieces = self._resume(state, cuts)
        sampling = state.request.sampling.over(state.model.sampling)
        state.sequence = yield Open(state.model.name, state.tokens, resume, pieces, sampling)
        for chunk_end in chunk_ends(resume, end, self.chunk_tokens, cuts):
            yield Prefill(state.sequence, chunk_end)
        self._observe(state, services, resume, end)

    @staticmethod
    def _observe(state: State, services: Services, resume: int, end: int) -> None:
        """Remember how fast the device was."""
        costs, identity, spent = services.costs, state.model.fingerprint, state.sequence.device_s
        restored = sum(record.nbytes for piece in state.restored.pieces for record in piece.records.values())
        costs.observe(identity, "restore", restored if resume else 0, spent.get("restore", 0.0))
        costs.observe(identity, "prefill", end - resume, spent.get("prefill", 0.0))

    def _resume(self, state: State, cuts: list[int]) -> tuple[int, Series[Piece]]:
        """Return where to go on, and from what; the prompt's last token but one is a grid point too."""
        restored, layout = state.restored, state.model.layout
        if not self.exact or layout is None or restored.resume == len(state.tokens) - 1:
            return restored.resume, restored.pieces
        resume = grid_floor(restored.resume, self.chunk_tokens, cuts)
        pieces = cut_back(restored.pieces, layout, restored.resume, resume)
        return (0, ()) if pieces is None else (resume, pieces)
