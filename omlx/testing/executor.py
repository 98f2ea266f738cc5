"""FakeExecutor: carries out work in plain Python, and finds a restore that brings the KV of other tokens."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from omlx.pipeline.model import Model
from omlx.pipeline.work import Capture, Decode, Decoded, Open, Prefill, Work
from omlx.testing.kv import Rows
from omlx.testing.sequence import FakeSequence
from omlx.testing.tokenizer import END


class FakeExecutor:
    """Stands in for `omlx.engine.executor.Executor`; meets `omlx.engine.device.Runs`.

    Args:
        models: those that requests may name.
        answer: what the models say; by default letters that depend on the KV of all tokens before them: two
            answers are equal only when everything before them was.

    Attributes:
        ran: pieces of work carried out, by the name of their class.
        computed_tokens: tokens of prompts that were run rather than restored.
    """

    def __init__(self, *models: Model, answer: str | None = None) -> None:
        self.ran: Counter[str] = Counter()
        self.computed_tokens = 0
        self._models = {model.name: model for model in models}
        self._answer: list[int] | None = None if answer is None else [*answer.encode(), END]

    def run(self, work: Work) -> Any:
        """Return the work's result. Raises AssertionError for restored KV that is not that of the tokens."""
        self.ran[type(work).__name__] += 1
        match work:
            case Open():
                return self._open(work)
            case Prefill(sequence, end):
                assert isinstance(sequence, FakeSequence)
                self.computed_tokens += end - sequence.offset
                return sequence.prefill(end)
            case Decode(sequence, last):
                assert isinstance(sequence, FakeSequence)
                return sequence.step(last=last)
            case Capture(sequence, ranges):
                assert isinstance(sequence, FakeSequence)
                return [sequence.capture(start, end) for start, end in ranges]
            case _:
                raise AssertionError(f"{type(work).__name__} is no work for an executor")

    def decode(self, works: Sequence[Decode]) -> list[Decoded]:
        """Return the next token of each sequence."""
        return [Decoded(self.run(work)) for work in works]

    def forget(self, sequence: Any) -> None:
        """Hold nothing: a fake keeps no rows."""

    def num_rows(self) -> int:
        """Return 0: a fake keeps no rows."""
        return 0

    def _open(self, work: Open) -> FakeSequence:
        sequence = FakeSequence(self._models[work.model].layout, work.tokens, work.resume, self._choose)
        sequence.check(work.pieces)
        return sequence

    def _choose(self, row: Rows, position: int) -> int:
        if self._answer is not None:
            return self._answer[min(position, len(self._answer) - 1)]
        return 97 + int(row[0]) % 26  # a to z
