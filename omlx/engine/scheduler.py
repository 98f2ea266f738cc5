"""Which pieces of work run in the next round. Pure: names in, names out.

A round runs the next step of every sequence that decodes, so that no stream waits, and one piece of one prefill.
Prefills take turns, in the order in which they were last served: a long one delays a short one by one piece at a
time, and none starves.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

Demand: TypeAlias = Literal["prefill", "decode"]


@dataclass(frozen=True, slots=True)
class Pending:
    """A task that waits for its next piece of work. `served` is the round in which it last had one."""

    task: int
    demand: Demand
    served: int


def plan_round(pending: Iterable[Pending]) -> list[int]:
    """Return the tasks to serve in this round, decoding ones first."""
    waiting = list(pending)
    decoding = [item.task for item in waiting if item.demand == "decode"]
    prefilling = [item for item in waiting if item.demand == "prefill"]
    if prefilling:
        decoding.append(min(prefilling, key=lambda item: (item.served, item.task)).task)
    return decoding
