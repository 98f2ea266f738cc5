"""An explanation as one self-contained page: the plan, the prompt as blocks, why not more, the chain as a waterfall."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from omlx.explain.amounts import count, of, seconds, share, size
from omlx.explain.paint import MARKS, names
from omlx.explain.report import together
from omlx.explain.sheet import bar, card, figures, legend, sheet, sides, table, words
from omlx.pipeline.explanation import Cause, Difference, Explanation, SegmentOutlook, StageOutlook

#: Letters that fit below a strip over its whole width.
_STRIP_CHARS = 150
#: A strip of the prompt's end is drawn when what is computed takes less than this share of the whole.
_ZOOMED = 0.2


def trace_page(explanation: Explanation, path: str) -> str:
    """Return the page of one request."""
    source = "the running server" if explanation.source == "server" else "the files on disk"
    facts = f"{of(explanation.prompt_tokens, 'token')}, pipeline {explanation.pipeline}, told by {source}"
    parts = [
        card("Plan", *_plan(explanation)),
        card("Prompt", *_prompt(explanation)),
        card("Why not more", *_why(explanation)),
        card("Chain", *_chain(explanation.stages)),
        card("Segments", _segments(explanation.segments)),
        *([card("Rewrites", _rewrites(explanation))] if explanation.rewrites else []),
        *(f'<p class="soft note">{escape(note)}</p>' for note in explanation.notes),
    ]
    return sheet(f"POST {path} to {explanation.model}", facts, parts)


def _plan(explanation: Explanation) -> Iterator[str]:
    plan, written = explanation.plan, explanation.writes
    warm_s = plan.restore_s + plan.prefill_s
    shown = [
        (share(plan.resume, plan.prompt_tokens), "of the prompt restored"),
        (count(plan.resume), "tokens restored"),
        (count(plan.prompt_tokens - plan.resume), "tokens computed"),
        (size(written.nbytes), f"written, in {of(written.blocks, 'new block')}"),
    ]
    if plan.cold_run_s:
        shown.insert(0, (seconds(warm_s), "to the answer"))
    yield figures(shown)
    if plan.cold_run_s:
        longest = max(warm_s, plan.cold_run_s)
        for name, spent, use in (("this plan", warm_s, "hot"), ("without a cache", plan.cold_run_s, "miss")):
            drawn = bar((use, 0, spent / longest))
            yield f'<div class="race"><span>{name}</span>{drawn}<b>{seconds(spent)}</b></div>'
    yield f'<p class="soft">{words(plan.reason[:1].upper() + plan.reason[1:])}.</p>'
    for gone in explanation.evictions or ():
        what = f"{of(gone.records, 'record')}, {size(gone.nbytes)}, would be evicted for it"
        what = "the new blocks do not fit; some of them will not be kept" if gone.refused else what
        yield f'<p class="alert">{"RAM" if gone.tier == "hot" else "Disk"}: {what}.</p>'


def _prompt(explanation: Explanation) -> Iterator[str]:
    blocks, total, called = explanation.blocks, explanation.prompt_tokens, names(explanation.plan)
    yield from _strip(explanation, 0)
    computed = total - explanation.plan.resume
    begin = total - max(4 * computed, total // 50)
    if computed < _ZOOMED * total and begin > 0:
        yield f'<p class="soft zoom">The end, from token {count(begin)} on:</p>'
        yield from _strip(explanation, begin)
    entries = []
    for where in MARKS:
        found = [block for block in blocks if block.where == where]
        if found:
            tokens, nbytes = sum(each.end - each.start for each in found), sum(each.nbytes for each in found)
            amounts = f"{of(tokens, 'token')} in {of(len(found), 'block')}, {size(nbytes)}"
            entries.append((where, f"{called[where]}: {amounts}"))
    yield from legend(entries)


def _strip(explanation: Explanation, begin: int) -> Iterator[str]:
    """Yield the prompt from a token on: its blocks by where they are, and the names of its segments below."""
    total, called = explanation.prompt_tokens, names(explanation.plan)
    cells = (
        f'<i class="{block.where}" style="flex-grow:{block.end - max(begin, block.start)}"'
        f' title="tokens {count(block.start)} to {count(block.end)}: {called[block.where]}, {size(block.nbytes)}"></i>'
        for block in explanation.blocks
        if block.end > begin
    )
    found = explanation.difference
    at = 100 * (found.token - begin) / (total - begin) if found is not None else -1
    mark = f'<b style="left:{at:.2f}%" title="parts here"></b>' if at >= 0 else ""
    yield f'<div class="strip">{"".join(cells)}{mark}</div>'
    labels = (
        _name(segment, segment.end - max(begin, segment.start), total - begin)
        for segment in explanation.segments
        if segment.end > begin
    )
    yield f'<div class="names">{"".join(labels)}</div>'


def _name(segment: SegmentOutlook, tokens: int, total: int) -> str:
    """Return a segment's name, or its role, whichever has room."""
    room = _STRIP_CHARS * tokens / total
    shown = next((name for name in (segment.label, segment.role) if len(name) <= room), "")
    label = f"{escape(segment.label)}: {of(segment.end - segment.start, 'token')}"
    return f'<span class="{segment.role}" style="flex-grow:{tokens}" title="{label}">{escape(shown)}</span>'


