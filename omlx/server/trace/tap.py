"""A tap: the events of requests, carried from the backend's threads to one client.

A client that reads slowly loses the oldest events, and is told how many; the backend never waits.
"""

import asyncio
import contextlib
from collections import deque
from dataclasses import dataclass

from litestar.types import Receive, Scope, Send

from omlx.errors import CancelledError
from omlx.pipeline.backend import Backend
from omlx.pipeline.timeline import StageEvent
from omlx.server.answer import while_connected
from omlx.server.sse import HEADERS, KEEP_ALIVE, frame
from omlx.server.taps import Taps

#: Events that are kept for a client that does not read.
MOST_EVENTS = 4096


@dataclass(frozen=True, slots=True)
class Filter:
    """Which events a client wants; None lets everything pass. A request's own events pass every stage."""

    model: str | None = None
    stage: str | None = None
    request: str | None = None

    def passes(self, event: StageEvent) -> bool:
        """Tell whether the client wants an event."""
        return (
            self.model in (None, event.model)
            and self.request in (None, event.request)
            and (event.stage is None or self.stage in (None, event.stage))
        )


class TapStream:
    """The response that sends events until the client leaves or the server stops."""

    def __init__(self, backend: Backend, taps: Taps, wanted: Filter, keep_alive_s: float) -> None:
        self._backend = backend
        self._taps = taps
        self._wanted = wanted
        self._keep_alive_s = keep_alive_s
        self._events: deque[StageEvent] = deque(maxlen=MOST_EVENTS)
        self._arrived = asyncio.Event()
        self._lost = 0
        self._over = False

    def stop(self) -> None:
        """End the stream once what has arrived is sent."""
        self._over = True
        self._arrived.set()

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send headers, then events."""
        loop = asyncio.get_running_loop()

        def tell(event: StageEvent) -> None:
            # RuntimeError: the loop is closed; the server is gone, and so is the client
            if self._wanted.passes(event):
                with contextlib.suppress(RuntimeError):
                    loop.call_soon_threadsafe(self._put, event)

        self._taps.add(self)
        deaf = self._backend.listen(tell)
        try:
            with contextlib.suppress(CancelledError):
                await send({"type": "http.response.start", "status": 200, "headers": list(HEADERS)})
                await while_connected(receive, self._send_events(send))
        finally:
            deaf()
            self._taps.discard(self)

    def _put(self, event: StageEvent) -> None:
        self._lost += len(self._events) == MOST_EVENTS
        self._events.append(event)
        self._arrived.set()

    async def _send_events(self, send: Send) -> None:
        await send({"type": "http.response.body", "body": KEEP_ALIVE, "more_body": True})
        while not (self._over and not self._events):
            self._arrived.clear()
            if not self._events:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(self._keep_alive_s):
                        await self._arrived.wait()
            await send({"type": "http.response.body", "body": self._taken() or KEEP_ALIVE, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _taken(self) -> bytes:
        """Return all that has arrived as bytes, after the number of events that were lost."""
        lost, self._lost = self._lost, 0
        head = frame({"lost": lost}, "lost") if lost else b""
        data = b"".join(frame(event, event.event) for event in self._events)
        self._events.clear()
        return head + data
