"""Admission: how many requests run at once, how many wait, and who is next. Plain Python under one lock."""

import threading
from collections import deque
from typing import Generic, TypeVar

from omlx.errors import BusyError

T = TypeVar("T")


class Admission(Generic[T]):
    """Let `max_running` in at once and `max_queued` wait, first come, first served."""

    def __init__(self, max_running: int, max_queued: int) -> None:
        self._max_running = max_running
        self._max_queued = max_queued
        self._running: set[T] = set()
        self._queue: deque[T] = deque()
        self._lock = threading.Lock()

    def enter(self, item: T) -> bool:
        """Return True when the item may run now, False when it waits. Raises BusyError when the queue is full."""
        with self._lock:
            if len(self._running) < self._max_running:
                self._running.add(item)
                return True
            if len(self._queue) >= self._max_queued:
                raise BusyError(
                    f"{len(self._running)} requests are running and {len(self._queue)} are waiting",
                    hint="try again in a moment, or raise server.max_queued",
                )
            self._queue.append(item)
            return False

    def leave(self, item: T) -> list[T]:
        """Take an item out, running or waiting; return those that may run now."""
        with self._lock:
            self._running.discard(item)
            if item in self._queue:
                self._queue.remove(item)
            admitted = []
            while self._queue and len(self._running) < self._max_running:
                following = self._queue.popleft()
                self._running.add(following)
                admitted.append(following)
            return admitted

    def everyone(self) -> list[T]:
        """Return all items, running first."""
        with self._lock:
            return [*self._running, *self._queue]

    def counts(self) -> tuple[int, int]:
        """Return how many run and how many wait."""
        with self._lock:
            return len(self._running), len(self._queue)