def _why(explanation: Explanation) -> Iterator[str]:
    found, cause = explanation.difference, explanation.cause
    if cause is not None:
        yield from _cause(cause)
    if found is not None:
        yield from difference_parts(found)
    if cause is None and found is None:
        yield "<p>The prompt continues what is stored: nothing was lost.</p>"


def _cause(cause: Cause) -> Iterator[str]:
    yield f"<p>{words(cause.what[:1].upper() + cause.what[1:])}. <code>{escape(cause.name)}</code></p>"
    yield f'<p class="soft">To mend it: {words(cause.remedy)}.</p>'


def difference_parts(found: Difference) -> Iterator[str]:
    """Yield a difference: where, why, and both sides' text."""
    place = f"the schema of tool {found.tool}" if found.tool else found.segment
    rows = (
        ("parts at", f"token {count(found.token)}: {escape(place)}, character {count(found.segment_char)}"),
        ("likely cause", f"{words(found.cause.what)} <code>{escape(found.cause.name)}</code>"),
        ("what mends it", words(found.cause.remedy)),
        ("cost", f"{of(found.lost_tokens, 'token')} of the other prompt are of no use from there on"),
    )
    yield "<dl>" + "".join(f"<dt>{name}</dt><dd>{value}</dd>" for name, value in rows) + "</dl>"
    if found.ours is None or found.theirs is None:
        yield '<p class="soft">The text is hidden; <code>--show-text</code> shows 20 tokens of each side.</p>'
    else:
        yield sides(found.ours, found.theirs)


def _chain(stages: Sequence[StageOutlook]) -> Iterator[str]:
    total = sum(stage.seconds or 0.0 for stage in stages) or 1e-9
    at, rows = 0.0, []
    for stage in stages:
        spent = stage.seconds or 0.0
        drawn = bar((stage.lane, at / total, spent / total)) if stage.seconds is not None else ""
        rows.append(waterfall_row(stage.name, stage.lane, stage.seconds, drawn, stage.what))
        at += spent
    yield f'<div class="rows">{"".join(rows)}</div>'
    yield from lanes(stage.lane for stage in stages)


def lanes(used: Iterable[str]) -> Iterator[str]:
    """Yield what the colours of a waterfall mean."""
    names = {"host": "host: worker threads", "io": "io: the disk", "device": "device: the model"}
    found = set(used)
    return legend((lane, name) for lane, name in names.items() if lane in found)


def waterfall_row(name: str, lane: str, spent: float | None, drawn: str, what: str) -> str:
    """Return a stage with its time, its bar and some words."""
    time = seconds(spent) if spent is not None else '<span class="soft">not estimated</span>'
    return (
        f'<div class="name">{escape(name)}</div><div class="lane soft">{escape(lane)}</div>'
        f'<div class="time">{time}</div><div class="drawn">{drawn}</div>'
        f'<div class="what">{escape(what)}</div>'
    )


def _segments(segments: Sequence[SegmentOutlook]) -> str:
    rows = [
        [
            escape(segment.label),
            count(segment.end - segment.start),
            count(segment.start),
            count(segment.chars),
            bar(("hot", 0, segment.reused / max(1, segment.end - segment.start))),
            share(segment.reused, segment.end - segment.start),
            f"<code>{segment.digest[:12]}</code>",
        ]
        for segment in segments
    ]
    head = ("segment", "tokens", "from", "characters", "reused", "", "digest at its end")
    return table(head, rows, numbers=(1, 2, 3, 5), bars=(4,), minor=(2, 3, 6))


def _rewrites(explanation: Explanation) -> str:
    rows = [
        [
            escape(rule),
            f"<code>{escape(places[0])}</code>"
            + (f" and {of(len(places) - 1, 'other place')}" if places[1:] else ""),
            escape(what),
        ]
        for (rule, what), places in together(explanation.rewrites).items()
    ]
    return table(("rule", "where", "what"), rows, wide=(2,))
