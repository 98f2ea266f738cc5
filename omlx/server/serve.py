"""Serve the application on a socket until the process is told to stop."""

import asyncio
import contextlib
import gc
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator
from types import FrameType

import structlog
import uvicorn

from omlx.config.settings import ServerSettings
from omlx.errors import UsageError
from omlx.pipeline.backend import Backend
from omlx.server.app import create_app

#: How long answers may go on after the server was told to stop; then they end with an error.
GRACE_S = 2.0
#: How long a stopping server waits for clients to take what is left, after that.
LINGER_S = 2
#: How long an idle connection is kept: longer than clients keep theirs, so that they are the ones to close
#: it.
IDLE_S = 75

#: How long a server that cannot answer any more still says so, before it ends: a supervisor then starts it again.
LOST_S = 5.0

#: How long a thread may keep the interpreter while the event loop waits for it. With Python's own 5 ms, a loop beside
#: the threads that render, tokenize and prefill waited 16 ms, with this one 3 (two busy cores).
SWITCH_S = 0.001

log = structlog.get_logger()


class HttpServer(uvicorn.Server):  # type: ignore[misc]
    """A bound server. `url` holds the real port at once, also for port 0; `run` serves until told to stop.

    Raises UsageError when the address cannot be used.
    """

    def __init__(
        self,
        backend: Backend,
        settings: ServerSettings,
        *,
        on_ready: Callable[[str], None] | None = None,
        grace_s: float = GRACE_S,
    ) -> None:
        self._on_ready = on_ready
        self._grace_s = grace_s
        self._backend = backend
        self._lost_at: float | None = None
        self._app = create_app(backend, settings)
        self._socket = _bind(settings.host, settings.port)
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        self.url = f"http://{host}:{self._socket.getsockname()[1]}"
        super().__init__(
            uvicorn.Config(
                self._app,
                http="h11",
                ws="none",
                lifespan="on",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_keep_alive=IDLE_S,
                timeout_graceful_shutdown=int(grace_s) + LINGER_S,
            )
        )

    def run(self) -> None:
        """Serve until `stop` or a signal; return when every answer has ended."""
        with _responsive():
            super().run(sockets=[self._socket])

    def stop(self) -> None:
        """Make `run` return soon. Safe to call from any thread."""
        self.should_exit = True

    @property
    def lost(self) -> bool:
        """Tell whether the backend has broken down."""
        return self._lost_at is not None

    async def on_tick(self, counter: int) -> bool:
        """Look after the backend once a second; return True to end."""
        if counter % 10 == 0 and self._lost_at is None and (status := self._backend.health().status) != "ok":
            log.critical("the server cannot answer any more", reason=status, ends_in_s=LOST_S)
            self._lost_at = time.monotonic()
        if self._lost_at is not None and time.monotonic() - self._lost_at > LOST_S:
            return True
        return bool(await super().on_tick(counter))

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Start to listen, then say so."""
        await super().startup(sockets)
        log.info("listening", url=self.url)
        if self._on_ready is not None:
            self._on_ready(self.url)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Refuse new connections, give answers under way their time, then end them."""
        log.info("stopping", answers=len(self._app.state.replies))
        self._app.state.taps.stop()
        asyncio.get_running_loop().call_later(self._grace_s, self._app.state.replies.stop)
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Stop at the first signal, at once at the second interrupt.

        Unlike uvicorn's own, this does not raise the signal again after `run`: the caller has to tidy up.
        """
        del frame
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.should_exit = True


@contextlib.contextmanager
def _responsive() -> Iterator[None]:
    """Keep the interpreter from holding the event loop up.

    Why the collector is told to leave alone what is there now: some 150,000 objects of imported modules, which live as
    long as the process. A full collection looked at all of them, for 75 to 95 ms in which no thread may run.
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_S)
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()
        sys.setswitchinterval(before)


def serve(
    backend: Backend, settings: ServerSettings, *, on_ready: Callable[[str], None] | None = None
) -> bool:
    """Serve `backend` on the address of `settings` until SIGINT or SIGTERM; call `on_ready` with the URL.

    Return False when it ended because the backend has broken down.
    """
    server = HttpServer(backend, settings, on_ready=on_ready)
    server.run()
    return not server.lost


def _bind(host: str, port: int) -> socket.socket:
    """Return a listening TCP socket; clients that connect before `run` wait.

    The protocol is named because asyncio switches Nagle's algorithm off only where it is. Left on, it holds
    back the end of every response for 40 ms, until the client's delayed acknowledgement (measured on Linux).
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bound = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        bound.setsockopt(
            socket.SOL_SOCKET, socket.SO_REUSEADDR, 1
        )  # a restart need not wait for old connections
        bound.bind((host, port))
        bound.listen()
    except OSError as error:
        bound.close()
        hint = "choose another address with --host and --port, or --port 0 for any free port"
        raise UsageError(f"cannot listen on {host}:{port}: {error.strerror or error}", hint=hint) from error
    return bound
