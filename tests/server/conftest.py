"""A real server on a free port, over a scripted backend."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import httpx
import openai
import pytest

from omlx.config.settings import ServerSettings
from omlx.pipeline.backend import Health, ModelCard
from omlx.server.serve import HttpServer
from omlx.testing.backend import ScriptedBackend, answer

CARD = ModelCard("org/model", aliases=("coder",), window_tokens=4096)


class Served:
    """A running server, its backend, and two clients of it."""

    def __init__(self, backend: ScriptedBackend, server: HttpServer, stack: contextlib.ExitStack) -> None:
        self.backend = backend
        self.server = server
        self.http = stack.enter_context(httpx.Client(base_url=server.url, timeout=10))
        key = {"api_key": "unused", "base_url": f"{server.url}/v1", "max_retries": 0}
        self.openai = stack.enter_context(openai.OpenAI(**key))

    def until(self, condition: Callable[[], object]) -> None:
        """Wait until `condition` holds; fail after ten seconds."""
        for _ in range(2000):
            if condition():
                return
            time.sleep(0.005)
        pytest.fail("the condition never held")

    def chat(self, **body):
        """Post a chat request with one message unless `messages` is given."""
        body = {"messages": [{"role": "user", "content": "hi"}]} | body
        return self.http.post("/v1/chat/completions", json=body)


@contextlib.contextmanager
def serving() -> Iterator[Callable[..., Served]]:
    """Yield a function that starts a server over a script; keywords are settings."""
    with contextlib.ExitStack() as stack:

        def start(script=None, *, grace_s=0.0, **settings) -> Served:
            backend = ScriptedBackend([CARD], answer("well") if script is None else script)
            server = HttpServer(backend, ServerSettings(port=0, **settings), grace_s=grace_s)
            thread = threading.Thread(target=server.run)
            thread.start()
            stack.callback(thread.join, 10)
            stack.callback(server.stop)
            return Served(backend, server, stack)

        yield start


@pytest.fixture
def serve() -> Iterator[Callable[..., Served]]:
    """Return a function that starts a server over a script; keywords are settings."""
    with serving() as start:
        yield start


@pytest.fixture(scope="session")
def shared() -> Iterator[Served]:
    """One server for all tests that only ask it: starting and stopping one takes 0.2 s."""
    with serving() as start:
        yield start()


@pytest.fixture
def served(shared) -> Served:
    """A server that answers "well" and has heard nothing yet."""
    shared.backend.tickets.clear()
    shared.backend.state = Health("ok", "0", models=(CARD,))
    return shared
