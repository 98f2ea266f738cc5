"""How a request is answered, in every dialect: streamed or whole, and given up when the client leaves.

A stream's headers wait for the first delta, so that a request refused before prefill gets its own HTTP
status; but not for long, because clients and proxies give up on silence. After that an error is an event in
the stream, and comment lines fill every silence by the wall clock, whatever the backend is doing.

An answer that is not streamed sends nothing before it is complete: its status can only be said once.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeVar

import msgspec
import structlog
from litestar import Request as HttpRequest
from litestar.response.base import ASGIResponse
from litestar.types import ASGIApp, Receive, Scope, Send

from omlx.config.settings import ServerSettings
from omlx.errors import CancelledError, OmlxError
from omlx.pipeline.backend import Backend
from omlx.pipeline.request import Request
from omlx.server.identity import request_id
from omlx.server.reply import Replies, Reply
from omlx.server.sse import HEADERS, KEEP_ALIVE
from omlx.server.taps import Taps
from omlx.server.timing import timing_headers
from omlx.text.delta import Delta, Failed, Finished

#: How long a stream's headers wait for the first delta: clients expect them within a second.
HEADERS_WITHIN_S = 0.9

log = structlog.get_logger()

T = TypeVar("T")


class Dialect(Protocol):
    """How one API words one answer. It may remember what it has said; it does nothing else."""

    def frames(self, delta: Delta) -> Iterable[bytes]:
        """Return the events that `delta` becomes on a stream, the closing ones included."""
        ...

    def whole(self, deltas: Sequence[Delta]) -> object:
        """Return the JSON body of a complete answer that was not streamed."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """What every route works with."""

    backend: Backend
    replies: Replies
    settings: ServerSettings
    taps: Taps

    async def answer(
        self, http: HttpRequest[Any, Any, Any], request: Request, dialect: Dialect, *, stream: bool
    ) -> ASGIApp:
        """Run `request` and return its response.

        Raises what refused or failed the request, and CancelledError if the client has left.
        """
        log.info(
            "request", id=request.id, model=request.model, stream=stream, request_id=request_id(http.scope)
        )
        with contextlib.ExitStack() as stack:
            reply = stack.enter_context(self.replies.submit(request))
            if not stream:
                deltas = await while_connected(http.receive, reply.take_all())
                headers = timing_headers(http.headers, deltas)
                return ASGIResponse(body=msgspec.json.encode(dialect.whole(deltas)), headers=headers)
            first = await while_connected(http.receive, reply.peek(HEADERS_WITHIN_S))
            if isinstance(first, Failed):
                raise first.error
            headers = timing_headers(http.headers, [first])
            return EventStream(reply, dialect, self.settings.keep_alive, stack.pop_all().close, headers)


class EventStream:
    """The response that sends a reply as server-sent events. `close` is called however it ends.

    `headers` are sent besides those of every stream.
    """

    def __init__(
        self,
        reply: Reply,
        dialect: Dialect,
        keep_alive_s: float,
        close: Callable[[], None],
        headers: Mapping[str, str],
    ) -> None:
        self._headers = [*HEADERS, *((name.encode(), value.encode()) for name, value in headers.items())]
        self._reply = reply
        self._dialect = dialect
        self._keep_alive_s = keep_alive_s
        self._close = close

    async def __call__(self, _scope: Scope, receive: Receive, send: Send) -> None:
        """Send headers and events until the answer is over or the client has left."""
        try:
            with contextlib.suppress(CancelledError):
                await send({"type": "http.response.start", "status": 200, "headers": self._headers})
                await while_connected(receive, self._send_events(send))
        finally:
            self._close()

    async def _send_events(self, send: Send) -> None:
        now = asyncio.get_running_loop().time
        due = now() + self._keep_alive_s
        delta: Delta | None = None
        while not isinstance(delta, Finished | Failed):
            delta = await self._reply.take(due - now())
            try:
                data = self._word(delta)
            except Exception:  # the HTTP boundary of a stream whose headers are out
                log.exception("rendering failed")
                delta = Failed(OmlxError("internal error; the server's log tells more"))
                data = self._word(delta)
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                due = now() + self._keep_alive_s
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _word(self, delta: Delta | None) -> bytes:
        if delta is None:
            return KEEP_ALIVE
        if isinstance(delta, Failed):
            log.warning("stream failed", error=str(delta.error))
        return b"".join(self._dialect.frames(delta))


async def while_connected(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """Return what `work` returns. If the client leaves first, cancel `work` and raise CancelledError."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnect(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise CancelledError("the client has left")
        return working.result()
    finally:
        working.cancel()
        leaving.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _disconnect(receive: Receive) -> None:
    """Return when the client has left; the body has been read, so nothing else can come."""
    while (await receive())["type"] != "http.disconnect":
        pass
