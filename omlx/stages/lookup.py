"""lookup: find the longest prefix of the prompt that is stored, and plan what to do with it. Changes nothing."""

from typing import ClassVar

from omlx.config.settings import PositiveInt
from omlx.pipeline.cost import make_plan
from omlx.pipeline.stage import Lane, Services, Stage
from omlx.pipeline.state import State
from omlx.types import Tier


class LookupStage(Stage, frozen=True, tag="lookup"):
    """Match the prompt against the stored blocks, token by token; restore the match unless computing is faster.

    Options:
        min_reuse_tokens: a shorter match is not worth restoring and counts as none.
        tiers: where to look.
    """

    requires: ClassVar[tuple[str, ...]] = ("model", "tokens")
    assigns: ClassVar[tuple[str, ...]] = ("match", "plan")
    lane: ClassVar[Lane] = "host"
    after: ClassVar[tuple[str, ...]] = ("coalesce",)

    min_reuse_tokens: PositiveInt = 16
    tiers: tuple[Tier, ...] = ("hot", "cold")

    def run(self, state: State, services: Services) -> None:
        """Assign the plan, and the match when it is to be restored.

        The last token of the prompt is never taken from the cache: its logits give the first answer token.
        """
        model, match = state.model, None
        if services.store is not None and model.layout is not None:
            limit = len(state.tokens) - 1
            match = services.store.match(
                model.fingerprint, state.tokens, model.layout, limit, tiers=self.tiers
            )
        rates = services.costs.rates(model.fingerprint)
        state.plan = make_plan(len(state.tokens), match, model.layout, rates, self.min_reuse_tokens)
        state.match = match if state.plan.decision == "restore" else None
