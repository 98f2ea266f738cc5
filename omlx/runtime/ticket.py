"""A ticket: one submitted request, from admission to its last delta."""

import threading
import time
from collections.abc import Callable

import structlog

from omlx.errors import CancelledError, OmlxError
from omlx.pipeline.request import Request
from omlx.pipeline.state import State
from omlx.pipeline.usage import usage
from omlx.telemetry import Stopwatch
from omlx.text.delta import Delta, Failed, Finished, Started

log = structlog.get_logger()


class Ticket:
    """Carry one request's deltas to its sink, and end it exactly once.

    Args:
        request: what was asked.
        model: the configured name of its model.
        sink: gets the deltas, in order.
        forget: told when the request has ended.
    """

    def __init__(
        self, request: Request, model: str, sink: Callable[[Delta], None], forget: Callable[["Ticket"], None]
    ) -> None:
        self.request = request
        self.model = model
        self.sink = sink
        self.watch = Stopwatch()
        self._forget = forget
        self._state: State | None = None
        self._cancelled = False
        self._ended = False
        self._lock = threading.Lock()
        self._mark = time.perf_counter()

    def lap(self, name: str) -> None:
        """Add the time since the last lap (or the beginning) to a part of the request's seconds."""
        self.watch.since(name, self._mark)
        self._mark = time.perf_counter()

    def attach(self, state: State) -> bool:
        """Take the state that walks the chain; False, and the end, when the request was cancelled before."""
        with self._lock:
            self._state = state
            cancelled = self._cancelled
        if cancelled:
            self.end(CancelledError("the request was cancelled"))
        return not cancelled

    def cancel(self) -> None:
        """Give the request up: at once when it waits, at its next step when it runs. Any thread, any time."""
        with self._lock:
            self._cancelled = True
            state = self._state
            if state is not None:
                state.cancelled = True
        if state is None:
            self.end(CancelledError("the request was cancelled"))

    def announce(self, state: State) -> None:
        """Tell the client's side that every check has passed."""
        self.sink(Started(usage(state)))

    def end(self, error: OmlxError | None) -> None:
        """Send the last delta and forget the request. Only the first call counts."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self.sink(self._last_delta(error))
        self._log(error)
        self._forget(self)

    def _last_delta(self, error: OmlxError | None) -> Delta:
        state = self._state
        if error is not None or state is None or state.answer is None:
            return Failed(error or OmlxError("the pipeline ended without an answer", hint="add a decode stage"))
        return Finished(state.answer.reason, usage(state), dict(self.watch.seconds))

    def _log(self, error: OmlxError | None) -> None:
        counts = usage(self._state) if self._state else None
        log.info(
            "request ended",
            request=self.request.id,
            model=self.model,
            error=str(error) if error else None,
            prompt_tokens=counts.prompt_tokens if counts else 0,
            cached_tokens=counts.cached_tokens if counts else 0,
            completion_tokens=counts.completion_tokens if counts else 0,
            seconds={name: round(value, 4) for name, value in self.watch.seconds.items()},
        )
