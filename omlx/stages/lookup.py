"""lookup: find the longest prefix of the prompt that is stored. Changes nothing."""

from typing import ClassVar

from omlx.config.settings import PositiveInt
from omlx.pipeline.stage import Lane, Services, Stage
from omlx.pipeline.state import State
from omlx.types import Tier


class LookupStage(Stage, frozen=True, tag="lookup"):
    """Match the prompt against the stored blocks, token by token.

    Options:
        min_reuse_tokens: a shorter match is not worth restoring and counts as none.
        tiers: where to look.
    """

    requires: ClassVar[tuple[str, ...]] = ("model", "tokens")
    assigns: ClassVar[tuple[str, ...]] = ("match",)
    lane: ClassVar[Lane] = "host"
    after: ClassVar[tuple[str, ...]] = ("coalesce",)

    min_reuse_tokens: PositiveInt = 16
    tiers: tuple[Tier, ...] = ("hot", "cold")

    def run(self, state: State, services: Services) -> None:
        """Assign the match, or None when nothing useful is stored.

        The last token of the prompt is never taken from the cache: its logits give the first answer token.
        """
        model = state.model
        if services.store is None or model.layout is None:
            state.match = None
            return
        limit = len(state.tokens) - 1
        match = services.store.match(model.fingerprint, state.tokens, model.layout, limit)
        state.match = match if match.resume >= self.min_reuse_tokens else None
