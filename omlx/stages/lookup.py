"""lookup: find the longest prefix of the prompt that is stored, and plan what to do with it. Changes nothing."""

from typing import ClassVar, Literal

from omlx.config.settings import PositiveInt
from omlx.pipeline.cost import make_plan
from omlx.pipeline.stage import Lane, Services, Stage, Store
from omlx.pipeline.state import State
from omlx.prefix.match import Match
from omlx.types import Tier


class LookupStage(Stage, frozen=True, tag="lookup"):
    """Match the prompt against the stored blocks, token by token; restore the match unless computing is faster.

    Options:
        min_reuse_tokens: a shorter match is not worth restoring and counts as none.
        tiers: where to look.
        prefer: `fast` computes what was measured to be clearly faster to compute than to restore; `reuse` restores
            every match.
    """

    requires: ClassVar[tuple[str, ...]] = ("model", "tokens")
    assigns: ClassVar[tuple[str, ...]] = ("match", "plan")
    lane: ClassVar[Lane] = "host"
    after: ClassVar[tuple[str, ...]] = ("coalesce",)

    min_reuse_tokens: PositiveInt = 16
    tiers: tuple[Tier, ...] = ("hot", "cold")
    prefer: Literal["fast", "reuse"] = "fast"

    def run(self, state: State, services: Services) -> None:
        """Assign the plan, and the match when it is to be restored.

        The last token of the prompt is never taken from the cache: its logits give the first answer token.
        """
        model = state.model
        match = None if services.store is None else self.match(state, services.store)
        state.plan = make_plan(
            len(state.tokens),
            match,
            model.layout,
            services.costs.rates(model.fingerprint),
            self.min_reuse_tokens,
            prefer_reuse=self.prefer == "reuse",
        )
        state.match = match if state.plan.decision == "restore" else None
        if state.match is None and match is not None and match.resume >= self.min_reuse_tokens:
            services.costs.pass_over(model.fingerprint)

    def match(self, state: State, store: Store) -> Match | None:
        """Return the longest match that the chain can go on from; None for a model that runs uncached."""
        identity, layout, limit = state.model.fingerprint, state.model.layout, len(state.tokens) - 1
        if layout is None:
            return None
        if state.grid is None:
            return store.match(identity, state.tokens, layout, limit, tiers=self.tiers)
        while True:
            on_grid = limit // state.grid * state.grid
            match = store.match(identity, state.tokens, layout, on_grid, tiers=self.tiers)
            if match.resume % state.grid == 0:
                return match
            limit = match.resume
