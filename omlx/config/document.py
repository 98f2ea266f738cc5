"""A TOML file with the place of each key, so that a problem can name where it came from."""

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from omlx.config.lines import KeyPath, Span, Spot, key_spots
from omlx.config.problem import Problem, problems_error

_SYNTAX_PLACE = re.compile(r"\s*\(at (?:line (\d+), column (\d+)|end of document)\)")
_SYNTAX_HINTS = {
    "Cannot overwrite a value": "the key is there already; keep one of the two",
    "Illegal character '\\n'": "close the text with a quote on the line it begins on",
    "Unterminated string": "close the text with a quote",
}
_BARE_WORD = re.compile(r"[A-Za-z][\w./~-]*(?=\s*(?:#|$))")


@dataclass(frozen=True)
class Document:
    """Parsed TOML.

    Attributes:
        path: the file, for messages.
        data: what the file says, with overrides applied.
        spots: where each key stands, by key path.
        overrides: the text of each `--set path=value` by the key path that it sets.
        lines: the file's lines.
    """

    path: Path
    data: dict[str, Any]
    spots: Mapping[KeyPath, Spot] = field(default_factory=dict)
    overrides: Mapping[KeyPath, str] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    def line(self, at: KeyPath) -> int | None:
        """Return the line of a key or of the nearest one around it; None when no places are known."""
        spot = self._spot(at)
        return spot.key.line if spot else 1 if self.spots else None

    def override(self, at: KeyPath) -> str | None:
        """Return the `--set` that gave a key its value, or None."""
        return next((self.overrides[at[:n]] for n in range(len(at), 0, -1) if at[:n] in self.overrides), None)

    def problem(self, at: KeyPath, message: str, hint: str | None = None) -> Problem:
        """Return a problem of a key: of this file, or of the override that set it."""
        spot = self._spot(at)
        return self._problem(at, spot.key if spot else None, message, hint)

    def value_problem(
        self, at: KeyPath, message: str, hint: str | None = None, details: tuple[str, ...] = ()
    ) -> Problem:
        """Return a problem of a key's value."""
        spot = self._spot(at)
        problem = self._problem(at, spot.value if spot else None, message, hint)
        return msgspec.structs.replace(problem, details=details)

    def _problem(self, at: KeyPath, span: Span | None, message: str, hint: str | None) -> Problem:
        if override := self.override(at):
            return Problem(Path(f"--set {override}"), None, message, hint)
        if span is None:  # of the whole file
            place = 1 if self.spots else None
            return Problem(self.path, place, message, hint, place)
        excerpt = self.lines[span.line - 1] if span.line <= len(self.lines) else None
        return Problem(self.path, span.line, message, hint, span.column, max(1, span.length), excerpt)

    def _spot(self, at: KeyPath) -> Spot | None:
        for length in range(len(at), 0, -1):
            if at[:length] in self.spots:
                return self.spots[at[:length]]
        return None

    def over(self, data: dict[str, Any], overrides: Mapping[KeyPath, str]) -> "Document":
        """Return the document with other data, because of overrides."""
        return replace(self, data=data, overrides=overrides)


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
        raise problems_error([_syntax_problem(path, text, str(error))]) from error
    return Document(path, data, key_spots(text), lines=_lines(text))


def _lines(text: str) -> tuple[str, ...]:
    """Return the lines as TOML counts them."""
    return tuple(line.rstrip("\r") for line in text.split("\n"))


def _syntax_problem(path: Path, text: str, words: str) -> Problem:
    """Return the parser's error at its place: the end of the text, where it names none."""
    place = _SYNTAX_PLACE.search(words)
    lines = _lines(text.rstrip())
    line, column = len(lines), len(lines[-1]) + 1
    if place and place[1]:
        line, column = int(place[1]), int(place[2])
    excerpt = lines[line - 1] if line <= len(lines) else ""
    message = _SYNTAX_PLACE.sub("", words)
    hint, length = _SYNTAX_HINTS.get(message), 1
    if message == "Invalid value" and (word := _BARE_WORD.match(excerpt, column - 1)):
        hint, length = f'text needs quotes: "{word[0]}"', len(word[0])
    if message == "Cannot overwrite a value":  # the parser stands behind it
        column, length = len(excerpt) - len(excerpt.lstrip()) + 1, len(excerpt[: column - 1].strip())
    return Problem(path, line, f"not valid TOML: {message}", hint, column, length, excerpt)
