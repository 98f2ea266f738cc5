"""coalesce: when another request is computing the same prefix, wait for it instead of computing it twice."""

from typing import ClassVar

from omlx.config.settings import PositiveInt
from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Wait


class CoalesceStage(Stage, frozen=True, tag="coalesce"):
    """Let the first of several requests compute what they share; the others wait and then find it stored.

    Options:
        min_shared_tokens: fewer tokens than this are computed again rather than waited for.
    """

    requires: ClassVar[tuple[str, ...]] = ("model", "tokens")
    uses: ClassVar[tuple[str, ...]] = ("sequence",)  # of the requests before this one
    assigns: ClassVar[tuple[str, ...]] = ("waited_for",)
    lane: ClassVar[Lane] = "device"

    min_shared_tokens: PositiveInt = 64

    def run(self, state: State, services: Services) -> Steps:
        """Wait, without holding a thread, until no earlier request computes a prefix that this one needs."""
        layout = state.model.layout
        if services.store is None or layout is None:
            return
        services.inflight.enter(state)
        limit = len(state.tokens) - 1
        while True:
            stored = services.store.match(state.model.fingerprint, state.tokens, layout, limit).resume
            leader = services.inflight.leader(state, stored, self.min_shared_tokens)
            if leader is None:
                return
            state.waited_for = leader.shared
            yield Wait(leader.passed)
