"""What the backend says to one request, carried from its threads to the event loop.

The backend calls the sink from threads of its own; nothing there may wait for the event loop, and the loop
may be closed already when the last deltas arrive. So the sink only posts, and what nobody listens to is
dropped.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator

from omlx.errors import BusyError, CancelledError
from omlx.pipeline.backend import Backend
from omlx.pipeline.request import Request
from omlx.text.delta import Delta, Failed, Finished


class Reply:
    """The deltas of one submitted request, in order. Lives on the event loop that made it."""

    def __init__(self, backend: Backend, request: Request) -> None:
        self._loop = asyncio.get_running_loop()
        self._deltas: deque[Delta] = deque()
        self._arrived = asyncio.Event()
        self._over = False
        self._ticket = backend.submit(request, self._sink)

    async def peek(self, patience_s: float | None = None) -> Delta | None:
        """Return the next delta and keep it, or None when it did not come in time."""
        if not self._deltas:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._arrived.wait()
        return self._deltas[0] if self._deltas else None

    async def take(self, patience_s: float | None = None) -> Delta | None:
        """Return the next delta, or None when it did not come in time."""
        delta = await self.peek(patience_s)
        if delta is not None:
            self._deltas.popleft()
        return delta

    async def take_all(self) -> list[Delta]:
        """Return all deltas once the answer is complete. Raises the error of a failed request."""
        deltas: list[Delta] = []
        while not deltas or not isinstance(deltas[-1], Finished):
            delta = await self.take()
            if isinstance(delta, Failed):
                raise delta.error
            if delta is not None:
                deltas.append(delta)
        return deltas

    def close(self) -> None:
        """Stop listening, and give the request up unless it is over. May be called again."""
        self._deltas.clear()
        if not self._over:
            self._over = True
            self._ticket.cancel()

    def fail(self, failure: Failed) -> None:
        """End the stream with `failure` instead of what the backend would still say; give the request up."""
        if not self._over:
            self._put(failure)
            self._ticket.cancel()

    def _sink(self, delta: Delta) -> None:
        # RuntimeError: the loop is closed; the server is gone, and so is the client
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._put, delta)

    def _put(self, delta: Delta) -> None:
        if self._over:
            return
        if _is_given_up(delta):
            # an answer that stops in the middle must not look complete to whoever still listens
            delta = Failed(
                BusyError("the request was given up before its answer was complete", hint="try again")
            )
        self._over = isinstance(delta, Finished | Failed)
        self._deltas.append(delta)
        self._arrived.set()


class Replies:
    """The replies that someone waits for, so that a stopping server can end them."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self._open: set[Reply] = set()
        self._stopped = False

    def __len__(self) -> int:
        return len(self._open)

    @contextlib.contextmanager
    def submit(self, request: Request) -> Iterator[Reply]:
        """Start a request; on leaving, stop listening to it and give it up unless it is over.

        Raises BusyError when the server is stopping, and what `Backend.submit` raises.
        """
        if self._stopped:
            raise _stopping()
        reply = Reply(self._backend, request)
        self._open.add(reply)
        try:
            yield reply
        finally:
            self._open.discard(reply)
            reply.close()

    def stop(self) -> None:
        """Take no more requests and end the open ones with an error. May be called again."""
        self._stopped = True
        for reply in self._open:
            reply.fail(Failed(_stopping()))


def _is_given_up(delta: Delta) -> bool:
    match delta:
        case Finished(reason="cancelled") | Failed(error=CancelledError()):
            return True
    return False


def _stopping() -> BusyError:
    return BusyError("the server is stopping", hint="try again when it is back")
