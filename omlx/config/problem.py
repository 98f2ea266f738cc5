"""A problem in a configuration file: where, what, and what to do instead."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from omlx.errors import ConfigError


class Problem(msgspec.Struct, frozen=True):
    """One problem, in short `file:line: message; hint`.

    Attributes:
        path: the file.
        line: counted from 1; None for a whole file, or for `--set`.
        message: what is wrong.
        hint: what to do instead.
        column: where on the line it begins, counted from 1.
        length: how many characters are meant.
        excerpt: the line.
        details: more lines: of a failed test, what was expected and what came.
    """

    path: Path
    line: int | None
    message: str
    hint: str | None = None
    column: int | None = None
    length: int = 1
    excerpt: str | None = None
    details: tuple[str, ...] = ()

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line is not None else f"{self.path}"
        tail = f"; {self.hint}" if self.hint else ""
        return f"{place}: {self.message}{tail}"


class ProblemsError(ConfigError):
    """Problems of configuration files, in order; the message has one a line."""

    def __init__(self, problems: tuple[Problem, ...]) -> None:
        super().__init__("\n".join(dict.fromkeys(str(problem) for problem in problems)))
        self.problems = problems


class FieldError(ValueError):
    """What a table's `__post_init__` raises to blame one key of it."""

    def __init__(self, key: str, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.key = key
        self.hint = hint


def in_order(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    """Return the problems, each once, sorted by place."""
    unique = dict.fromkeys(problems)
    return tuple(sorted(unique, key=lambda each: (str(each.path), each.line or 0, each.column or 0)))


def problems_error(problems: Iterable[Problem]) -> ProblemsError:
    """Return one error that lists all problems, each once, sorted by place."""
    return ProblemsError(in_order(problems))
