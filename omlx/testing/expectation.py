"""What came of a request beside what was expected of it. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

import msgspec

from omlx.errors import OmlxError
from omlx.pipeline.state import State
from omlx.pipeline.usage import usage
from omlx.testing.scenario import Expect, SegmentTable


@dataclass(frozen=True, slots=True)
class Outcome:
    """A request that is over: its state, the answer, the error that ended it."""

    state: State
    text: str
    error: OmlxError | None


@dataclass(frozen=True, slots=True)
class Differs:
    """One difference: the key of the expectation (None: of none), what it is, expected beside actual."""

    key: str | None
    what: str
    lines: tuple[str, ...] = ()


def differences(expect: Expect, outcome: Outcome) -> Iterator[Differs]:
    """Yield each way in which a request came out otherwise than expected."""
    if outcome.error is not None or expect.error is not None:
        yield from _refusal(expect.error, outcome.error)
        return
    for key, wanted in msgspec.structs.asdict(expect).items():
        if wanted is None:
            continue
        actual = _ACTUAL[key](outcome)
        meant = _meant(wanted, outcome)
        if key == "segments":
            yield from _segments(meant, actual)
        elif meant != actual:
            yield Differs(key, f"{key} not as expected", _beside(meant, actual))


def _refusal(expected: str | None, error: OmlxError | None) -> Iterator[Differs]:
    actual = str(error) if error else None
    cause = error.__cause__ if error else None
    if expected is None:
        yield Differs(None, f"the request failed: {cause or error}")
    elif actual is None or expected not in actual:
        yield Differs("error", "error not as expected", _beside(expected, actual))


def _meant(wanted: Any, outcome: Outcome) -> Any:
    if wanted == "all":
        return len(outcome.state.tokens) - 1
    return list(wanted) if isinstance(wanted, tuple) else wanted


def _segments(expected: list[str | SegmentTable], actual: list[SegmentTable]) -> Iterator[Differs]:
    """Compare labels, and lengths where they are given."""
    short = [
        found.label if isinstance(want, str) else found for want, found in zip(expected, actual, strict=False)
    ]
    if [*expected] != [*short, *actual[len(short) :]]:
        yield Differs("segments", "segments not as expected", _beside(expected, actual))


def _beside(expected: object, actual: object) -> tuple[str, ...]:
    """Return expected beside actual: one line each, or line by line for lists."""
    if not isinstance(expected, list) or not isinstance(actual, list):
        return (f"expected  {_shown(expected)}", f"actual    {_shown(actual)}")
    left = [_shown(item) for item in expected]
    right = [_shown(item) for item in actual]
    width = max(map(len, [*left, "expected"]))
    rows = [f"  {'expected':<{width}}  actual"]
    for want, came in zip_longest(left, right, fillvalue="-"):
        same = want == came or came.startswith(f"{want}, ")
        rows.append(f"{' ' if same else '≠'} {want:<{width}}  {came}")
    return tuple(rows)


def _shown(value: object) -> str:
    match value:
        case SegmentTable(label=label, tokens=tokens):
            return f"{label}, {tokens} tokens"
        case None:
            return "nothing"
        case str():
            return value if value.isprintable() and value.strip() == value and value else repr(value)
        case _:
            return str(value)


def _reused(outcome: Outcome) -> list[str]:
    resumed = usage(outcome.state).cached_tokens
    return [segment.label for segment in outcome.state.segments if segment.end <= resumed]


def _parts(outcome: Outcome) -> Sequence[SegmentTable]:
    segments = outcome.state.segments
    return [SegmentTable(label=each.label, tokens=each.end - each.start) for each in segments]


def _rules(outcome: Outcome) -> list[str]:
    return list(dict.fromkeys(rewrite.rule for rewrite in outcome.state.rewrites))


#: How each expectation is looked up.
_ACTUAL: Mapping[str, Callable[[Outcome], Any]] = {
    "prompt_tokens": lambda outcome: usage(outcome.state).prompt_tokens,
    "cached_tokens": lambda outcome: usage(outcome.state).cached_tokens,
    "hot_tokens": lambda outcome: usage(outcome.state).hot_tokens,
    "cold_tokens": lambda outcome: usage(outcome.state).cold_tokens,
    "prefill_tokens": lambda outcome: usage(outcome.state).prefilled_tokens,
    "segments": _parts,
    "reused": _reused,
    "rewrites": _rules,
    "decision": lambda outcome: outcome.state.plan.decision if outcome.state.plan else None,
    "written_blocks": lambda outcome: outcome.state.written.blocks,
    "text": lambda outcome: outcome.text,
    "finish": lambda outcome: outcome.state.answer.reason if outcome.state.answer else None,
}
