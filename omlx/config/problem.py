"""A problem in a configuration file: where, what, and what to do instead."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from omlx.errors import ConfigError


class Problem(msgspec.Struct, frozen=True):
    """One problem, shown as `file:line: message; hint`."""

    path: Path
    line: int
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        tail = f"; {self.hint}" if self.hint else ""
        return f"{self.path}:{self.line}: {self.message}{tail}"


def problems_error(problems: Iterable[Problem]) -> ConfigError:
    """Return one error that lists all problems, sorted by place."""
    ordered = sorted(problems, key=lambda problem: (str(problem.path), problem.line))
    return ConfigError("\n".join(str(problem) for problem in ordered))
