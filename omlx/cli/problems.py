"""Problems for people, for programs and for GitHub's annotations."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import msgspec

from omlx.config.problem import Problem

_RED, _BOLD, _DIM, _END = "\033[31m", "\033[1m", "\033[2m", "\033[0m"


def as_text(problem: Problem, *, colours: bool = False) -> str:
    """Return a problem with its line, a caret under what is meant, and what to do instead.

    models.toml:6:1: unknown key 'hots' in [server]
        6 | hots = "0.0.0.0"
          | ^^^^ did you mean 'host'?
    """
    bold, red, dim, end = (_BOLD, _RED, _DIM, _END) if colours else ("", "", "", "")
    lines = [f"{bold}{place(problem)}:{end} {problem.message}"]
    if problem.excerpt is not None and problem.column is not None:
        number, before = str(problem.line), problem.excerpt[: problem.column - 1]
        blank = "".join("\t" if each == "\t" else " " for each in before)
        caret = f"{red}{'^' * problem.length}{end}"
        lines.append(f"  {dim}{number:>5} |{end} {problem.excerpt}")
        hint = f" {problem.hint}" if problem.hint else ""
        lines.append(f"  {'':>5} {dim}|{end} {blank}{caret}{hint}")
    elif problem.hint:
        lines.append(f"        {problem.hint}")
    return "\n".join([*lines, *(f"        {detail}" for detail in problem.details)])


def as_json(problem: Problem) -> dict[str, Any]:
    """Return a problem as stable JSON: `line` and `column` count from 1 and are null for a whole file."""
    return {
        "file": str(problem.path),
        "line": problem.line,
        "column": problem.column,
        "end_column": _end_column(problem),
        "message": problem.message,
        "hint": problem.hint,
        "excerpt": problem.excerpt,
        "details": list(problem.details),
    }


def as_github(problem: Problem) -> str:
    """Return a problem as the command that makes it an annotation of a pull request."""
    fields = {
        "file": problem.path,
        "line": problem.line,
        "col": problem.column,
        "endColumn": _end_column(problem),
    }
    given = ",".join(f"{key}={_property(value)}" for key, value in fields.items() if value is not None)
    words = "\n".join([problem.message + (f"; {problem.hint}" if problem.hint else ""), *problem.details])
    return f"::error {given}::{_escaped(words)}"


def place(problem: Problem) -> str:
    """Return `file:line:column`, as far as it is known."""
    parts = [problem.path, problem.line, problem.column]
    return ":".join(str(part) for part in parts if part is not None)


def near(problems: Iterable[Problem], folder: Path) -> tuple[Problem, ...]:
    """Return the problems with paths as seen from a folder, where they lie in it."""
    return tuple(msgspec.structs.replace(each, path=near_path(each.path, folder)) for each in problems)


def near_path(path: Path, folder: Path) -> Path:
    """Return a path as seen from a folder, if it lies in it."""
    whole, folder = path.absolute(), folder.absolute()
    return whole.relative_to(folder) if whole.is_relative_to(folder) and path.exists() else path


def _end_column(problem: Problem) -> int | None:
    return None if problem.column is None else problem.column + problem.length


def _escaped(words: str) -> str:
    return words.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _property(value: object) -> str:
    return _escaped(str(value)).replace(":", "%3A").replace(",", "%2C")
