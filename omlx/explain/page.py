"""An explanation, a session or a finished request as one self-contained page: no script, nothing from elsewhere."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from importlib.resources import files

from omlx.explain.amounts import count, of, seconds, share, size
from omlx.explain.paint import MARKS, NAMES
from omlx.explain.session import Session, Turn
from omlx.pipeline.explanation import Cause, Difference, Explanation, SegmentOutlook
from omlx.pipeline.timeline import RequestTrace

#: The share of a strip that a segment takes at least to have its name below it.
_LEAST_NAMED = 0.06


def trace_page(explanation: Explanation, path: str) -> str:
    """Return the page of one request."""
    source = "the running server" if explanation.source == "server" else "the files on disk"
    facts = f"{of(explanation.prompt_tokens, 'token')}, pipeline {explanation.pipeline}, by {source}"
    parts = [
        _card("Plan", *_plan(explanation)),
        _card("Prompt", *_prompt(explanation)),
        _why(explanation),
        _card("Chain", *_chain(explanation)),
        _card("Segments", *_segments(explanation.segments)),
        *([_card("Rewrites", *_rewrites(explanation))] if explanation.rewrites else []),
        *(f'<p class="soft">{escape(note)}</p>' for note in explanation.notes),
    ]
    return _page(f"POST {path} to {explanation.model}", facts, parts)


def session_page(session: Session) -> str:
    """Return the page of a session."""
    facts = (
        f"{of(session.prompt_tokens, 'token')} of prompts, {count(session.shared_tokens)}"
        f" ({share(session.shared_tokens, session.prompt_tokens)}) in an earlier prompt in the same place"
    )
    head = ("turn", "tokens", "shared", "", "parts from an earlier prompt")
    turns = _table(head, [_turn_row(turn) for turn in session.turns], numbers=(0, 1, 2), wide=(4,))
    rows = [
        [escape(cost.name), count(cost.turns), count(cost.lost_tokens), escape(cost.remedy)]
        for cost in session.costs
    ]
    costs = _table(("cause", "turns", "tokens lost", "what would mend it"), rows, numbers=(1, 2), wide=(3,))
    parts = [_card("Turns", turns), *([_card("What it cost", costs)] if rows else [])]
    texts = [
        turn for turn in session.turns if turn.difference is not None and turn.difference.ours is not None
    ]
    parts += [_card(f"Turn {turn.number}", *_sides(turn.difference)) for turn in texts if turn.difference]
    return _page(of(len(session.turns), "request"), facts, parts)


def live_page(trace: RequestTrace) -> str:
    """Return the page of a request that is over."""
    usage, total = trace.usage, max(trace.total_s, 1e-9)
    facts = (
        f"{of(usage.prompt_tokens, 'token')} in, {of(usage.completion_tokens, 'token')} out, {seconds(total)}"
    )
    rows = [
        _row(
            span.stage,
            "",
            span.busy_s,
            span.began_s / total,
            (span.ended_s - span.began_s) / total,
            "device",
            "",
        )
        for span in trace.spans
    ]
    parts = [
        _card("What happened", f'<div class="rows">{"".join(rows)}</div>'),
        _card("Plan and fact", _fact(trace)),
    ]
    if trace.error:
        parts.insert(0, f'<p class="alert">{escape(trace.error)}</p>')
    return _page(f"{trace.id} to {trace.model}", facts, parts)


def _page(title: str, facts: str, parts: Iterable[str]) -> str:
    style = files("omlx.explain").joinpath("page.css").read_text(encoding="utf-8")
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escape(title)}</title>\n<style>\n{style}</style>\n</head>\n<body>\n<main>\n"
        f'<h1>{escape(title)}</h1>\n<p class="soft">{escape(facts)}</p>\n'
        + "\n".join(parts)
        + "\n</main>\n</body>\n</html>\n"
    )


def _card(title: str, *content: str) -> str:
    return f'<section class="card">\n<h2>{escape(title)}</h2>\n' + "\n".join(content) + "\n</section>"


def _plan(explanation: Explanation) -> Iterator[str]:
    plan = explanation.plan
    figures = [
        (share(plan.resume, plan.prompt_tokens), "of the prompt restored"),
        (count(plan.resume), "tokens restored"),
        (count(plan.prompt_tokens - plan.resume), "tokens computed"),
    ]
    if plan.cold_run_s:
        warm = seconds(plan.restore_s + plan.prefill_s)
        figures.append((warm, f"to the answer; {seconds(plan.cold_run_s)} without a cache"))
    cells = (
        f'<div class="figure"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name in figures
    )
    yield f'<div class="figures">{"".join(cells)}</div>'
    yield f'<p class="soft">{escape(plan.reason)}</p>'
    written = explanation.writes
    yield f'<p class="soft">{of(written.blocks, "new block")} would be written, {size(written.nbytes)}</p>'
    for gone in explanation.evictions or ():
        words = (
            "the new blocks do not fit"
            if gone.refused
            else f"{of(gone.records, 'record')}, {size(gone.nbytes)}, would go"
        )
        yield f'<p class="alert">{"RAM" if gone.tier == "hot" else "disk"}: {words}</p>'


def _prompt(explanation: Explanation) -> Iterator[str]:
    blocks, total = explanation.blocks, explanation.prompt_tokens
    yield from _strip(explanation, 0)
    legend = []
    for where in MARKS:
        tokens = sum(block.end - block.start for block in blocks if block.where == where)
        if tokens:
            legend.append(f'<span><i class="{where}"></i>{NAMES[where]}: {of(tokens, "token")}</span>')
    yield f'<div class="legend">{"".join(legend)}</div>'
    begin = total - max(4 * (total - explanation.plan.resume), total // 50)
    if begin > total // 2:
        yield f'<p class="soft zoom">The end, from token {count(begin)} on:</p>'
        yield from _strip(explanation, begin)


def _strip(explanation: Explanation, begin: int) -> Iterator[str]:
    """Yield the prompt from a token on: its blocks by where they are, and the names of its segments below."""
    total = explanation.prompt_tokens
    cells = (
        f'<i class="{block.where}" style="flex-grow:{block.end - max(begin, block.start)}"'
        f' title="{count(block.start)}-{count(block.end)}: {NAMES[block.where]}, {size(block.nbytes)}"></i>'
        for block in explanation.blocks
        if block.end > begin
    )
    yield f'<div class="strip">{"".join(cells)}</div>'
    names = (
        _name(segment.label, segment.end - max(begin, segment.start), total - begin)
        for segment in explanation.segments
        if segment.end > begin
    )
    yield f'<div class="names">{"".join(names)}</div>'


def _name(label: str, tokens: int, total: int) -> str:
    """Return a segment's name, where there is room for one."""
    words = escape(label) if tokens > total * _LEAST_NAMED else ""
    return f'<span style="flex-grow:{tokens}" title="{escape(label)}">{words}</span>'


