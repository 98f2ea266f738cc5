"""A problem in a configuration file: where, what, and what to do instead."""

from collections.abc import Iterable
from pathlib import Path

import msgspec

from omlx.errors import ConfigError


class Problem(msgspec.Struct, frozen=True):
    """One problem, shown as `file:line: message; hint`. `line` is None for a whole file, or for `--set`."""

    path: Path
    line: int | None
    message: str
    hint: str | None = None

    def __str__(self) -> str:
        place = f"{self.path}:{self.line}" if self.line is not None else f"{self.path}"
        tail = f"; {self.hint}" if self.hint else ""
        return f"{place}: {self.message}{tail}"


def problems_error(problems: Iterable[Problem]) -> ConfigError:
    """Return one error that lists all problems, each once, sorted by place."""
    ordered = sorted(problems, key=lambda problem: (str(problem.path), problem.line or 0))
    return ConfigError("\n".join(dict.fromkeys(str(problem) for problem in ordered)))
