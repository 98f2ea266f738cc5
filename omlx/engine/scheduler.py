"""Which pieces of work run in the next round. Pure: names in, names out.

A round runs the next step of every sequence that decodes, so that no stream waits, and a slice of prefill: one piece,
and more as long as together they have no more tokens than a slice. Prefills take turns, in the order in which they were
last served: a long one delays a short one by one slice at a time, and none starves; short prompts, and the short
remainders of prompts that were found in the cache, go together.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

Demand: TypeAlias = Literal["prefill", "decode"]

#: A slice of prefill is a piece, or several that together have no more tokens than this or than the largest that waits.
#: Short prompts that come together then begin to decode together: fewer steps with few rows.
SLICE_TOKENS = 512

#: Rows of a batch are padded to the longest. More padding than this part of what they hold is not worth the company...
_PADDING = 0.5
#: ... unless it is no more than this many tokens a row.
_SMALL_PADDING = 512


@dataclass(frozen=True, slots=True)
class Pending:
    """A task that waits for its next piece of work, of so many tokens. It was last `served` in that round."""

    task: int
    demand: Demand
    served: int
    tokens: int = 0


def plan_round(pending: Iterable[Pending]) -> list[int]:
    """Return the tasks to serve in this round, decoding ones first."""
    waiting = list(pending)
    decoding = [item.task for item in waiting if item.demand == "decode"]
    prefilling = [item for item in waiting if item.demand == "prefill"]
    slice_tokens = max([SLICE_TOKENS, *(item.tokens for item in prefilling)])
    chosen: list[int] = []
    tokens = 0
    for item in sorted(prefilling, key=lambda item: (item.served, item.task)):
        tokens += item.tokens
        if chosen and tokens > slice_tokens:
            break
        chosen.append(item.task)
    return decoding + chosen


def may_share(lengths: Sequence[int], length: int) -> bool:
    """Tell whether a sequence of `length` tokens may decode with others: whether the padding is worth it.

    One that has run nothing decodes alone: its caches have no shape yet, and some models treat what a batch puts in
    their place otherwise (mlx-lm 0.32, recurrent_gemma).
    """
    if 0 in (*lengths, length):
        return not lengths
    together = [*lengths, length]
    padding = max(together) * len(together) - sum(together)
    return padding <= max(_PADDING * sum(together), _SMALL_PADDING * len(together))
