"""A TOML file with the line of each key, so that a problem can name the place it came from."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omlx.config.lines import KeyPath, key_lines
from omlx.config.problem import Problem, problems_error

_SYNTAX_PLACE = re.compile(r"\s*\(at (?:line (\d+), column \d+|end of document)\)")


@dataclass(frozen=True)
class Document:
    """Parsed TOML.

    Attributes:
        path: the file, for messages.
        data: what the file says, with overrides applied.
        lines: line number (1-based) by key path.
        overrides: the text of each `--set path=value` by the key path that it sets.
    """

    path: Path
    data: dict[str, Any]
    lines: Mapping[KeyPath, int] = field(default_factory=dict)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict)

    def line(self, at: KeyPath) -> int | None:
        """Return the line of a key or of the nearest one around it; None when no lines are known."""
        for length in range(len(at), 0, -1):
            if at[:length] in self.lines:
                return self.lines[at[:length]]
        return 1 if self.lines else None

    def problem(self, at: KeyPath, message: str, hint: str | None = None) -> Problem:
        """Return a problem at a key: of this file, or of the override that set it."""
        for length in range(len(at), 0, -1):
            if at[:length] in self.overrides:
                return Problem(Path(f"--set {self.overrides[at[:length]]}"), None, message, hint)
        return Problem(self.path, self.line(at), message, hint)


def read_document(path: Path) -> Document:
    """Read a TOML file. Raises ConfigError naming the file (and line) when it cannot be read or parsed."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        raise problems_error([Problem(path, None, f"cannot be read: {reason}")]) from error
    return parse_document(path, text)


def parse_document(path: Path, text: str) -> Document:
    """Parse TOML text. `path` is used for messages only. Raises ConfigError at the line of a syntax error."""
    try:
        data = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError, and Python's own for a number of 4300 digits
        place = _SYNTAX_PLACE.search(str(error))
        line = int(place[1]) if place and place[1] else text.rstrip().count("\n") + 1
        message = f"not valid TOML: {_SYNTAX_PLACE.sub('', str(error))}"
        raise problems_error([Problem(path, line, message)]) from error
    return Document(path, data, key_lines(text))
