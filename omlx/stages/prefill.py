"""prefill: restore what was fetched and compute the rest of the prompt, in chunks on an absolute grid."""

from collections.abc import Iterable
from typing import Annotated, ClassVar, Literal

import msgspec

from omlx.config.settings import PositiveInt
from omlx.pipeline.chunks import chunk_ends, grid_floor
from omlx.pipeline.model import Computing
from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import Restored, State
from omlx.pipeline.work import Open, Prefill


def computing_of(stages: Iterable[Stage]) -> Computing:
    """Return how a chain computes KV."""
    return next((stage.computing() for stage in stages if isinstance(stage, PrefillStage)), Computing())


class PrefillStage(Stage, frozen=True, tag="prefill"):
    """Compute the prompt's KV up to its last token but one (the first decode step runs the last).

    Options:
        chunk_tokens: the grid on which chunks end; also the longest piece of work between two decode steps.
        exact: end chunks on the grid alone and restore whole chunks alone, so that the answer is bit-equal to a cold
            run's, whatever request computed them. Costs up to one chunk of computing; answers and the end of a
            prompt behind its last whole chunk are not kept. Has a cache of its own.
        kv_bits: quantize keys and values to this many bits as they are computed (2, 4 or 8); stored as they are.
        kv_group_size: how many values share one scale when quantized.
        quantized_kv_start: from which token on; only 0 is supported, so that a token's bytes never depend on the
            length of the request that computed it.
    """

    requires: ClassVar[tuple[str, ...]] = ("request", "model", "tokens")
    uses: ClassVar[tuple[str, ...]] = ("segments", "restored", "plan")
    assigns: ClassVar[tuple[str, ...]] = ("sequence", "keep_until")
    lane: ClassVar[Lane] = "device"

    chunk_tokens: PositiveInt = 512
    exact: bool = False
    kv_bits: Literal[2, 4, 8] | None = None
    kv_group_size: Literal[32, 64, 128] = 64
    quantized_kv_start: Annotated[int, msgspec.Meta(ge=0, le=0)] = 0

    def computing(self) -> Computing:
        """Return how this stage computes KV."""
        return Computing(self.kv_bits, self.kv_group_size, self.restore_grid())

    def restore_grid(self) -> int | None:
        """Return the grid of an exact pipeline."""
        return self.chunk_tokens if self.exact else None

    def run(self, state: State, services: Services) -> Steps:
        """Open the sequence, then run one chunk at a time."""
        cuts = self.cuts(state)
        end = len(state.tokens) - 1
        restored = state.restored
        if self.exact:
            state.keep_until = grid_floor(end, self.chunk_tokens)
            if restored.resume % self.chunk_tokens:  # brought by a stage that knows nothing of grids
                restored = Restored()
        request = state.request
        state.sequence = yield Open(
            state.model.name,
            state.tokens,
            restored.resume,
            restored.pieces,
            request.sampling.over(state.model.sampling),
            request.top_logprobs,
        )
        for chunk_end in chunk_ends(restored.resume, end, self.chunk_tokens, cuts):
            yield Prefill(state.sequence, chunk_end)
        self._observe(state, services, restored, end)

    def cuts(self, state: State) -> list[int]:
        """Return where chunks end besides the grid: at segment ends, and where the prompt left a stored one.

        The latter only for recurrent layers, whose state can be taken at a chunk's end alone: the next prompt that
        leaves there resumes there. None of them when exact: two prompts may share tokens that only one of them
        cuts, or cuts elsewhere.
        """
        if self.exact:
            return []
        cuts = [segment.end for segment in state.segments]
        layout, plan = state.model.layout, state.plan
        if plan is not None and layout is not None and "state" in layout.kinds():
            cuts.append(plan.matched_tokens)
        return cuts

    @staticmethod
    def _observe(state: State, services: Services, restored: Restored, end: int) -> None:
        """Remember how fast the device was."""
        costs, identity, spent = services.costs, state.model.fingerprint, state.sequence.device_s
        nbytes = sum(record.nbytes for piece in restored.pieces for record in piece.records.values())
        costs.observe(identity, "restore", nbytes, spent.get("restore", 0.0))
        costs.observe(identity, "prefill", end - restored.resume, spent.get("prefill", 0.0))
