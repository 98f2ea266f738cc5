"""A ticket: one submitted request, from admission to its last delta."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict

import structlog

from omlx.errors import CancelledError, OmlxError
from omlx.pipeline.explanation import Explanation, Writes
from omlx.pipeline.request import Request
from omlx.pipeline.state import State
from omlx.pipeline.timeline import Listeners, RequestTrace, Timeline
from omlx.pipeline.usage import usage
from omlx.text.delta import Delta, Failed, Finished, Started, Usage

log = structlog.get_logger()


class Ticket:
    """Carry one request's deltas to its sink, and end it exactly once.

    Args:
        request: what was asked.
        model: the configured name of its model.
        sink: gets the deltas, in order.
        forget: told when the request has ended.
        listeners: hear of its stages.
        explain: explains the request, when it asks for that.
    """

    def __init__(
        self,
        request: Request,
        model: str,
        sink: Callable[[Delta], None],
        forget: Callable[["Ticket"], None],
        listeners: Listeners | None = None,
        explain: Callable[[State], Explanation] | None = None,
    ) -> None:
        self.request = request
        self.model = model
        self.sink = sink
        self.watch = Timeline(request.id, model, listeners)
        self._forget = forget
        self._explain = explain
        self._explanation: Explanation | None = None
        self._error: OmlxError | None = None
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
        """Tell the client's side that every check has passed; explain the request, before it writes anything."""
        if self.request.explain and self._explain is not None:
            self._explanation = self._explain(state)
        self.sink(Started(usage(state), dict(self.watch.seconds)))

    def end(self, error: OmlxError | None) -> None:
        """Forget the request and send the last delta. Only the first call counts.

        Why in that order: who has the answer finds its trace, and a server that is idle again.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
            self._error = error
        last = self._last_delta(error)
        self._log(error)
        self.watch.say(
            "failed" if error else "finished",
            usage=usage(self._state) if self._state else None,
            error=str(error) if error else None,
        )
        try:
            self._forget(self)
        finally:
            self.sink(last)
        # both know this ticket too: a cycle would keep the sequence's device memory for long
        self._state = self._error = None

    def trace(self) -> RequestTrace:
        """Return what was planned and what happened, once the request has ended."""
        state = self._state
        restored = state.restored if state else None
        written = state.written if state else None
        return RequestTrace(
            id=self.request.id,
            model=self.model,
            arrived=self.watch.arrived,
            total_s=round(self.watch.total_s(), 6),
            spans=self.watch.spans(),
            usage=usage(state) if state else Usage(),
            hot_bytes=restored.hot_bytes if restored else 0,
            cold_bytes=restored.cold_bytes if restored else 0,
            written=Writes(written.blocks, 0, written.nbytes) if written else Writes(),
            plan=state.plan if state else None,
            explanation=self._explanation,
            error=str(self._error) if self._error else None,
        )

    def _last_delta(self, error: OmlxError | None) -> Delta:
        state = self._state
        if error is not None or state is None or state.answer is None:
            return Failed(
                error or OmlxError("the pipeline ended without an answer", hint="add a decode stage")
            )
        return Finished(state.answer.reason, usage(state), dict(self.watch.seconds), self._explanation)

    def _log(self, error: OmlxError | None) -> None:
        ended = self.trace()
        log.info(
            "request ended",
            request=ended.id,
            model=ended.model,
            error=str(error) if error else None,
            **asdict(ended.usage),
            hot_bytes=ended.hot_bytes,
            cold_bytes=ended.cold_bytes,
            written_bytes=ended.written.nbytes,
            total_s=round(ended.total_s, 4),
            seconds={name: round(value, 4) for name, value in self.watch.seconds.items()},
        )
