"""Paint for a terminal: colours, where there are any, and strips of blocks."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from omlx.pipeline.cost import Plan
from omlx.pipeline.explanation import BlockOutlook, Where

#: ANSI codes by use; the tiers first.
_CODES = {"hot": "32", "cold": "36", "lost": "33", "miss": "90", "head": "1", "dim": "2", "alert": "33"}
#: What a block looks like, with and without colours.
MARKS: dict[Where, str] = {"hot": "█", "cold": "▓", "lost": "▒", "miss": "░"}
#: What a tier is called.
NAMES: dict[Where, str] = {
    "hot": "from RAM",
    "cold": "from disk",
    "lost": "known, not usable",
    "miss": "to compute",
}


def names(plan: Plan) -> Mapping[Where, str]:
    """Return what tiers are called under a plan: what it does not restore comes from nowhere."""
    return NAMES if plan.resume else {**NAMES, "hot": "in RAM, not used", "cold": "on disk, not used"}


@dataclass(frozen=True, slots=True)
class Paint:
    """Wraps words in colours, or leaves them as they are."""

    colours: bool = False

    def __call__(self, use: str, words: str) -> str:
        """Return the words in the colour of a use."""
        return f"\033[{_CODES[use]}m{words}\033[0m" if self.colours and words else words

    def strip(self, blocks: Sequence[BlockOutlook], width: int) -> str:
        """Return the prompt as a line of marks; each stands for what most of its tokens are."""
        total = blocks[-1].end if blocks else 0
        cells = (
            [_most(blocks, total * at // width, total * (at + 1) // width) for at in range(width)]
            if total
            else []
        )
        line, start = "", 0
        for end in range(1, len(cells) + 1):
            if end == len(cells) or cells[end] != cells[start]:
                line += self(cells[start], MARKS[cells[start]] * (end - start))
                start = end
        return line


def _most(blocks: Sequence[BlockOutlook], start: int, end: int) -> Where:
    """Return what most tokens of `[start, end)` are; the block at `start` for an empty range."""
    end = max(end, start + 1)
    shares: dict[Where, int] = {}
    for block in blocks:
        overlap = min(end, block.end) - max(start, block.start)
        if overlap > 0:
            shares[block.where] = shares.get(block.where, 0) + overlap
    return max(shares, key=lambda where: shares[where])
