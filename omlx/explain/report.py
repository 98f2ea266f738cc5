"""An explanation for people on a terminal, at 100 columns."""

from collections.abc import Iterable, Iterator, Sequence
from textwrap import wrap

from omlx.explain.amounts import count, of, seconds, share, size
from omlx.explain.paint import MARKS, Paint, names
from omlx.pipeline.explanation import (
    Cause,
    Difference,
    Explanation,
    SegmentOutlook,
    StageOutlook,
)
from omlx.text.normalize import Rewrite

WIDTH = 100
#: The most segments that are listed; of more, those at both ends.
_MOST_SEGMENTS = 24
_SOURCES = {
    "server": "of the running server: RAM and disk",
    "disk": "of the files on disk; no server was asked",
}


def report(
    explanation: Explanation, path: str, paint: Paint | None = None, *, list_blocks: bool = False
) -> str:
    """Return an explanation in words; with every block in a line if so asked."""
    colour = paint or Paint()
    parts = (
        _head(explanation, path, colour),
        _plan(explanation, colour),
        _why(explanation, colour),
        _segments(explanation.segments, explanation.prompt_tokens, colour),
        _blocks(explanation, colour) if list_blocks else (),
        _stages(explanation, colour),
        _room(explanation, colour),
        _notes(explanation.notes, colour),
    )
    return "\n\n".join("\n".join(lines) for part in parts if (lines := list(part))) + "\n"


def _head(explanation: Explanation, path: str, colour: Paint) -> Iterator[str]:
    title = f"{path}  to model {explanation.model!r}, pipeline {explanation.pipeline!r}"
    yield colour("head", title)
    text = f", {count(explanation.prompt_chars)} characters" if explanation.prompt_chars else ""
    yield colour(
        "dim", f"{of(explanation.prompt_tokens, 'token')}{text}; index {_SOURCES[explanation.source]}"
    )


def _plan(explanation: Explanation, colour: Paint) -> Iterator[str]:
    plan = explanation.plan
    computed = plan.prompt_tokens - plan.resume
    part = share(plan.resume, plan.prompt_tokens)
    verdict = f"restore {count(plan.resume)} tokens ({part}), compute {count(computed)}"
    if not plan.resume:
        verdict = f"compute all {of(plan.prompt_tokens, 'token')}"
    yield colour("head", "PLAN   ") + verdict + _times(explanation)
    yield colour("dim", f"       {plan.reason}")
    yield ""
    yield "  " + colour.strip(explanation.blocks, WIDTH - 4)
    legend = list(_legend(explanation, colour))
    for at in range(0, len(legend), 2):
        yield "  " + "".join(legend[at : at + 2]).rstrip()


def _times(explanation: Explanation) -> str:
    plan = explanation.plan
    if not plan.cold_run_s:
        return ""
    warm = plan.restore_s + plan.prefill_s
    return f"; about {seconds(warm)}, a cold run {seconds(plan.cold_run_s)}"


def _legend(explanation: Explanation, colour: Paint) -> Iterator[str]:
    for where, mark in MARKS.items():
        blocks = [block for block in explanation.blocks if block.where == where]
        if blocks:
            tokens = sum(block.end - block.start for block in blocks)
            nbytes = sum(block.nbytes for block in blocks)
            sizes = f", {size(nbytes)}" if nbytes else ""
            words = f" {names(explanation.plan)[where]}: {count(tokens)} in {of(len(blocks), 'block')}{sizes}"
            yield colour(where, mark) + f"{words:<48}"


def _why(explanation: Explanation, colour: Paint) -> Iterator[str]:
    found, cause = explanation.difference, explanation.cause
    if cause is not None:
        yield from _cause(colour("head", "WHY"), cause)
    if found is not None:
        yield from difference_lines(found, explanation.prompt_tokens, "the nearest stored prompt", colour)
    if cause is None and found is None and explanation.plan.resume:
        yield colour("head", "WHY    ") + "the prompt continues what is stored: nothing was lost"


def _cause(title: str, cause: Cause) -> Iterator[str]:
    yield f"{title}    {cause.what} [{cause.name}]"
    yield from _wrapped("       mend: ", cause.remedy)


def difference_lines(found: Difference, total: int, other: str, colour: Paint) -> Iterator[str]:
    """Yield a difference in words; `other` names what the prompt is compared with."""
    place = f"the schema of tool {found.tool!r}" if found.tool else found.segment
    where = f"token {count(found.token)} of {count(total)}: {place}, character {count(found.segment_char)}"
    yield colour("head", "PARTS  ") + f"from {other} at {where}"
    yield from _wrapped("       why:  ", f"{found.cause.what} [{found.cause.name}]")
    yield from _wrapped("       mend: ", found.cause.remedy)
    yield f"       cost: {of(found.lost_tokens, 'token')} of the other prompt are of no use from there on"
    if found.ours is None or found.theirs is None:
        yield colour("dim", "       text: hidden; --show-text shows 20 tokens of each side")
    else:
        yield f"       here:  {_quoted(found.ours)}"
        yield f"       there: {_quoted(found.theirs)}"


