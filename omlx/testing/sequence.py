"""FakeSequence: a running sequence that computes digests for KV. See `omlx.testing.kv`."""

from collections.abc import Callable, Sequence

import numpy as np

from omlx.errors import CacheError
from omlx.pipeline.work import Chances, Piece
from omlx.prefix.layout import LayerGroup, Layout
from omlx.store.record import Record
from omlx.testing.kv import Rows, kv_rows, to_array, to_rows
from omlx.types import RecordKind, Tokens, as_tokens

#: Chooses the next token from the last row of KV, `(16,) uint8`, and the number of tokens in the answer.
Choose = Callable[[Rows, int], int]


class FakeSequence:
    """Meets `omlx.pipeline.work.Sequence`. Mutable: `prefill` and `step` move `offset`, as in the engine."""

    def __init__(self, layout: Layout | None, tokens: Tokens, resume: int, choose: Choose) -> None:
        self.prompt_tokens = len(tokens)
        self.resumed = resume
        self._layout = layout
        self._tokens = tokens.tolist()
        self._choose = choose
        self.device_s: dict[str, float] = {}
        self.chances: Chances | None = None
        self._rows = kv_rows(tokens[:resume])
        #: the first token that a sliding group still holds
        self._first = {group: max(0, resume - (group.window or resume)) for group in self._groups()}

    @property
    def tokens(self) -> Tokens:
        """Return all tokens so far, prompt and answer."""
        return as_tokens(self._tokens)

    @property
    def offset(self) -> int:
        """Return how many tokens have been run."""
        return len(self._rows)

    @property
    def capture_within(self) -> int | None:
        """Return the smallest window of the sliding groups, or None."""
        return min((group.window for group in self._groups() if group.window), default=None)

    def prefill(self, end: int) -> None:
        """Run prompt tokens `[offset, end)`."""
        if not self.offset < end < self.prompt_tokens:
            raise AssertionError(f"prefill to {end} from {self.offset} of {self.prompt_tokens} tokens")
        self._slide(keep_before=self.offset, one_less=True)
        self._run(end)

    def step(self, *, last: bool) -> int:
        """Return the next token; unless it is the `last`, run it too."""
        if self.offset < self.prompt_tokens - 1:
            raise AssertionError(f"decode at {self.offset} of {self.prompt_tokens} prompt tokens")
        if self.offset == self.prompt_tokens - 1:
            self._run_one()
        token = self._choose(self._rows[-1], len(self._tokens) - self.prompt_tokens)
        self._tokens.append(token)
        if not last:
            self._run_one()
        return token

    def capture(self, start: int, end: int) -> dict[RecordKind, Record]:
        """Return the records of tokens `[start, end)`; a state only when it is that of `end`.

        Raises CacheError when a sliding group has dropped a token.
        """
        records: dict[RecordKind, Record] = {}
        for group in self._groups():
            if self._first[group] > start or end > self.offset:
                raise CacheError(f"tokens [{start}, {end}) are not all held")
            if group.kind != "state" or end == self.offset:
                array = to_array(group, self._rows[start:end])
                records[group.kind] = Record(group.kind, {group.tensors[0].name: array}, None)
        return records

    def check(self, pieces: Sequence[Piece]) -> None:
        """Raise AssertionError unless the pieces hold exactly the KV of the first `resumed` tokens.

        Of each kind, the pieces that hold it follow one another and the last ends at `resumed`.
        """
        for group in self._groups() if self.resumed else ():
            holding = [piece for piece in pieces if group.kind in piece.records]
            end = self.resumed
            for piece in reversed(holding):
                self._check_piece(group, piece, end)
                end -= piece.used
            needed = self.resumed - 1 if group.kind == "state" else self._first[group]
            if end > needed:
                raise AssertionError(f"no {group.kind} record holds token {needed} of {self.resumed}")

    def _check_piece(self, group: LayerGroup, piece: Piece, end: int) -> None:
        """Compare a piece that ends at `end` with what the tokens give."""
        record = piece.records[group.kind]
        rows = to_rows(group, (record.arrays or record.buffers or {})[group.tensors[0].name])
        if group.kind == "state":
            right = piece.used == piece.num_tokens and np.array_equal(rows[-1], self._rows[end - 1])
        else:
            right = np.array_equal(rows[: piece.used], self._rows[max(0, end - piece.used) : end])
        if not right:
            raise AssertionError(f"the {group.kind} before token {end} is that of other tokens")

    def _groups(self) -> tuple[LayerGroup, ...]:
        return self._layout.groups if self._layout else ()

    def _run_one(self) -> None:
        self._run(self.offset + 1)
        self._slide(keep_before=self.offset, one_less=False)

    def _run(self, end: int) -> None:
        before = self._rows[-1].tobytes() if self.offset else b""
        fresh = kv_rows(as_tokens(self._tokens[self.offset : end]), before)
        self._rows = np.concatenate([self._rows, fresh])

    def _slide(self, *, keep_before: int, one_less: bool) -> None:
        """Drop what the sliding groups drop: while decoding a ring of `window`, before a chunk one less."""
        for group in self._groups():
            if group.window:
                first = keep_before - group.window + one_less
                self._first[group] = max(self._first[group], first)
