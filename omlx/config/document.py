"""A TOML file with the line of each key, so that a problem can name the place it came from.

`tomllib` gives values without positions, so a second, small pass over the text finds them: table headers, array
tables and keys at the start of a line. A key inside an inline table or a multi-line value is reported at the
line on which that value begins.
"""

import re
import tomllib
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from omlx.config.problem import Problem, problems_error

KeyPath: TypeAlias = tuple[str | int, ...]

_HEADER = re.compile(r"\s*(\[\[?)\s*([^\[\]]+?)\s*\]\]?\s*(?:#.*)?$")
_KEY = re.compile(r"""\s*((?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*'))*)\s*=""")
_PART = re.compile(r"""[A-Za-z0-9_-]+|"[^"]*"|'[^']*'""")
_SYNTAX_LINE = re.compile(r"\(at line (\d+), column (\d+)\)|\(at end of document\)")


@dataclass(frozen=True)
class Document:
    """Parsed TOML: `data`, and `lines` from key path to line number (1-based)."""

    path: Path
    data: dict[str, Any]
    lines: dict[KeyPath, int] = field(default_factory=dict)

    def line(self, at: KeyPath) -> int:
        """Return the line of a key, or of the nearest enclosing one that has a line."""
        for length in range(len(at), 0, -1):
            if at[:length] in self.lines:
                return self.lines[at[:length]]
        return 1

    def problem(self, at: KeyPath, message: str, hint: str | None = None) -> Problem:
        """Return a problem at a key of this file."""
        return Problem(self.path, self.line(at), message, hint)


def read_document(path: Path) -> Document:
    """Read a TOML file. Raises ConfigError naming the file (and line) when it cannot be read or parsed."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise problems_error([Problem(path, 1, f"cannot be read: {error}", None)]) from error
    return parse_document(path, text)


def parse_document(path: Path, text: str) -> Document:
    """Parse TOML text. `path` is used for messages only. Raises ConfigError at the line of a syntax error."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        found = _SYNTAX_LINE.search(str(error))
        line = int(found[1]) if found and found[1] else max(text.count("\n"), 1)
        message = _SYNTAX_LINE.sub("", str(error)).strip()
        raise problems_error([Problem(path, line, f"not valid TOML: {message}", None)]) from error
    return Document(path, data, key_lines(text))


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line of each table header and key that begins a line."""
    lines: dict[KeyPath, int] = {}
    counts: dict[KeyPath, int] = {}
    table: KeyPath = ()
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.match(line):
            table = _table_path(header[1] == "[[", _parts(header[2]), counts)
            lines.setdefault(table, number)
        elif key := _KEY.match(line):
            path = table
            for part in _parts(key[1]):
                path = (*path, part)
                lines.setdefault(path, number)
    return lines


def _table_path(is_array: bool, parts: list[str], counts: dict[KeyPath, int]) -> KeyPath:
    """Return a header's key path, with the index of the array table it stands in or opens."""
    path: KeyPath = ()
    for position, part in enumerate(parts):
        path = (*path, part)
        if is_array and position == len(parts) - 1:
            counts[path] = counts.get(path, -1) + 1
        if path in counts:
            path = (*path, counts[path])
    return path


def _parts(dotted: str) -> list[str]:
    return [part.strip("\"'") for part in _PART.findall(dotted)]
