"""Explain one request: from a state whose chain was walked up to `lookup`, and the store that was asked.

Called for a dry run, and in a real one right before its prompt goes to the device: the same values either way. It
must come before anything of the request is written, or the nearest stored prompt would be the request itself.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Protocol, TypeVar

from omlx.explain import chain, outlook
from omlx.explain.causes import STORED
from omlx.explain.difference import difference
from omlx.explain.dry import dry_run, dry_state
from omlx.explain.nearest import elsewhere, knows, stored_after
from omlx.pipeline.cost import Plan
from omlx.pipeline.explanation import Cause, Difference, Explanation, Source
from omlx.pipeline.model import Model
from omlx.pipeline.pipeline import Pipeline
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services, Store
from omlx.pipeline.state import State
from omlx.prefix.index import BlockIndex
from omlx.prefix.match import Match
from omlx.stages.lookup import LookupStage
from omlx.stages.writeback import WritebackStage
from omlx.store.preview import TierView
from omlx.text.chat import ChatPrompt

T = TypeVar("T")


class Stored(Store, Protocol):
    """A store that can be asked more than a stage asks: `BlockStore`, and `omlx.explain.disk.DiskStore`."""

    def look(self, question: Callable[[BlockIndex], T]) -> T:
        """Return the answer to a question about the index, which must not change it."""
        ...

    def views(self) -> tuple[TierView, ...]:
        """Return what each tier holds and may hold."""
        ...


class Explainer:
    """Explains requests of one chain. Keeps nothing; safe on any thread.

    Args:
        pipeline: the chain.
        services: what its stages work with.
        stored: the store among them, or None.
        source: whose index that is.
    """

    def __init__(self, pipeline: Pipeline, services: Services, stored: Stored | None, source: Source) -> None:
        self._pipeline = pipeline
        self._services = services
        self._stored = stored
        self._source = source

    def dry(self, request: Request, model: Model, *, show_text: bool = False) -> Explanation:
        """Return what a request would do. Raises what refuses it before prefill."""
        state = dry_state(request, model)
        dry_run(self._pipeline.stages, state, replace(self._services, costs=self._services.costs.at_rest()))
        return self.explain(state, show_text=show_text)

    def explain(self, state: State, *, show_text: bool = False) -> Explanation:
        """Return what the request of a walked state will do."""
        match = self._match(state)
        plan = state.plan or _plan_without_lookup(state, self._services)
        new = chain.planned(state, match, plan, self._pipeline, self._services)
        written = chain.writes(new, state.model.layout)
        rates = self._services.costs.rates(state.model.fingerprint)
        found, cause = self._why(state, match, plan, show_text=show_text)
        return Explanation(
            source=self._source,
            model=state.model.name,
            fingerprint=state.model.fingerprint,
            pipeline=self._pipeline.name,
            prompt_tokens=len(state.tokens),
            prompt_chars=len(state.text),
            rewrites=state.rewrites,
            segments=chain.segments(state, plan.resume),
            blocks=chain.blocks(state, match, new, self._block_tokens()),
            stages=outlook.stages(self._pipeline.stages, outlook.Foreseen(state, plan, rates, written)),
            plan=plan,
            writes=written,
            evictions=chain.evictions(self._views(), match, new, state),
            difference=found,
            cause=cause,
            notes=tuple(self._notes(state, rates_known=bool(rates.prefill))),
        )

    def _match(self, state: State) -> Match | None:
        """Return the match as `lookup` sees it, also where it decides against restoring it."""
        lookup = self._pipeline.stage(LookupStage)
        if self._stored is None or not isinstance(lookup, LookupStage):
            return None
        return lookup.match(state, self._stored)

    def _why(
        self, state: State, match: Match | None, plan: Plan, *, show_text: bool
    ) -> tuple[Difference | None, Cause | None]:
        """Return where the prompt leaves the nearest stored one, and the cause that no text can show."""
        lookup = self._pipeline.stage(LookupStage)
        if not isinstance(lookup, LookupStage):
            return None, STORED["no_cache"]
        if match is None or self._stored is None:
            return None, STORED["no_layout"]
        theirs = self._stored.look(lambda index: stored_after(index, match.steps, match.fingerprint))
        found = difference(state, match.matched, theirs, show_text=show_text)
        if match.matched == 0:
            return found, self._nothing(state)
        return found, _unused(match, plan, lookup.min_reuse_tokens)

    def _nothing(self, state: State) -> Cause:
        assert self._stored is not None  # checked by the caller
        identity, tokens = state.model.fingerprint, state.tokens
        agreed, _ = self._stored.look(lambda index: elsewhere(index, tokens, identity))
        if agreed:
            return STORED["other_model"]
        known = self._stored.look(lambda index: knows(index, identity))
        return STORED["new_prompt" if known else "nothing_stored"]

    def _views(self) -> tuple[TierView, ...]:
        writeback = self._pipeline.stage(WritebackStage)
        if self._stored is None or not isinstance(writeback, WritebackStage):
            return ()
        return tuple(view for view in self._stored.views() if view.tier in writeback.tiers)

    def _block_tokens(self) -> int:
        writeback = self._pipeline.stage(WritebackStage)
        return (
            writeback.block_tokens if isinstance(writeback, WritebackStage) else WritebackStage().block_tokens
        )

    def _notes(self, state: State, *, rates_known: bool) -> list[str]:
        notes = []
        if state.model.uncached_reason:
            notes.append(f"this model runs uncached: {state.model.uncached_reason}")
        prompt = state.prompt or state.request.prompt
        if isinstance(prompt, ChatPrompt) and prompt.tools and state.model.tokenizer.drops_tools():
            notes.append("the model is not told of the tools: its chat template leaves them out")
        if self._source == "disk":
            notes.append("no server was asked: what one holds in RAM alone is not counted")
        if not rates_known:
            notes.append("no times: nothing has been measured for this model yet")
        return notes


def _unused(match: Match, plan: Plan, least: int) -> Cause | None:
    """Return why what agrees is not all restored: never mind the last token, which is always computed."""
    usable = min(match.matched, match.limit)
    if plan.resume >= usable:
        return None
    if match.resume < usable:
        shortfall = match.shortfall
        return STORED["no_snapshot" if shortfall is not None and shortfall.kind == "state" else "evicted"]
    return STORED["too_short" if match.resume < least else "slower"]


def _plan_without_lookup(state: State, services: Services) -> Plan:
    rates = services.costs.rates(state.model.fingerprint)
    tokens = len(state.tokens)
    cold = rates.seconds("prefill", tokens)
    return Plan(tokens, 0, 0, 0, 0, 0, 0, 0.0, cold, cold, "compute", "no cache is used")
