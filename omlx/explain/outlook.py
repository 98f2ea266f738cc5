"""Each stage of a chain in a line: what it would do for one prompt, and how long that should take. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass

from omlx.explain.amounts import count, of, size
from omlx.pipeline.cost import Plan, Rates
from omlx.pipeline.explanation import StageOutlook, Writes
from omlx.pipeline.stage import Stage
from omlx.pipeline.state import State


@dataclass(frozen=True, slots=True)
class Foreseen:
    """What is known of a request when its stages are put into words."""

    state: State
    plan: Plan | None
    rates: Rates
    writes: Writes


def stages(chain: Iterable[Stage], known: Foreseen) -> tuple[StageOutlook, ...]:
    """Return the chain in words, in its order."""
    words = _words(known)
    seconds = _seconds(known)
    return tuple(
        StageOutlook(
            stage.name(),
            stage.lane,
            seconds.get(stage.name()),
            words.get(stage.name(), "a stage of your own: what it does is not foreseen"),
        )
        for stage in chain
    )


def _words(known: Foreseen) -> dict[str, str]:
    state, plan = known.state, known.plan
    tokens = len(state.tokens)
    resume = plan.resume if plan else 0
    return {
        "normalize": of(len(state.rewrites), "rewrite") if state.rewrites else "nothing to rewrite",
        "tokenize": f"{count(tokens)} tokens"
        + (f" of {count(len(state.text))} characters" if state.text else ""),
        "segment": of(len(state.segments), "segment"),
        "coalesce": "waits only while another request computes the same prefix",
        "lookup": _lookup(plan),
        "fetch": f"{size(plan.hot_bytes)} from RAM, {size(plan.cold_bytes)} from disk"
        if resume and plan
        else "nothing",
        "prefill": f"{'restores ' + count(resume) + ' tokens, ' if resume else ''}computes {count(tokens - resume)}",
        "decode": _decode(known),
        "writeback": f"{of(known.writes.blocks, 'new block')} of the prompt, {size(known.writes.nbytes)}",
    }


def _lookup(plan: Plan | None) -> str:
    if plan is None:
        return "no cache is used"
    return f"{count(plan.matched_tokens)} tokens agree with stored ones, {count(plan.resume)} are reused"


def _decode(known: Foreseen) -> str:
    request, model = known.state.request, known.state.model
    limit = request.max_tokens or model.max_tokens
    most = f"at most {of(limit, 'token')}" if limit else "until the model ends"
    rate = known.rates.decode
    return f"its first token; {most}, about {rate:.0f} tokens/s" if rate else most


#: A stage that waits for others: its time says nothing of the next request's.
_WAITS = "coalesce"


def _seconds(known: Foreseen) -> dict[str, float | None]:
    """Return the estimates by stage, of decoding its first token; none where a rate has not been measured."""
    rates, plan, tokens = known.rates, known.plan, len(known.state.tokens)
    found: dict[str, float | None] = {
        stage: tokens / rate for stage, rate in rates.stages.items() if stage != _WAITS
    }
    found["decode"] = rates.seconds("decode", 1) if rates.decode else None
    found["tokenize"] = rates.seconds("tokenize", tokens) if rates.tokenize else None
    writes = known.writes.nbytes
    found["writeback"] = rates.seconds("store", writes) if rates.store or not writes else None
    if plan is None:
        return {**found, "prefill": rates.seconds("prefill", tokens) if rates.prefill else None}
    restore = rates.seconds("restore", plan.hot_bytes + plan.cold_bytes)
    found["fetch"] = rates.seconds("fetch", plan.cold_bytes) if rates.fetch or not plan.cold_bytes else None
    found["prefill"] = restore + plan.prefill_s if rates.prefill else None
    return found
