"""Canvas: a grid of characters on which lines that meet become the right corner, tee or crossing."""

from collections import defaultdict

_NORTH, _EAST, _SOUTH, _WEST = 1, 2, 4, 8
#: A cell's lines, as the sum of the sides that they leave it by -> its character.
_LINES = " ╵╶└╷│┌├╴┘─┴┐┤┬┼"
#: The same drawing for a terminal that has ASCII alone.
ASCII = str.maketrans(
    {**dict.fromkeys("╵╷│", "|"), **dict.fromkeys("╶╴─", "-"), "◀": "<", "┆": ":", "…": "~", "·": "-"}
    | dict.fromkeys("└┌├┘┴┐┤┬┼", "+")
)


class Canvas:
    """Characters by row and column. Mutable: it grows where something is drawn."""

    def __init__(self) -> None:
        self._text: dict[tuple[int, int], str] = {}
        self._lines: defaultdict[tuple[int, int], int] = defaultdict(int)
        self._inside: set[tuple[int, int]] = set()

    def write(self, row: int, column: int, text: str) -> None:
        """Put text on the grid, over whatever is there."""
        for offset, character in enumerate(text):
            self._text[row, column + offset] = character

    def fill(self, row: int, column: int, character: str) -> None:
        """Put a character where nothing is, and no box."""
        if (row, column) not in self._inside and not self._lines.get((row, column)):
            self._text.setdefault((row, column), character)

    def across(self, row: int, left: int, right: int) -> None:
        """Draw a line in a row between two columns."""
        for column in range(left, right):
            self._lines[row, column] |= _EAST
            self._lines[row, column + 1] |= _WEST

    def down(self, column: int, top: int, bottom: int) -> None:
        """Draw a line in a column between two rows."""
        for row in range(top, bottom):
            self._lines[row, column] |= _SOUTH
            self._lines[row + 1, column] |= _NORTH

    def box(self, top: int, left: int, bottom: int, right: int) -> None:
        """Draw the sides of a box; nothing fills it."""
        self._inside.update((row, column) for row in range(top, bottom) for column in range(left, right))
        for row in (top, bottom):
            self.across(row, left, right)
        for column in (left, right):
            self.down(column, top, bottom)

    def render(self) -> str:
        """Return the drawing."""
        cells = {**{at: _LINES[sides] for at, sides in self._lines.items()}, **self._text}
        rows: list[list[str]] = [[] for _ in range(1 + max((row for row, _ in cells), default=-1))]
        for (row, column), character in sorted(cells.items()):
            rows[row] += " " * (column - len(rows[row])) + character
        return "\n".join("".join(row).rstrip() for row in rows)
