"""What the backend says to one request, carried from its threads to the event loop.

The backend calls the sink from threads of its own; nothing there may wait for the event loop, and the loop
may be closed already when the last deltas arrive. So the sink only posts, and what nobody listens to is
dropped.

A request may want several answers, its choices: each is a request of its own to the backend, which computes the
prompt that they share once. Their deltas come in one stream, and the failure of one is that of all.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Iterator, Sequence
from functools import partial
from typing import NamedTuple

import msgspec

from omlx.errors import BusyError, CancelledError
from omlx.pipeline.backend import Backend, Ticket
from omlx.pipeline.request import Request
from omlx.text.delta import Delta, Failed, Finished
from omlx.types import RequestId


class Said(NamedTuple):
    """A delta of one of a request's choices."""

    choice: int
    delta: Delta


def choices_of(request: Request, count: int) -> tuple[Request, ...]:
    """Return the requests whose answers are a request's choices: other draws, and one explanation for all."""
    return (request, *(_choice(request, number) for number in range(1, count)))


def _choice(request: Request, number: int) -> Request:
    seed = request.sampling.seed
    sampling = msgspec.structs.replace(
        request.sampling, seed=None if seed is None else (seed + number) % 2**63
    )
    identity = RequestId(f"{request.id}-{number}")
    return msgspec.structs.replace(request, id=identity, sampling=sampling, explain=False)


class Reply:
    """The deltas of a submitted request, those of each choice in order. Lives on the event loop that made it.

    Args:
        backend: answers.
        requests: one for each choice.

    Raises what `Backend.submit` raises, with nothing submitted.
    """

    def __init__(self, backend: Backend, requests: Sequence[Request]) -> None:
        self._loop = asyncio.get_running_loop()
        self._said: deque[Said] = deque()
        self._arrived = asyncio.Event()
        self._going = set(range(len(requests)))
        self._num_choices = len(requests)
        self._tickets: list[Ticket] = []
        try:
            for choice, request in enumerate(requests):
                self._tickets.append(backend.submit(request, partial(self._sink, choice)))
        except BaseException:
            self.close()
            raise

    async def peek(self, patience_s: float | None = None) -> Said | None:
        """Return the next delta and keep it, or None when it did not come in time."""
        if not self._said:
            self._arrived.clear()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(patience_s):
                    await self._arrived.wait()
        return self._said[0] if self._said else None

    async def take(self, patience_s: float | None = None) -> Said | None:
        """Return the next delta, or None when it did not come in time."""
        said = await self.peek(patience_s)
        if said is not None:
            self._said.popleft()
        return said

    async def take_all(self) -> list[list[Delta]]:
        """Return all deltas of each choice once all are complete. Raises the error of a failed request."""
        answers: list[list[Delta]] = [[] for _ in range(self._num_choices)]
        while not self.over:
            said = await self.take()
            if said is None:
                continue
            if isinstance(said.delta, Failed):
                raise said.delta.error
            answers[said.choice].append(said.delta)
        return answers

    @property
    def over(self) -> bool:
        """Tell whether all has been taken that there is to take."""
        return not self._going and not self._said

    def close(self) -> None:
        """Stop listening, and give the request up unless it is over. May be called again."""
        self._said.clear()
        self._give_up()

    def fail(self, failure: Failed) -> None:
        """End the stream with `failure` instead of what the backend would still say; give the request up."""
        if self._going:
            self._put(min(self._going), failure)

    def _give_up(self) -> None:
        going, self._going = self._going, set()
        for choice in going & set(range(len(self._tickets))):
            self._tickets[choice].cancel()

    def _sink(self, choice: int, delta: Delta) -> None:
        # RuntimeError: the loop is closed; the server is gone, and so is the client
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(self._put, choice, delta)

    def _put(self, choice: int, delta: Delta) -> None:
        if choice not in self._going:
            return
        if _is_given_up(delta):
            # an answer that stops in the middle must not look complete to whoever still listens
            delta = Failed(
                BusyError("the request was given up before its answer was complete", hint="try again")
            )
        if isinstance(delta, Failed):
            self._give_up()
        elif isinstance(delta, Finished):
            self._going.discard(choice)
        self._said.append(Said(choice, delta))
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
    def submit(self, requests: Sequence[Request]) -> Iterator[Reply]:
        """Start a request, given as one for each choice; on leaving, stop listening and give up what is not over.

        Raises BusyError when the server is stopping, and what `Backend.submit` raises.
        """
        if self._stopped:
            raise _stopping()
        reply = Reply(self._backend, requests)
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