def _why(explanation: Explanation) -> str:
    found, cause = explanation.difference, explanation.cause
    parts = list(_cause(cause)) if cause else []
    if found is not None:
        parts += _sides(found)
    if not parts:
        parts = ["<p>The prompt continues what is stored: nothing was lost.</p>"]
    return _card("Why not more", *parts)


def _cause(cause: Cause) -> Iterator[str]:
    yield f"<p>{escape(cause.what)} <code>{escape(cause.name)}</code></p>"
    yield f'<p class="soft">To mend it: {escape(cause.remedy)}</p>'


def _sides(found: Difference | None) -> Iterator[str]:
    """Yield a difference: where, why, and both sides' text."""
    if found is None:
        return
    place = f"the schema of tool {found.tool}" if found.tool else found.segment
    rows = (
        ("parts at", f"token {count(found.token)}, {escape(place)}, character {count(found.segment_char)}"),
        ("likely cause", f"{escape(found.cause.what)} <code>{escape(found.cause.name)}</code>"),
        ("what mends it", escape(found.cause.remedy)),
        ("cost", f"{of(found.lost_tokens, 'token')} of the other prompt are of no use from there on"),
    )
    yield "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows) + "</dl>"
    if found.ours is None or found.theirs is None:
        yield '<p class="soft">Text is hidden; --show-text shows 20 tokens of each side.</p>'
        return
    ours, theirs = (f"<pre>{escape(text)}</pre>" for text in (found.ours, found.theirs))
    yield (
        f'<div class="sides"><div class="side ours"><h3>this prompt</h3>{ours}</div>'
        f'<div class="side"><h3>the other prompt</h3>{theirs}</div></div>'
    )


