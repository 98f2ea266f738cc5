"""prefill: restore what was fetched and compute the rest of the prompt, in chunks on an absolute grid."""

from typing import ClassVar

from omlx.config.settings import PositiveInt
from omlx.pipeline.chunks import chunk_ends, grid_floor
from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Open, Prefill


class PrefillStage(Stage, frozen=True, tag="prefill"):
    """Compute the prompt's KV up to its last token but one (the first decode step runs the last).

    Options:
        chunk_tokens: the grid on which chunks end; also the longest piece of work between two decode steps.
        exact: step back to the last grid point instead of resuming between two, for an answer bit-equal to a cold
            run; costs up to one chunk of computing.
    """

    requires: ClassVar[tuple[str, ...]] = ("request", "model", "tokens")
    uses: ClassVar[tuple[str, ...]] = ("segments", "restored")
    assigns: ClassVar[tuple[str, ...]] = ("sequence",)
    lane: ClassVar[Lane] = "device"

    chunk_tokens: PositiveInt = 512
    exact: bool = False

    def run(self, state: State, services: Services) -> Steps:  # noqa: ARG002 - one signature for all stages
        """Open the sequence, then run one chunk at a time."""
        cuts = [segment.end for segment in state.segments]
        restored = state.restored
        resume = restored.resume
        end = len(state.tokens) - 1
        if self.exact and resume < end:
            resume = grid_floor(resume, self.chunk_tokens, cuts)
        state.sequence = yield Open(
            state.model.name,
            state.tokens,
            resume,
            restored.pieces if resume else (),
            state.request.sampling.over(state.model.sampling),
        )
        for chunk_end in chunk_ends(resume, end, self.chunk_tokens, cuts):
            yield Prefill(state.sequence, chunk_end)