def _quoted(text: str) -> str:
    """Return text on one line, cut where the line ends."""
    shown = repr(text)
    return shown if len(shown) <= WIDTH - 14 else shown[: WIDTH - 17] + "..."


def _wrapped(begin: str, text: str) -> Iterable[str]:
    lines = wrap(text, WIDTH - len(begin))
    return (f"{begin if number == 0 else ' ' * len(begin)}{line}" for number, line in enumerate(lines))


def _segments(segments: Sequence[SegmentOutlook], total: int, colour: Paint) -> Iterator[str]:
    if not segments:
        return
    yield colour("head", f"{'SEGMENT':<42}{'tokens':>9}{'from':>9}{'characters':>12}  {'reused':<10}digest")
    for segment in _shortened(segments):
        if segment is None:
            hidden = len(segments) - _MOST_SEGMENTS + 1
            yield colour("dim", f"  ... {of(hidden, 'segment')} in between")
            continue
        tokens = segment.end - segment.start
        bar = _bar(segment.reused, tokens, colour)
        size_of = f"{count(tokens):>9}{count(segment.start):>9}{count(segment.chars):>12}"
        yield f"  {_cut(segment.label, 40):<40}{size_of}  {bar}  {colour('dim', segment.digest[:16])}"
    del total


def _shortened(segments: Sequence[SegmentOutlook]) -> Iterator[SegmentOutlook | None]:
    """Yield the segments, with None for those in the middle where there are too many."""
    if len(segments) <= _MOST_SEGMENTS:
        yield from segments
        return
    half = _MOST_SEGMENTS // 2
    yield from segments[:half]
    yield None
    yield from segments[-(half - 1) :]


def _bar(part: int, whole: int, colour: Paint) -> str:
    full = 8 if part == whole else min(7, round(8 * part / whole)) if whole else 0
    full = max(full, 1) if part else 0
    return colour("hot", "■" * full) + colour("miss", "·" * (8 - full))


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 1] + "…"


def _blocks(explanation: Explanation, colour: Paint) -> Iterator[str]:
    called = names(explanation.plan)
    yield colour("head", f"{'BLOCK':<9}{'from':>9}{'to':>9}{'tokens':>9}{'bytes':>12}  where")
    for number, block in enumerate(explanation.blocks, 1):
        span = f"{count(block.start):>9}{count(block.end):>9}{count(block.end - block.start):>9}"
        where = f"{colour(block.where, MARKS[block.where])} {called[block.where]}"
        yield f"  {number:<7}{span}{size(block.nbytes):>12}  {where}"


def _stages(explanation: Explanation, colour: Paint) -> Iterator[str]:
    yield colour("head", f"{'STAGE':<16}{'lane':<9}{'estimate':>9}")
    for stage in explanation.stages:
        lane, spent = colour("dim", f"{stage.lane:<9}"), seconds(stage.seconds)
        yield f"  {_cut(stage.name, 13):<14}{lane}{spent:>9}   {stage.what}"
        if stage.name == "normalize":
            yield from _rewrites(explanation.rewrites, colour)
    yield from _total(explanation.stages)


def together(rewrites: Sequence[Rewrite]) -> dict[tuple[str, str], list[str]]:
    """Return the places of rewrites that say the same, by rule and words."""
    places: dict[tuple[str, str], list[str]] = {}
    for rewrite in rewrites:
        places.setdefault((rewrite.rule, rewrite.what), []).append(rewrite.where)
    return places


def _rewrites(rewrites: Sequence[Rewrite], colour: Paint) -> Iterator[str]:
    for (rule, what), where in together(rewrites).items():
        more = f" and {of(len(where) - 1, 'other place')}" if len(where) > 1 else ""
        yield " " * 37 + colour("dim", _cut(f"{rule} at {where[0]}{more}: {what}", WIDTH - 37))


def _total(stages: Iterable[StageOutlook]) -> Iterator[str]:
    known = [stage.seconds for stage in stages if stage.seconds is not None]
    if any(known):
        yield f"  {'until the answer begins':<23}{seconds(sum(known)):>9}"


def _room(explanation: Explanation, colour: Paint) -> Iterator[str]:
    for gone in explanation.evictions or ():
        tier = "RAM" if gone.tier == "hot" else "disk"
        if gone.refused:
            yield colour("alert", f"ROOM   {tier}: the new blocks do not fit; some of them will not be kept")
        else:
            yield (
                colour("head", "ROOM   ")
                + f"{tier}: {of(gone.records, 'record')}, {size(gone.nbytes)}, would be evicted"
            )


def _notes(notes: Iterable[str], colour: Paint) -> Iterator[str]:
    for note in notes:
        yield colour("dim", f"note: {note}")
