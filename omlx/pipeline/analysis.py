"""Analyse a chain before anything loads: pure, and every problem at once."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from omlx.config.document import Document
from omlx.config.lines import KeyPath
from omlx.config.problem import Problem
from omlx.pipeline.stage import Stage
from omlx.pipeline.state import INITIAL_FIELDS


@dataclass(frozen=True)
class Placed:
    """A stage and where it stands in its file."""

    stage: Stage
    document: Document
    at: KeyPath

    @property
    def name(self) -> str:
        """Return the stage's name."""
        return self.stage.name()

    @property
    def whereabouts(self) -> str:
        """Return the stage's name and line."""
        line = self.document.line((*self.at, "use"))
        return f"stage {self.name!r} in line {line}" if line is not None else f"stage {self.name!r}"

    def problem(self, message: str, hint: str | None = None) -> Problem:
        """Return a problem at the stage's table: the line of its `use`, where there is one."""
        return self.document.value_problem((*self.at, "use"), message, hint)


def analyse(chain: Sequence[Placed], known: Iterable[type[Stage]] = ()) -> list[Problem]:
    """Return every problem of the chain's order: unmet requires, double assigns, stages that follow nothing.

    `known` are the stages that a hint may name, whether or not the chain has them.
    """
    return [*_unmet(chain, list(known)), *_assigned_twice(chain), *_misplaced(chain), *_apart(chain)]


def _unmet(chain: Sequence[Placed], known: list[type[Stage]]) -> list[Problem]:
    problems = []
    assigned = set(INITIAL_FIELDS)
    for placed in chain:
        for field in placed.stage.requires:
            if field not in assigned:
                message = f"stage {placed.name!r} requires {field!r}, which no earlier stage assigns"
                problems.append(placed.problem(message, _who_assigns(field, chain, known)))
        assigned.update(placed.stage.assigns)
    return problems


def _who_assigns(field: str, chain: Sequence[Placed], known: list[type[Stage]]) -> str | None:
    for placed in chain:
        if field in placed.stage.assigns:
            return f"move stage {placed.name!r} before it"
    for kind in known:
        if field in kind.assigns:
            return f"put a {kind.name()!r} stage before it"
    return None


def _assigned_twice(chain: Sequence[Placed]) -> list[Problem]:
    problems = []
    owner = dict.fromkeys(INITIAL_FIELDS, "the request")
    for placed in chain:
        again: dict[str, list[str]] = {}
        for field in placed.stage.assigns:
            if field in owner:
                again.setdefault(owner[field], []).append(repr(field))
            owner.setdefault(field, placed.whereabouts)
        for before, fields in again.items():
            message = f"stage {placed.name!r} assigns {_listed(fields)}, as {before} did before"
            problems.append(placed.problem(message, "leave one of them out"))
    return problems


def _listed(words: Sequence[str]) -> str:
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last


def _misplaced(chain: Sequence[Placed]) -> list[Problem]:
    """Return a problem for each stage that runs `during` or `after` stages which are not before it."""
    problems = []
    names = [placed.name for placed in chain]
    for position, placed in enumerate(chain):
        named = dict.fromkeys((*placed.stage.during, *placed.stage.after))
        # what an unmet `requires` says already is not said again
        late = [other for other in named if other in names[position + 1 :] and other not in names[:position]]
        late = [other for other in late if not _awaited(placed, chain[:position], chain[names.index(other)])]
        problems += [
            placed.problem(
                f"stage {placed.name!r} must come after {other!r}", f"move stage {other!r} before it"
            )
            for other in late
        ]
    return problems


def _awaited(placed: Placed, before: Sequence[Placed], other: Placed) -> bool:
    """Tell whether a stage lacks a field that the other one, which stands after it, assigns."""
    assigned = {field for each in before for field in each.stage.assigns}.union(INITIAL_FIELDS)
    return bool((set(placed.stage.requires) - assigned) & set(other.stage.assigns))


def _apart(chain: Sequence[Placed]) -> list[Problem]:
    """Return a problem for each stage of another lane between a stage and the one that it runs `during`."""
    problems = []
    names = [placed.name for placed in chain]
    for end, placed in enumerate(chain):
        followed = [name for name in names[:end] if name in placed.stage.during]
        if not followed:
            continue
        for other in chain[names.index(followed[0]) + 1 : end]:
            if other.stage.lane != placed.stage.lane:
                lane = f"lane {other.stage.lane!r}"
                message = f"stage {other.name!r} ({lane}) parts {followed[0]!r} from {placed.name!r}"
                hint = f"put it before {followed[0]!r} or after {placed.name!r}"
                problems.append(other.problem(message, hint))
    return problems
