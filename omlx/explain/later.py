"""Pages of what is over: a request with plan beside fact, and a session turn by turn."""

from collections.abc import Iterator
from html import escape

from omlx.explain.amounts import count, of, seconds, share
from omlx.explain.live import fact_rows
from omlx.explain.page import difference_parts, waterfall_row
from omlx.explain.session import Session, Turn
from omlx.explain.sheet import bar, card, figures, legend, sheet, table, words
from omlx.pipeline.timeline import RequestTrace, Span


def live_page(trace: RequestTrace) -> str:
    """Return the page of a request that is over."""
    usage, total = trace.usage, max(trace.total_s, 1e-9)
    first = next((span.began_s for span in trace.spans if span.stage == "decode"), None)
    shown = [
        (seconds(trace.total_s), "in all"),
        (share(usage.cached_tokens, usage.prompt_tokens), "of the prompt restored"),
        (count(usage.prefilled_tokens), "tokens computed"),
        (count(usage.completion_tokens), "tokens answered"),
    ]
    if first is not None:
        shown.insert(0, (seconds(first), "until decoding began"))
    rows = "".join(_span(span, total) for span in trace.spans)
    drawn = [
        f'<div class="rows">{rows}<div class="axis"><span>0 s</span><span>{seconds(total)}</span></div></div>'
    ]
    entries = (("worked", "worked"), ("waited", "between its first step and its last"))
    parts = [
        card("What happened", figures(shown), *drawn, *legend(entries)),
        card(
            "Plan and fact",
            table(("", "plan", "fact"), [_cells(row) for row in fact_rows(trace)], numbers=(1, 2)),
        ),
    ]
    if trace.error:
        parts.insert(0, f'<p class="alert">{escape(trace.error)}</p>')
    facts = f"{of(usage.prompt_tokens, 'token')} in, {of(usage.completion_tokens, 'token')} out"
    return sheet(f"{trace.id} to {trace.model}", facts, parts)


def _cells(row: tuple[str, str, str]) -> list[str]:
    return [escape(cell) for cell in row]


def _span(span: Span, total: float) -> str:
    """Return a stage from its first step to its last, with the part of it in which it worked."""
    began, length = span.began_s / total, (span.ended_s - span.began_s) / total
    drawn = bar(("waited", began, length), ("worked", began, min(span.busy_s / total, max(length, 1e-9))))
    return waterfall_row(span.stage, "", span.busy_s, drawn, "")


def session_page(session: Session) -> str:
    """Return the page of a session."""
    shown = [
        (
            share(session.shared_tokens, session.prompt_tokens),
            "stand in an earlier prompt, in the same place",
        ),
        (count(session.prompt_tokens), "tokens of prompts"),
        (count(session.prompt_tokens - session.shared_tokens), "of them new"),
    ]
    longest = max((turn.prompt_tokens for turn in session.turns), default=1)
    head = ("turn", "tokens", "shared", "", "against an earlier prompt")
    rows = [_turn_row(turn, longest) for turn in session.turns]
    turns = table(head, rows, numbers=(0, 1, 2), bars=(3,), wide=(4,))
    entries = (("hot", "shared with an earlier prompt"), ("miss", "new"))
    parts = [card("Turns", figures(shown), turns, *legend(entries)), *_costs(session)]
    parts += [
        card(f"Turn {turn.number}", *difference_parts(turn.difference))
        for turn in session.turns
        if turn.difference is not None and turn.difference.ours is not None
    ]
    return sheet(of(len(session.turns), "request"), "compared with one another; no cache was asked", parts)


def _costs(session: Session) -> Iterator[str]:
    rows = [
        [f"<code>{escape(cost.name)}</code>", count(cost.turns), count(cost.lost_tokens), words(cost.remedy)]
        for cost in session.costs
    ]
    if rows:
        head = ("cause", "turns", "tokens lost", "what would mend it")
        yield card("What it cost", table(head, rows, numbers=(1, 2), wide=(3,)))


def _turn_row(turn: Turn, longest: int) -> list[str]:
    found = turn.difference
    if found is None:
        told = "shares nothing" if turn.against is None else f"continues turn {turn.against}"
        told = f'<span class="soft">{told}</span>'
    else:
        place = f"tool {found.tool}" if found.tool else found.segment
        cause = f"<code>{escape(found.cause.name)}</code>"
        told = f"leaves turn {turn.against} at {escape(place)} {cause} {count(found.lost_tokens)} lost"
    shared = turn.shared_tokens / longest
    drawn = bar(("hot", 0, shared), ("miss", shared, turn.prompt_tokens / longest - shared))
    return [count(turn.number), count(turn.prompt_tokens), count(turn.shared_tokens), drawn, told]
