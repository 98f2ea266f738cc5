"""The taps that are open, so that a stopping server can end them."""

from typing import Protocol


class Stoppable(Protocol):
    """A stream that goes on until it is told to stop."""

    def stop(self) -> None:
        """End the stream soon."""
        ...


class Taps:
    """Open streams of events. Lives on the event loop."""

    def __init__(self) -> None:
        self._open: set[Stoppable] = set()

    def add(self, tap: Stoppable) -> None:
        """Count a stream in."""
        self._open.add(tap)

    def discard(self, tap: Stoppable) -> None:
        """Count a stream out."""
        self._open.discard(tap)

    def stop(self) -> None:
        """End every stream."""
        for tap in list(self._open):
            tap.stop()
