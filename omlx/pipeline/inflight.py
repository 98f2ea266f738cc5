"""In flight: which prompts are being computed now, so that a shared prefix is computed once.

    first    ████████████▓▓▓▓▓▓░░░░░░      computing
    second   ············▲ waits until the first has passed what they share, then finds it stored
                 shared ─┘

A request waits only for requests that entered before it, so no two ever wait for each other. When the first one ends,
for whatever reason, the second goes on with what was stored until then.
"""

import threading
import weakref
from dataclasses import dataclass

import numpy as np

from omlx.pipeline.state import State
from omlx.types import Tokens


@dataclass(frozen=True, slots=True)
class Leader:
    """An earlier request that computes the first `shared` tokens too."""

    state: State
    shared: int

    def passed(self) -> bool:
        """Tell whether waiting is over: the shared tokens are computed, or the request has ended."""
        sequence = self.state.sequence
        return self.state.ended or (sequence is not None and sequence.offset >= self.shared)


class InFlight:
    """Requests from their tokens being known until their end, in order of arrival. Safe on any thread.

    Why weak references: a request that has ended holds the device memory of its sequence.
    """

    def __init__(self) -> None:
        self._states: list[weakref.ref[State]] = []
        self._lock = threading.Lock()

    def enter(self, state: State) -> None:
        """Count a request in. It leaves by itself when its state has ended."""
        with self._lock:
            self._states = [weakref.ref(other) for other in self._running()]
            self._states.append(weakref.ref(state))

    def leader(self, state: State, stored: int, least: int) -> Leader | None:
        """Return the earlier request that will compute most of what this one needs, or None.

        `stored` tokens are stored already; less than `least` beyond that are not worth waiting for.
        """
        with self._lock:
            running = self._running()
        earlier = running[: running.index(state)] if state in running else running
        best: Leader | None = None
        for other in earlier:
            if other.model.fingerprint == state.model.fingerprint and not other.ended:
                shared = min(common_prefix(other.tokens, state.tokens), len(state.tokens) - 1)
                candidate = Leader(other, shared)
                if (
                    shared - stored >= least
                    and not candidate.passed()
                    and (best is None or shared > best.shared)
                ):
                    best = candidate
        return best

    def _running(self) -> list[State]:
        """Return the requests that have not ended. Under the lock."""
        states = (reference() for reference in self._states)
        return [state for state in states if state is not None and not state.ended]


def common_prefix(left: Tokens, right: Tokens) -> int:
    """Return how many tokens two sequences share from the start."""
    length = min(len(left), len(right))
    differing = np.flatnonzero(left[:length] != right[:length])
    return int(differing[0]) if len(differing) else length
