"""Plan beside fact of a request that is over, and a session turn by turn: words for a terminal."""

from collections.abc import Iterator
from textwrap import wrap

from omlx.explain.amounts import count, of, seconds, share, size
from omlx.explain.paint import Paint
from omlx.explain.report import WIDTH, difference_lines
from omlx.explain.session import CauseCost, Session, Turn
from omlx.pipeline.timeline import RequestTrace, StageEvent

_LANE_CHARS = 40


def live_report(trace: RequestTrace, paint: Paint | None = None) -> str:
    """Return what was planned for a request and what happened."""
    colour = paint or Paint()
    lines = [*_head(trace, colour), "", *_fact(trace, colour), "", *_spans(trace, colour)]
    return "\n".join(lines) + "\n"


def _head(trace: RequestTrace, colour: Paint) -> Iterator[str]:
    yield colour("head", f"{trace.id}  to model {trace.model!r}")
    usage = trace.usage
    yield colour(
        "dim",
        f"{of(usage.prompt_tokens, 'token')} in, {of(usage.completion_tokens, 'token')} out,"
        f" {seconds(trace.total_s)} in all",
    )
    if trace.error:
        yield colour("alert", f"failed: {trace.error}")


def fact_rows(trace: RequestTrace) -> Iterator[tuple[str, str, str]]:
    """Yield what was planned and what happened, in words."""
    plan, usage = trace.plan, trace.usage
    spent = {span.stage: span.busy_s for span in trace.spans}
    timed = seconds(plan.restore_s + plan.prefill_s) if plan and plan.cold_run_s else "-"
    computed = count(plan.prompt_tokens - plan.resume) if plan else "-"
    written = f"{of(trace.written.blocks, 'block')}, {size(trace.written.nbytes)}"
    yield "tokens from RAM", count(plan.hot_tokens) if plan else "-", count(usage.hot_tokens)
    yield "tokens from disk", count(plan.cold_tokens) if plan else "-", count(usage.cold_tokens)
    yield "tokens computed", computed, count(usage.prefilled_tokens)
    yield "bytes from RAM", size(plan.hot_bytes) if plan else "-", size(trace.hot_bytes)
    yield "bytes from disk", size(plan.cold_bytes) if plan else "-", size(trace.cold_bytes)
    yield "fetch and prefill", timed, seconds(spent.get("fetch", 0.0) + spent.get("prefill", 0.0))
    yield "written", "-", written


def _fact(trace: RequestTrace, colour: Paint) -> Iterator[str]:
    yield colour("head", f"{'':<26}{'plan':>16}{'fact':>22}")
    for name, planned, happened in fact_rows(trace):
        yield f"  {name:<24}{planned:>16}{happened:>22}".rstrip()


def _spans(trace: RequestTrace, colour: Paint) -> Iterator[str]:
    yield colour("head", f"{'STAGE':<16}{'began':>10}{'worked':>10}   time")
    total = max(trace.total_s, 1e-9)
    for span in trace.spans:
        start = min(_LANE_CHARS - 1, int(_LANE_CHARS * span.began_s / total))
        end = max(start + 1, round(_LANE_CHARS * span.ended_s / total))
        bar = "·" * start + colour("hot", "█" * (end - start)) + "·" * (_LANE_CHARS - end)
        yield f"  {span.stage:<14}{seconds(span.began_s):>10}{seconds(span.busy_s):>10}   {bar}"


def session_report(session: Session, paint: Paint | None = None) -> str:
    """Return a session turn by turn, and what each cause cost."""
    colour = paint or Paint()
    lines = [
        colour(
            "head", f"{of(len(session.turns), 'request')}, {of(session.prompt_tokens, 'token')} of prompts"
        ),
        colour(
            "dim",
            f"{count(session.shared_tokens)} of them ({share(session.shared_tokens, session.prompt_tokens)})"
            " stand in an earlier prompt in the same place",
        ),
        "",
        colour("head", f"{'turn':>4}{'tokens':>9}{'shared':>9}   parts from an earlier prompt"),
        *(line for turn in session.turns for line in _turn(turn, colour)),
    ]
    if session.costs:
        lines += ["", colour("head", f"{'CAUSE':<18}{'turns':>6}{'tokens lost':>13}   what would mend it")]
        lines += [line for cost in session.costs for line in _cost(cost)]
    return "\n".join(lines) + "\n"


def against_report(turn: Turn, other: str, paint: Paint | None = None) -> str:
    """Return where one request leaves another, and why, in full."""
    colour = paint or Paint()
    shared = f"{count(turn.shared_tokens)} of {of(turn.prompt_tokens, 'token')} stand in {other} too"
    lines = [colour("head", f"{shared} ({share(turn.shared_tokens, turn.prompt_tokens)})"), ""]
    if turn.difference is not None:
        lines += difference_lines(turn.difference, turn.prompt_tokens, other, colour)
    elif turn.against is None:
        lines.append(f"the two begin differently: nothing of {other} can be reused")
    else:
        lines.append("nothing parts them: one of the two continues the other")
    return "\n".join(lines) + "\n"


def _turn(turn: Turn, colour: Paint) -> Iterator[str]:
    head = f"{turn.number:>4}{count(turn.prompt_tokens):>9}{count(turn.shared_tokens):>9}   "
    found = turn.difference
    if found is None:
        words = (
            "shares nothing with an earlier one" if turn.against is None else f"continues turn {turn.against}"
        )
        yield head + colour("dim", words)
        return
    place = f"tool {found.tool!r}" if found.tool else found.segment
    yield (
        head
        + f"turn {turn.against} at {place}: {colour('alert', found.cause.name)}, {count(found.lost_tokens)} lost"
    )
    if found.ours is not None:
        yield from (" " * 18 + line.strip() for line in list(difference_lines(found, 0, "", colour))[-2:])


def _cost(cost: CauseCost) -> Iterator[str]:
    first, *rest = wrap(cost.remedy, WIDTH - 40)
    yield f"  {cost.name:<16}{cost.turns:>6}{count(cost.lost_tokens):>13}   {first}"
    yield from (" " * 40 + line for line in rest)


def event_line(event: StageEvent, paint: Paint | None = None) -> str:
    """Return an event of a running server in a line."""
    colour = paint or Paint()
    head = f"{event.at_s:>9.3f} s  {event.request[-12:]}  {event.model:<16}"
    match event.event:
        case "began":
            return f"{head}  {event.stage} ..."
        case "ended":
            return f"{head}  {event.stage} {colour('dim', f'worked {seconds(event.busy_s)}')}"
        case "finished" if event.usage is not None:
            usage = event.usage
            words = (
                f"{count(usage.prompt_tokens)} tokens in ({count(usage.cached_tokens)} cached),"
                f" {count(usage.completion_tokens)} out"
            )
            return f"{head}  {colour('head', 'finished')} {words}"
        case "failed":
            return f"{head}  {colour('alert', 'failed')} {event.error}"
    return f"{head}  {colour('head', event.event)}"
