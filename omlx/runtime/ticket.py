"""A ticket: one submitted request, from admission to its last delta."""

import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass

import structlog

from omlx.errors import CancelledError, OmlxError, TimedOutError
from omlx.models.loaded import LoadedModel
from omlx.pipeline.explanation import Explanation, Writes
from omlx.pipeline.request import Request
from omlx.pipeline.state import State
from omlx.pipeline.timeline import Listeners, RequestTrace, Timeline
from omlx.pipeline.usage import usage
from omlx.text.delta import Delta, Failed, Finished, Started, Usage

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Hooks:
    """What a ticket has done for it.

    Attributes:
        walk: starts the request on its model.
        forget: told when the request has ended.
        explain: explains the request, when it asks for that.
        reserve: counts the memory that the request will need. Raises what refuses it.
        listeners: hear of its stages.
        timeout_s: how long the request may take; None for as long as it likes.
    """

    walk: Callable[["Ticket", LoadedModel], None]
    forget: Callable[["Ticket"], None]
    explain: Callable[[State], Explanation]
    reserve: Callable[["Ticket", State], None]
    listeners: Listeners | None = None
    timeout_s: float | None = None


class Ticket:
    """Carry one request's deltas to its sink, and end it exactly once. A `Guest` of the dispatcher.

    Args:
        request: what was asked.
        model: the configured name of its model.
        sink: gets the deltas, in order.
        hooks: what is done for it.
    """

    def __init__(self, request: Request, model: str, sink: Callable[[Delta], None], hooks: Hooks) -> None:
        self.request = request
        self.model = model
        self.sink = sink
        self.watch = Timeline(request.id, model, hooks.listeners)
        self._hooks = hooks
        self._explanation: Explanation | None = None
        self._error: OmlxError | None = None
        self._state: State | None = None
        self._cancelled = False
        self._overdue: TimedOutError | None = None
        self._ended = False
        self._lock = threading.Lock()
        self._mark = self._arrived = time.perf_counter()
        self._part = "queue"

    def loading(self) -> None:
        """Take note that the request waits for its model from now on, not for its turn."""
        if self._part == "queue":
            self._lap("load")

    def begin(self, loaded: LoadedModel) -> None:
        """Start the request on its model."""
        self._lap("")
        self._hooks.walk(self, loaded)

    def expire(self) -> None:
        """Give the request up when its time is over."""
        limit = self._hooks.timeout_s
        if limit is None or self._overdue or time.perf_counter() - self._arrived < limit:
            return
        self._overdue = TimedOutError(
            f"the request was not answered within {limit:g} s; it was in {self._where()}",
            hint="raise server.request_timeout in models.toml",
        )
        self.cancel()

    def _lap(self, following: str) -> None:
        """Add the time since the last lap (or the beginning) to the part of the request's seconds that ends."""
        self.watch.since(self._part, self._mark)
        self._mark, self._part = time.perf_counter(), following

    def _where(self) -> str:
        """Return what the request waits for, in a word."""
        state = self._state
        if state is None:
            return self._part
        sequence = state.sequence
        return (
            "decode" if sequence is not None and sequence.offset >= sequence.prompt_tokens - 1 else "prefill"
        )

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
        self._hooks.reserve(self, state)
        if self.request.explain:
            self._explanation = self._hooks.explain(state)
        self.sink(Started(usage(state), dict(self.watch.seconds)))

    def end(self, error: OmlxError | None) -> None:
        """Forget the request and send the last delta. Only the first call counts.

        Why in that order: who has the answer finds its trace, and a server that is idle again.
        """
        with self._lock:
            if self._ended:
                return
            self._ended = True
            if self._overdue is not None and isinstance(error, CancelledError):
                error = self._overdue
            self._error = error
        last = self._last_delta(error)
        self._log(error)
        self.watch.say(
            "failed" if error else "finished",
            usage=usage(self._state) if self._state else None,
            error=str(error) if error else None,
        )
        try:
            self._hooks.forget(self)
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
