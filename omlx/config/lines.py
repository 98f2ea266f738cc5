"""Where each key of a TOML text stands.

`tomllib` gives values without positions, so a second pass over the text finds them. The text is known to be
valid TOML by then, so the pass checks nothing: it steps over strings, comments and brackets, and notes where
each table header, key, value and array element begins.

    [models.coder]            ("models",)  ("models", "coder")
    stages.prefill = {        ("models", "coder", "stages")  (..., "prefill")
    [[stage]]                 ("stage",)  ("stage", 0)
"""

import re
import tomllib
from bisect import bisect_right
from collections.abc import Callable, Iterator
from typing import NamedTuple, TypeAlias

KeyPath: TypeAlias = tuple[str | int, ...]

_BLANK = re.compile(r"(?:[ \t\r\n]|#[^\n]*)*")
_SPACE = re.compile(r"[ \t]*")
BARE_KEY = re.compile(r"[A-Za-z0-9_-]+")
_SCALAR = re.compile(r"[^,\]}#\n]*")
_STRING = re.compile(
    r'"""(?:[^"\\]|\\.|"(?!""))*"{3,5}'  # up to two quotes may stand before the three that close
    r"|'''(?:[^']|'(?!''))*'{3,5}"
    r'|"(?:[^"\\]|\\.)*"'
    r"|'[^']*'",
    re.DOTALL,
)


class Span(NamedTuple):
    """A stretch of one line. Line and column count from 1, in characters."""

    line: int
    column: int
    length: int


class Spot(NamedTuple):
    """Where something stands: its key, header or element, and its value; the key again where there is none."""

    key: Span
    value: Span


def key_spots(text: str) -> dict[KeyPath, Spot]:
    """Return where each table header, key and array element of a valid TOML text stands.

    A table named more than once (`[a.b]`, then `[a]`) stands at its own header, else at its first use.
    """
    return _Scanner(text).scan()


def key_lines(text: str) -> dict[KeyPath, int]:
    """Return the line (1-based) of each table header, key and array element; see `key_spots`."""
    return {path: spot.key.line for path, spot in key_spots(text).items()}


class _Scanner:
    """Walk a text once. Mutable: the position, the spots found, and how many tables each array has."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0
        self._line_starts = [0, *(match.end() for match in re.finditer("\n", text))]
        self._spots: dict[KeyPath, Spot] = {}
        self._implied: set[KeyPath] = set()
        self._last_index: dict[KeyPath, int] = {}

    def scan(self) -> dict[KeyPath, Spot]:
        table: KeyPath = ()
        while self._skip(_BLANK) < len(self._text):
            if self._peek("["):
                table = self._header()
            else:
                self._assignment(table)
        return self._spots

    def _header(self) -> KeyPath:
        """Step over `[a.b]` or `[[a.b]]`; return the table that it opens."""
        is_array = self._peek("[[")
        self._at += 2 if is_array else 1
        path: KeyPath = ()
        parts = list(self._key())
        self._at += 2 if is_array else 1
        for position, (part, span) in enumerate(parts):
            path = (*path, part)
            last = position == len(parts) - 1
            self._note(path, span, implied=not last)
            if last and is_array:
                self._last_index[path] = self._last_index.get(path, -1) + 1
            if path in self._last_index:
                path = (*path, self._last_index[path])
                self._note(path, span, implied=not last)
        return path

    def _assignment(self, table: KeyPath) -> None:
        """Step over `key = value`."""
        path = table
        for part, span in self._key():
            path = (*path, part)
            self._note(path, span)
        self._at += 1  # the equals sign
        self._value(path)

    def _key(self) -> Iterator[tuple[str, Span]]:
        """Step over a dotted key and the space after it; yield its parts and where they stand."""
        while True:
            start = self._skip(_SPACE)
            if self._peek('"') or self._peek("'"):
                quoted = self._take(_STRING)
                yield tomllib.loads(f"key = {quoted}")["key"], self._span(start)
            else:
                yield self._take(BARE_KEY), self._span(start)
            self._skip(_SPACE)
            if not self._peek("."):
                return
            self._at += 1

    def _value(self, path: KeyPath) -> None:
        """Step over a value; note where it stands, and the keys and elements inside it."""
        start = self._skip(_SPACE)
        if self._peek("{"):
            self._inside("}", lambda _: self._assignment(path))
        elif self._peek("["):
            self._inside("]", lambda index: self._element((*path, index)))
        elif self._peek('"') or self._peek("'"):
            self._take(_STRING)
        else:
            self._take(_SCALAR)
        self._spots[path] = self._spots[path]._replace(value=self._span(start))

    def _element(self, path: KeyPath) -> None:
        self._note(path, self._span(self._at))
        self._value(path)
        self._spots[path] = Spot(self._spots[path].value, self._spots[path].value)

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

    def _note(self, path: KeyPath, span: Span, *, implied: bool = False) -> None:
        if path not in self._spots or (path in self._implied and not implied):
            self._spots[path] = Spot(span, span)
            (self._implied.add if implied else self._implied.discard)(path)

    def _span(self, start: int) -> Span:
        """Return the stretch from `start` to the position; of several lines, its first character."""
        line = bisect_right(self._line_starts, start)
        stretch = self._text[start : self._at].rstrip()
        return Span(line, start - self._line_starts[line - 1] + 1, 1 if "\n" in stretch else len(stretch))

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
