"""Sequences that decode together: one forward pass a step, for all rows. Device thread only.

    step n     launch: every row's newest token -> the model -> the token after it, not evaluated yet
               wait for the tokens that step n-1 launched, and hand them out
    meanwhile  the host turns them into text, while the device computes

Rows join and leave between two steps. A row that has just come gives the last token of its prompt, and has its first
token a step later. One row alone runs on its own plain caches, and pays nothing for what a batch needs; caches are
copied when the second joins and when the last but one has left.

Source of the overlap: `mlx_lm.generate.generate_step` and `GenerationBatch`, whose caches are used here.
"""

import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias, cast

import mlx.core as mx

from omlx.engine.chances import weigh
from omlx.engine.chooser import best, joined
from omlx.engine.sequence import RunningSequence
from omlx.kv import rows as kv_rows
from omlx.models.loaded import LoadedModel
from omlx.pipeline.work import Decoded

#: Whether the next token of a row is the last that is wanted of it.
Wanted: TypeAlias = Mapping[RunningSequence, bool]


class Batch:
    """Mutable: rows of one model that share its forward pass.

    Args:
        loaded: the model.
    """

    def __init__(self, loaded: LoadedModel) -> None:
        self.loaded = loaded
        self._rows: list[RunningSequence] = []
        self._inputs: list[mx.array] = []  # of each row, `(1,)`: the token that is given to the model next
        self._ahead: mx.array | None = (
            None  # `(known,)`: the inputs of the first rows, which a step has chosen
        )
        self._caches: Sequence[Any] = []
        self._ended: set[RunningSequence] = set()

    def __len__(self) -> int:
        """Return the number of rows that go on."""
        return len(self._rows) - len(self._ended)

    def __contains__(self, row: RunningSequence) -> bool:
        return row in self._rows

    def step(self, wanted: Wanted) -> dict[RunningSequence, Decoded]:
        """Run one step for the rows that are wanted; return the tokens that are known by now.

        Rows that are not wanted leave and keep their caches; new ones join.
        """
        started = time.perf_counter()
        self._leave([row for row in self._rows if row not in wanted])
        known, ahead = self._rows, self._ahead
        self._leave([row for row in known if wanted[row]])
        new = [row for row in wanted if row not in known]
        back = [row for row in new if row.chosen is not None]
        self._join([row for row in new if not (row in back and wanted[row])])
        weighed = [row.weighed for row in (*known, *back)]
        failed = self._launch() if self._rows else {}
        tokens = joined(
            [*([] if ahead is None else [ahead]), *(row.chosen for row in back if row.chosen is not None)]
        )
        done: dict[RunningSequence, Decoded] = {}
        said = zip([*known, *back], cast(list[int], tokens.tolist()), weighed, strict=True)
        for row, token, chances in said:
            row.say(token, chances)
            done[row] = Decoded(token)
        for row in wanted:
            row.chosen = None
            row.spend("decode", started)
        return done | failed

    def forget(self, row: RunningSequence) -> None:
        """Keep nothing for a row that has ended. It leaves with the next step: several at once, then."""
        if row in self._rows:
            self._ended.add(row)

    def _launch(self) -> dict[RunningSequence, Decoded]:
        """Give every row's input to the model and begin to choose what follows; return the rows where that failed."""
        inputs = joined(self._inputs)
        logits = self.loaded.module(inputs[:, None], cache=self._caches)[:, -1, :]
        failed: dict[RunningSequence, Decoded] = {}
        for row in self._rows:
            row.ran()
        if all(row.choose.takes_the_best for row in self._rows):
            self._ahead = best(logits)
        else:
            self._ahead = joined([self._chosen(i, logits, failed) for i in range(len(self._rows))])
        self._inputs = [self._ahead[i : i + 1] for i in range(len(self._rows))]
        mx.async_eval(self._ahead, *self._weigh(logits))  # type: ignore[no-untyped-call]
        return failed

    def _weigh(self, logits: mx.array) -> list[mx.array]:
        """Tell the rows that ask for it how likely what follows is; return what is to be computed for that."""
        arrays: list[mx.array] = []
        for index, row in enumerate(self._rows):
            if row.num_likeliest is not None:
                row.weighed = weigh(logits[index : index + 1], self._inputs[index], row.num_likeliest)
                arrays += [row.weighed.chosen, row.weighed.tokens, row.weighed.logprobs]
        return arrays

    def _chosen(self, index: int, logits: mx.array, failed: dict[RunningSequence, Decoded]) -> mx.array:
        """Return what follows in one row; a fault of its sampling is that row's alone."""
        row, token = self._rows[index], self._inputs[index]
        try:
            return row.choose(row.prompt, token, logits[index : index + 1])
        except Exception as error:  # noqa: BLE001 - the boundary between the rows of a batch
            failed[row] = Decoded(error=error)
            return token

    def _join(self, new: Sequence[RunningSequence]) -> None:
        """Take in rows that have run all of their prompt but its last token."""
        if not new:
            return
        if len(self._rows) > 1:
            kv_rows.extend(self._caches, kv_rows.join([row.caches for row in new]))
        elif self._rows or len(new) > 1:
            self._caches = kv_rows.join([row.caches for row in [*self._rows, *new]])
        else:
            self._caches = new[0].caches
        self._inputs += [
            mx.array(row.prompt[-1:], mx.uint32) if row.chosen is None else row.chosen for row in new
        ]
        self._settle([*self._rows, *new])

    def _leave(self, leaving: Sequence[RunningSequence]) -> None:
        """Let rows go, with views of what is theirs and the token that was chosen last."""
        if not leaving:
            return
        for row in leaving:
            if row not in self._ended:
                row.chosen = self._inputs[self._rows.index(row)]
                row.take_back(row.caches)
        self._ended.difference_update(leaving)
        kept = [i for i, row in enumerate(self._rows) if row not in leaving]
        if len(kept) == 1:
            self._caches = self._rows[kept[0]].caches
        elif kept:
            kv_rows.keep(self._caches, kept)
        else:
            self._caches, self._ahead = [], None
        if self._ahead is not None:
            self._ahead = self._ahead[mx.array(kept)]
        self._inputs = [self._inputs[i] for i in kept]
        self._settle([self._rows[i] for i in kept])

    def _settle(self, rows: list[RunningSequence]) -> None:
        """Tell each row where its caches are now."""
        self._rows = rows
        if len(rows) == 1:
            rows[0].take_back(self._caches)
            return
        for index, row in enumerate(rows):
            row.lend(partial(self._look, index))

    def _look(self, index: int) -> list[Any]:
        return kv_rows.look(self._caches, index, self._rows[index].offset)
