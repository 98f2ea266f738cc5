"""A chain as a drawing: one lane a column, one stage a box, in the order of the walk.

    host            io              device
    ┌─────────────┐ ┆               ┆
    │ tokenize    │ ┆               ┆         requires  request, model
    └─┬───────────┘ ┆               ┆         assigns   text, starts, tokens
      └─────────────────────────────┐
                                ...

A stage that runs during others stands beside a line that leads back to them.
"""

import textwrap
from collections.abc import Sequence
from typing import get_args

from omlx.cli.canvas import Canvas
from omlx.pipeline.pipeline import Pipeline
from omlx.pipeline.stage import Lane, Stage

WIDTH = 100
_LANES: tuple[Lane, ...] = get_args(Lane)
_GAP = 3
_LABEL = 10
_TEXT_AT_LEAST = 28


def draw(pipeline: Pipeline) -> str:
    """Return the drawing of a chain, in lines of at most 100 characters."""
    head = f"{pipeline.name} · {pipeline.description}" if pipeline.description else pipeline.name
    return f"{head}\n\n{_Drawing(pipeline.stages).draw()}"


class _Drawing:
    """Places boxes from the top down. Mutable: the canvas, and the rows that are taken."""

    def __init__(self, stages: Sequence[Stage]) -> None:
        self._canvas = Canvas()
        self._stages = stages
        self._followers = [stage for stage in stages if stage.during]
        tracks = 3 * len(self._followers)
        room = (WIDTH - _TEXT_AT_LEAST - _LABEL - tracks) // len(_LANES) - _GAP
        self._box = min(max(13, 4 + max(len(stage.name()) for stage in stages)), room)
        self._text = len(_LANES) * (self._box + _GAP) + tracks
        self._rows: list[tuple[int, int]] = []

    def draw(self) -> str:
        """Return the drawing."""
        for lane in _LANES:
            self._canvas.write(0, self._left(lane), lane)
        row = 1
        for index, stage in enumerate(self._stages):
            row = self._join(row, index)
            row = self._stage(row, stage)
        for track, stage in enumerate(self._followers):
            self._follow(track, stage)
        for lane in _LANES:
            for each in range(1, row + 1):
                self._canvas.fill(each, self._left(lane) + 1, "┆")
        return self._canvas.render()

    def _left(self, lane: Lane) -> int:
        return _LANES.index(lane) * (self._box + _GAP)

    def _join(self, row: int, index: int) -> int:
        """Lead from the stage before, down or over to another lane; return the row of the next box."""
        if index == 0:
            return row
        before, after = (self._left(self._stages[each].lane) + 1 for each in (index - 1, index))
        top = self._rows[index - 1][1]
        if before == after:
            return top
        self._canvas.down(before, top, top + 1)
        self._canvas.across(top + 1, min(before, after), max(before, after))
        self._canvas.down(after, top + 1, top + 2)
        return top + 2

    def _stage(self, row: int, stage: Stage) -> int:
        """Draw a box and what its stage reads and assigns; return the row below it."""
        left, lines = self._left(stage.lane), self._words(stage)
        bottom = row + max(2, len(lines) + 1)
        self._canvas.box(row, left, bottom, left + self._box - 1)
        name = stage.name()
        room = self._box - 4
        self._canvas.write(row + 1, left + 2, name if len(name) <= room else name[: room - 1] + "…")
        for offset, line in enumerate(lines):
            self._canvas.write(row + 1 + offset, self._text, line)
        self._rows.append((row, bottom))
        return bottom

    def _words(self, stage: Stage) -> list[str]:
        parts = {
            "requires": stage.requires,
            "uses": stage.uses,
            "assigns": stage.assigns,
            "during": stage.during,
        }
        lines = []
        for label, names in parts.items():
            wrapped = textwrap.wrap(", ".join(names), WIDTH - self._text - _LABEL)
            lines += [
                f"{label if number == 0 else '':<{_LABEL}}{line}" for number, line in enumerate(wrapped)
            ]
        return lines

    def _follow(self, track: int, stage: Stage) -> None:
        """Lead from a stage back to those that it runs during, on a line of its own."""
        right = self._left("device") + self._box - 1
        column = right + 2 + 3 * track
        own = self._rows[self._stages.index(stage)][0] + 1
        others = [
            top + 1
            for other, (top, _) in zip(self._stages, self._rows, strict=True)
            if other.name() in stage.during
        ]
        if not others:
            return
        self._canvas.down(column, min(others), own)
        self._canvas.across(own, right, column)
        for row in others:
            self._canvas.across(row, right + 1, column)
            self._canvas.write(row, right + 1, "◀")
