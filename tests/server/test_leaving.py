"""Clients that leave a real server: whatever their request was at, it ends at the next step and leaves nothing."""

import contextlib
import http.client
import json
from collections.abc import Iterator

import msgspec
import pytest

from omlx.config.settings import ServerSettings
from tests.serving import Served, serving, settings_for
from tests.trust.talk import settled, tokens_of

LONG = tokens_of(3, 8_000)
SHORT = tokens_of(4, 20)
#: An answer that takes much longer than a test waits.
ENDLESS = 30_000


@pytest.fixture(scope="module")
def server(model_folders, tmp_path_factory) -> Iterator[Served]:
    """Return a server that runs one request at a time, in small chunks, with its model in memory."""
    stages = {"prefill": {"chunk_tokens": 32}}
    settings = settings_for(model_folders["llama"], tmp_path_factory.mktemp("blocks"), stages=stages)
    settings = msgspec.structs.replace(settings, server=ServerSettings(port=0, max_running=1))
    with serving(settings) as running:
        running.complete(SHORT, max_tokens=1)
        yield running


@contextlib.contextmanager
def asking(server: Served, prompt: list[int], *, stream: bool) -> Iterator[http.client.HTTPConnection]:
    """Ask for an endless answer over a connection that is closed when the block ends."""
    connection = http.client.HTTPConnection(server.url.removeprefix("http://"), timeout=60)
    body = {"prompt": prompt, "max_tokens": ENDLESS, "ignore_eos": True, "stream": stream, "temperature": 0}
    connection.request("POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"})
    try:
        yield connection
    finally:
        connection.close()


def parts(server: Served) -> dict[str, int]:
    return dict(server.runtime.health().totals["counts"])


def idle(server: Served) -> bool:
    health = server.runtime.health()
    return (health.running, health.queued) == (0, 0)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_in_decode(server, stream):
    """F3, F4: a client that leaves while its answer is made, streamed or not, stops it; the next one is answered."""
    started = []
    deaf = server.runtime.listen(lambda event: started.append((event.event, event.stage)))
    with asking(server, SHORT, stream=stream):
        assert settled(lambda: ("began", "decode") in started)
    deaf()
    assert settled(lambda: idle(server))
    [*_, last] = server.runtime.traces()
    assert last.error
    assert last.usage.completion_tokens < ENDLESS
    assert server.complete(SHORT, max_tokens=2)


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_in_prefill(server, stream):
    """F3, F4: a client that leaves while its prompt is computed stops that before its end."""
    started = []
    prompt = [*tokens_of(30 + stream, 64), *LONG]  # new to the cache
    deaf = server.runtime.listen(lambda event: started.append((event.event, event.stage)))
    before = parts(server)["decode"]
    with asking(server, prompt, stream=stream):
        assert settled(lambda: ("began", "prefill") in started)
    deaf()
    assert settled(lambda: idle(server))
    assert before == parts(server)["decode"]
    assert server.runtime.traces()[-1].error


@pytest.mark.parametrize("stream", [True, False])
def test_a_client_that_leaves_in_the_queue(server, stream):
    """F3, F4: a client that leaves before its turn is taken out of the queue; the one before it goes on."""
    with asking(server, SHORT, stream=True):
        assert settled(lambda: server.runtime.health().running == 1)
        with asking(server, SHORT, stream=stream):
            assert settled(lambda: server.runtime.health().queued == 1)
        assert settled(lambda: server.runtime.health().queued == 0)
        assert server.runtime.health().running == 1
    assert settled(lambda: idle(server))


def test_many_that_leave(server):
    """F3: after fifty clients that left at once, nothing is running, waiting or pinned, and an answer is the same."""
    alone = server.complete(SHORT)["choices"][0]["text"]
    for number in range(50):
        with asking(server, SHORT if number % 2 else LONG[: 40 * number], stream=number % 3 > 0):
            pass
    assert settled(lambda: idle(server))
    assert alone == server.complete(SHORT)["choices"][0]["text"]
    assert settled(lambda: server.http.get("/health").json()["cache"]["hot"]["pinned_blocks"] == 0)
