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
from omlx.server.reply import Replies, Reply, Said, choices_of
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

    def frames(self, delta: Delta, choice: int = 0) -> Iterable[bytes]:
        """Return the events that a delta of one choice becomes on a stream; a Failed closes the stream."""
        ...

    def closing(self, ends: Sequence[Finished]) -> Iterable[bytes]:
        """Return the events that close a stream when every choice has ended, as `ends` says."""
        ...

    def whole(self, answers: Sequence[Sequence[Delta]]) -> object:
        """Return the JSON body of a complete answer that was not streamed, from the deltas of each choice."""
        ...


@dataclass(frozen=True, slots=True)
class Service:
    """What every route works with."""

    backend: Backend
    replies: Replies
    settings: ServerSettings
    taps: Taps

    async def answer(
        self,
        http: HttpRequest[Any, Any, Any],
        request: Request,
        dialect: Dialect,
        *,
        stream: bool,
        num_choices: int = 1,
    ) -> ASGIApp:
        """Run `request`, for that many answers, and return its response.

        Raises what refused or failed the request, and CancelledError if the client has left.
        """
        log.info(
            "request", id=request.id, model=request.model, stream=stream, request_id=request_id(http.scope)
        )
        with contextlib.ExitStack() as stack:
            reply = stack.enter_context(self.replies.submit(choices_of(request, num_choices)))
            if not stream:
                answers = await while_connected(http.receive, reply.take_all())
                headers = timing_headers(http.headers, answers[0])
                return ASGIResponse(body=msgspec.json.encode(dialect.whole(answers)), headers=headers)
            said = await while_connected(http.receive, reply.peek(HEADERS_WITHIN_S))
            first = said.delta if said else None
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
        self._ends: dict[int, Finished] = {}

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
        while not self._reply.over:
            said = await self._reply.take(due - now())
            try:
                data = self._word(said)
            except Exception:  # the HTTP boundary of a stream whose headers are out
                log.exception("rendering failed")
                self._reply.close()
                data = self._word(Said(0, Failed(OmlxError("internal error; the server's log tells more"))))
            if data:
                await send({"type": "http.response.body", "body": data, "more_body": True})
                due = now() + self._keep_alive_s
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    def _word(self, said: Said | None) -> bytes:
        if said is None:
            return KEEP_ALIVE
        if isinstance(said.delta, Failed):
            log.warning("stream failed", error=str(said.delta.error))
        events = list(self._dialect.frames(said.delta, said.choice))
        if isinstance(said.delta, Finished):
            self._ends[said.choice] = said.delta
            if self._reply.over:
                events += self._dialect.closing([end for _, end in sorted(self._ends.items())])
        return b"".join(events)


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
