"""Analyse a chain before anything loads: pure, and every problem at once."""

from dataclasses import dataclass

from omlx.config.document import Document, KeyPath
from omlx.config.problem import Problem
from omlx.pipeline.stage import Stage
from omlx.pipeline.state import INITIAL_FIELDS


@dataclass(frozen=True)
class Placed:
    """A stage and where it stands in its file."""

    stage: Stage
    document: Document
    at: KeyPath

    def problem(self, message: str, hint: str | None = None) -> Problem:
        """Return a problem at the stage's table."""
        return self.document.problem(self.at, message, hint)


def analyse(chain: list[Placed]) -> list[Problem]:
    """Return every problem of the chain's order: unmet requires, double assigns, stages that follow nothing."""
    return [*_unmet(chain), *_assigned_twice(chain), *_misplaced(chain)]


def _unmet(chain: list[Placed]) -> list[Problem]:
    problems = []
    known = set(INITIAL_FIELDS)
    for placed in chain:
        name = placed.stage.name()
        for field in placed.stage.requires:
            if field not in known:
                message = f"stage {name!r} requires {field!r}, which no earlier stage assigns"
                problems.append(placed.problem(message, _who_assigns(field, chain)))
        known.update(placed.stage.assigns)
    return problems


def _who_assigns(field: str, chain: list[Placed]) -> str | None:
    for placed in chain:
        if field in placed.stage.assigns:
            return f"move stage {placed.stage.name()!r} before it"
    for kind in _built_in():
        if field in kind.assigns:
            return f"put a {kind.name()!r} stage before it"
    return None


def _built_in() -> list[type[Stage]]:
    """Return every stage class known so far; a hint may name one that the file does not use."""
    return list(Stage.__subclasses__())


def _assigned_twice(chain: list[Placed]) -> list[Problem]:
    problems = []
    owner: dict[str, str] = {}
    for placed in chain:
        name = placed.stage.name()
        for field in placed.stage.assigns:
            if field in owner:
                message = f"stage {name!r} assigns {field!r}, which stage {owner[field]!r} has assigned already"
                problems.append(placed.problem(message, "leave one of them out"))
            owner.setdefault(field, name)
    return problems


def _misplaced(chain: list[Placed]) -> list[Problem]:
    """Return a problem for each stage that runs `during` or `after` stages which are not before it."""
    problems = []
    earlier: set[str] = set()
    present = {placed.stage.name() for placed in chain}
    for placed in chain:
        name = placed.stage.name()
        for other in (*placed.stage.during, *placed.stage.after):
            if other in present and other not in earlier:
                problems.append(placed.problem(f"stage {name!r} must come after {other!r}", "change the order"))
        earlier.add(name)
    return problems