def _chain(explanation: Explanation) -> Iterator[str]:
    total = sum(stage.seconds or 0.0 for stage in explanation.stages) or 1e-9
    at, rows = 0.0, []
    for stage in explanation.stages:
        spent = stage.seconds or 0.0
        rows.append(
            _row(stage.name, stage.lane, stage.seconds, at / total, spent / total, stage.lane, stage.what)
        )
        at += spent
    yield f'<div class="rows">{"".join(rows)}</div>'


def _row(name: str, lane: str, spent: float | None, at: float, part: float, use: str, what: str) -> str:
    """Return a stage as a bar from `at` on, `part` of the whole long; without a bar where no time is known."""
    style = f"left:{min(99.0, 100 * at):.2f}%;width:{100 * part:.2f}%"
    fill = f'<i class="{use}" style="{style}"></i>' if part else ""
    bar = f'<div class="bar">{fill}</div>' if spent is not None else ""
    return (
        f'<div class="name">{escape(name)}</div><div class="lane soft">{escape(lane)}</div>'
        f'<div class="time">{seconds(spent)}</div><div class="what">{bar}{escape(what)}</div>'
    )


def _segments(segments: Sequence[SegmentOutlook]) -> Iterator[str]:
    rows = [
        [
            escape(segment.label),
            count(segment.end - segment.start),
            count(segment.start),
            share(segment.reused, segment.end - segment.start),
            f"<code>{segment.digest[:12]}</code>",
        ]
        for segment in segments
    ]
    yield _table(("segment", "tokens", "from", "reused", "digest at its end"), rows, numbers=(1, 2, 3))


def _rewrites(explanation: Explanation) -> Iterator[str]:
    rows = [
        [escape(each.rule), f"<code>{escape(each.where)}</code>", escape(each.what)]
        for each in explanation.rewrites
    ]
    yield _table(("rule", "where", "what"), rows, wide=(2,))


def _turn_row(turn: Turn) -> list[str]:
    found = turn.difference
    if found is None:
        words = "shares nothing" if turn.against is None else f"continues turn {turn.against}"
        words = f'<span class="soft">{words}</span>'
    else:
        place = f"tool {found.tool}" if found.tool else found.segment
        cause = f"<code>{escape(found.cause.name)}</code>"
        words = f"turn {turn.against} at {escape(place)} {cause} {count(found.lost_tokens)} lost"
    part = 100 * turn.shared_tokens / max(turn.prompt_tokens, 1)
    fill = f'<i class="device" style="width:{part:.1f}%"></i>' if part else ""
    bar = f'<div class="bar">{fill}</div>'
    return [count(turn.number), count(turn.prompt_tokens), count(turn.shared_tokens), bar, words]


def _fact(trace: RequestTrace) -> str:
    plan, usage = trace.plan, trace.usage
    rows = [
        ["tokens from RAM", count(plan.hot_tokens) if plan else "-", count(usage.hot_tokens)],
        ["tokens from disk", count(plan.cold_tokens) if plan else "-", count(usage.cold_tokens)],
        [
            "tokens computed",
            count(plan.prompt_tokens - plan.resume) if plan else "-",
            count(usage.prefilled_tokens),
        ],
        ["bytes from RAM", size(plan.hot_bytes) if plan else "-", size(trace.hot_bytes)],
        ["bytes from disk", size(plan.cold_bytes) if plan else "-", size(trace.cold_bytes)],
        ["blocks written", "-", f"{count(trace.written.blocks)}, {size(trace.written.nbytes)}"],
    ]
    return _table(("", "plan", "fact"), rows, numbers=(1, 2))


def _table(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    *,
    numbers: Sequence[int] = (),
    wide: Sequence[int] = (),
) -> str:
    """Return a table of cells that are HTML already."""

    def kind(column: int) -> str:
        return ' class="n"' if column in numbers else ' class="wide"' if column in wide else ""

    titles = "".join(f"<th{kind(at)}>{escape(title)}</th>" for at, title in enumerate(head))
    body = "".join(
        "<tr>" + "".join(f"<td{kind(at)}>{cell}</td>" for at, cell in enumerate(row)) + "</tr>"
        for row in rows
    )
    return f'<div class="scroll"><table><tr>{titles}</tr>{body}</table></div>'
