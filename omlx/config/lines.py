"""The line of each key of a TOML text.

`tomllib` gives values without positions, so a second pass over the text finds them. The text is known to be
valid TOML by then, so the pass checks nothing: it steps over strings, comments and brackets, and notes where
each table header, key and array element begins.

    [models.coder]            ("models",)  ("models", "coder")
    stages.prefill = {        ("models", "coder", "stages")  (..., "prefill")
    [[stage]]                 ("stage",)  ("stage", 0)
"""

import re
import tomllib
from collections.abc import Callable, Iterator
from typing import TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
_BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'  # up to two quotes may stand before the three that close
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line (1-based) of each table header, key and array element of a valid TOML text.

    A table named more than once (`[a.b]`, then `[a]`) has the line of its own header, else of its first use.
    """
    return _Scanner(text).scan()


class _Scanner:
    """Walk a text once. Mutable: the position, the lines found, and how many tables each array has."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._counted = 0
        self._line = 1
        self._lines: dict[KeyPath, int] = {}
        self._implied: set[KeyPath] = set()
        self._last_index: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, int]:
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self._text):
            if self._peek("["):
                table = self._header()
            else:
                self._assignment(table)
        return self._lines

    def _header(self) -> KeyPath:
        """Step over `[a.b]` or `[[a.b]]`; return the table that it opens."""
        line, is_array = self._here(), self._peek("[[")
        self._at += 2 if is_array else 1
        path: KeyPath = ()
        parts = list(self._key())
        self._at += 2 if is_array else 1
        for position, part in enumerate(parts):
            path = (*path, part)
            last = position == len(parts) - 1
            self._note(path, line, implied=not last)
            if last and is_array:
                self._last_index[path] = self._last_index.get(path, -1) + 1
            if path in self._last_index:
                path = (*path, self._last_index[path])
                self._note(path, line, implied=not last)
        return path

    def _assignment(self, table: KeyPath) -> None:
        """Step over `key = value`."""
        path, line = table, self._here()
        for part in self._key():
            path = (*path, part)
            self._note(path, line)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self) -> Iterator[str]:
        """Step over a dotted key and the space after it; yield its parts."""
        while True:
            self._skip(_SPACE)
            if self._peek('"') or self._peek("'"):
                quoted = self._take(_STRING)
                yield tomllib.loads(f"key = {quoted}")["key"]
            else:
                yield self._take(_BARE_KEY)
            self._skip(_SPACE)
            if not self._peek("."):
                return
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        """Step over a value; note the keys and elements inside it."""
        self._skip(_SPACE)
        if self._peek("{"):
            self._inside("}", lambda _: self._assignment(path))
        elif self._peek("["):
            self._inside("]", lambda index: self._element((*path, index)))
        elif self._peek('"') or self._peek("'"):
            self._take(_STRING)
        else:
            self._take(_SCALAR)

    def _element(self, path: KeyPath) -> None:
        self._note(path, self._here())
        self._value(path)

    def _inside(self, close: str, item: Callable[[int], None]) -> None:
        """Step over a bracketed list of items, commas and comments."""
        self._at += 1
        index = 0
        self._skip(_BLANK)
        while not self._peek(close):
            item(index)
            index += 1
            self._skip(_BLANK)
            if self._peek(","):
                self._at += 1
                self._skip(_BLANK)
        self._at += 1

    def _note(self, path: KeyPath, line: int, *, implied: bool = False) -> None:
        if path not in self._lines or (path in self._implied and not implied):
            self._lines[path] = line
            (self._implied.add if implied else self._implied.discard)(path)

    def _here(self) -> int:
        """Return the line of the position."""
        self._line += self._text.count("\n", self._counted, self._at)
        self._counted = self._at
        return self._line

    def _peek(self, text: str) -> bool:
        return self._text.startswith(text, self._at)

    def _skip(self, pattern: re.Pattern[str]) -> int:
        self._take(pattern)
        return self._at

    def _take(self, pattern: re.Pattern[str]) -> str:
        match = pattern.match(self._text, self._at)
        assert match is not None  # the text is valid TOML
        self._at = match.end()
        return match[0]
