"""Timeline: when each stage of a request began and ended, told to whoever listens, and kept when it is over.

    arrived   began queue ... began tokenize, ended tokenize ... began prefill ... ended decode   finished

A stage that is also run `during` others works from its first step on; its `began` is told in its own place.
With nobody listening a step costs two look-ups in a dict.
"""

import threading
import time
from collections.abc import Callable
from typing import Literal, TypeAlias

import msgspec

from omlx.pipeline.cost import Plan
from omlx.pipeline.explanation import Explanation, Writes
from omlx.telemetry import Stopwatch
from omlx.text.delta import Usage
from omlx.types import RequestId


class StageEvent(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something happened to a request, `at_s` seconds after it arrived.

    `stage` and the `busy_s` it has worked so far come with `began` and `ended`, `usage` with `finished`, and
    `error` with `failed`.
    """

    request: RequestId
    model: str
    event: Literal["arrived", "began", "ended", "finished", "failed"]
    at_s: float
    stage: str | None = None
    busy_s: float | None = None
    usage: Usage | None = None
    error: str | None = None


#: Takes the events of all requests, on whichever thread they happen. Must return at once and raise nothing.
Tell: TypeAlias = Callable[[StageEvent], None]


class Listeners:
    """Whoever wants to hear of requests. False when nobody does. Safe on any thread."""

    def __init__(self) -> None:
        self._tells: tuple[Tell, ...] = ()
        self._lock = threading.Lock()

    def __bool__(self) -> bool:
        return bool(self._tells)

    def add(self, tell: Tell) -> Callable[[], None]:
        """Call `tell` with every event from now on; return what ends that, which may be called again."""
        with self._lock:
            self._tells = (*self._tells, tell)
        return lambda: self._remove(tell)

    def tell(self, event: StageEvent) -> None:
        """Tell everyone."""
        for tell in self._tells:
            tell(event)

    def _remove(self, tell: Tell) -> None:
        with self._lock:
            self._tells = tuple(other for other in self._tells if other is not tell)


class Span(msgspec.Struct, frozen=True):
    """A stage's part of a request: from its first step to its last, and the seconds it worked in between."""

    stage: str
    began_s: float
    ended_s: float
    busy_s: float


class RequestTrace(msgspec.Struct, frozen=True):
    """A request that is over: what was planned, and what happened.

    Attributes:
        id: the request's.
        model: its configured name.
        arrived: seconds since 1970.
        total_s: from arrival to the last delta.
        spans: by the time they began.
        usage: tokens, by where they came from.
        hot_bytes: restored from RAM.
        cold_bytes: read from disk.
        written: blocks stored, of prompt and answer.
        plan: what `lookup` decided; null when the chain did not get there.
        explanation: the whole explanation, when the request asked for one.
        error: why it failed; null when it did not.
    """

    id: RequestId
    model: str
    arrived: float
    total_s: float
    spans: tuple[Span, ...]
    usage: Usage
    hot_bytes: int = 0
    cold_bytes: int = 0
    written: Writes = Writes()
    plan: Plan | None = None
    explanation: Explanation | None = None
    error: str | None = None


class _Part:
    """One stage's times. Mutable."""

    __slots__ = ("began", "busy", "ended")

    def __init__(self, began: float) -> None:
        self.began = began
        self.ended = began
        self.busy = 0.0


class Timeline(Stopwatch):
    """A stopwatch that also remembers when, and tells whoever listens."""

    def __init__(self, request: RequestId, model: str, listeners: Listeners | None = None) -> None:
        super().__init__()
        self.arrived = time.time()
        self._started = time.perf_counter()
        self._request = request
        self._model = model
        self._listeners = listeners if listeners is not None else Listeners()
        self._parts: dict[str, _Part] = {}
        self.say("arrived")

    def since(self, name: str, started: float) -> None:
        """Add the time since `started` (a `time.perf_counter()` reading)."""
        now = time.perf_counter()
        self.add(name, now - started)
        part = self._parts.get(name)
        if part is None:
            part = self._parts[name] = _Part(started)
        part.ended = now
        part.busy += now - started

    def began(self, name: str) -> None:
        """Take note that a stage begins."""
        self._parts.setdefault(name, _Part(time.perf_counter()))
        self.say("began", name)

    def ended(self, name: str) -> None:
        """Take note that a stage is over."""
        self.say("ended", name)

    def say(
        self,
        event: Literal["arrived", "began", "ended", "finished", "failed"],
        stage: str | None = None,
        usage: Usage | None = None,
        error: str | None = None,
    ) -> None:
        """Tell an event to whoever listens."""
        if not self._listeners:
            return
        part = self._parts.get(stage) if stage else None
        busy = round(part.busy, 6) if part else None
        self._listeners.tell(
            StageEvent(self._request, self._model, event, round(self.total_s(), 6), stage, busy, usage, error)
        )

    def total_s(self) -> float:
        """Return the seconds since arrival."""
        return time.perf_counter() - self._started

    def spans(self) -> tuple[Span, ...]:
        """Return the stages that have worked, by the time they began."""
        found = (
            Span(
                name,
                round(part.began - self._started, 6),
                round(part.ended - self._started, 6),
                round(part.busy, 6),
            )
            for name, part in list(self._parts.items())
        )
        return tuple(sorted(found, key=lambda span: (span.began_s, span.ended_s)))
