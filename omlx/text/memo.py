"""Remember how pieces of text were tokenized: a conversation that goes on is tokenized from where it was left.

An agent sends its whole conversation with every turn, and tokenizing is nine tenths of what a server does to it before
prefill. The pieces are those of `omlx.text.pieces`, whose tokens do not depend on what is around them, so what is
remembered is exact.
"""

from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from omlx.types import Tokens

#: The first and last character of each token: `(n, 2) int32`.
Spans: TypeAlias = npt.NDArray[np.int32]

#: What an entry takes besides its text and its arrays: 4 objects and its place in the table.
_ENTRY_BYTES = 600


@dataclass(frozen=True, slots=True)
class Spelled:
    """The tokens of a text, and the characters of each. `tokens: (n,) int32`."""

    tokens: Tokens
    spans: Spans


#: Tokenizes texts, each by itself.
Spell: TypeAlias = Callable[[Sequence[str]], list[Spelled]]


class PieceMemo:
    """Tokenize texts by their pieces, each piece once. Least recently used pieces go first. Not thread-safe.

    Args:
        spell: tokenizes the pieces that are not known.
        budget_bytes: the most that is held, texts and tokens.
    """

    def __init__(self, spell: Spell, budget_bytes: int) -> None:
        self._spell = spell
        self._budget_bytes = budget_bytes
        self._known: OrderedDict[str, Spelled] = OrderedDict()
        self.nbytes = 0

    def __len__(self) -> int:
        return len(self._known)

    def spell(self, pieces: Sequence[str]) -> Spelled:
        """Return the tokens of the joined pieces; `spans` count from the beginning of the first."""
        unknown = [piece for piece in dict.fromkeys(pieces) if piece not in self._known]
        fresh = dict(zip(unknown, self._spell(unknown), strict=True)) if unknown else {}
        found = [self._recall(piece, fresh) for piece in pieces]
        for piece, spelled in fresh.items():
            self._keep(piece, spelled)
        lengths = [len(piece) for piece in pieces]
        starts = np.cumsum([0, *lengths[:-1]], dtype=np.int32)
        shifts = np.repeat(starts, [len(each.tokens) for each in found])
        return Spelled(
            np.concatenate([each.tokens for each in found]),
            np.concatenate([each.spans for each in found]) + shifts[:, None],
        )

    def _recall(self, piece: str, fresh: dict[str, Spelled]) -> Spelled:
        if piece in fresh:
            return fresh[piece]
        self._known.move_to_end(piece)
        return self._known[piece]

    def _keep(self, piece: str, spelled: Spelled) -> None:
        """Take a piece in, and let the oldest go. A piece that takes more than half of the budget is not kept."""
        size = entry_bytes(piece, spelled)
        if size > self._budget_bytes // 2:
            return
        self._known[piece] = spelled
        self.nbytes += size
        while self.nbytes > self._budget_bytes:
            self.nbytes -= entry_bytes(*self._known.popitem(last=False))


def entry_bytes(piece: str, spelled: Spelled) -> int:
    """Return what holding a piece takes: four bytes a character at the most."""
    return _ENTRY_BYTES + 4 * len(piece) + spelled.tokens.nbytes + spelled.spans.nbytes
