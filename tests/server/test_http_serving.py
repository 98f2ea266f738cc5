"""The socket, discovery, ids, and how a server stops."""

import signal
import socket
import subprocess
import sys
import textwrap
import threading

import httpx
import msgspec
import pytest

from omlx.config.settings import ServerSettings
from omlx.errors import UsageError
from omlx.server.serve import HttpServer
from omlx.testing.backend import Pause, ScriptedBackend, answer

FOREVER = Pause(60)


def test_models_by_every_name(served):
    """The list holds the name and each alias with the real window; each can be fetched, slashes and all."""
    listed = {entry["id"]: entry for entry in served.http.get("/v1/models").json()["data"]}
    assert list(listed) == ["org/model", "coder"]
    assert {("org/model", 4096)} == {(entry["root"], entry["context_length"]) for entry in listed.values()}
    paths = ["org/model", "org%2Fmodel", "coder"]
    assert [served.http.get(f"/v1/models/{path}").json()["id"] for path in paths] == [
        "org/model",
        "org/model",
        "coder",
    ]
    assert "coder" in [model.id for model in served.openai.models.list()]
    assert served.openai.models.retrieve("org/model").id == "org/model"


def test_unknown_model_in_discovery(served):
    """Asking after an unknown model is a 404 that lists the known ones."""
    response = served.http.get("/v1/models/gpt-9")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def test_probes(served):
    """HEAD and GET answer at the root and on health, without a body for HEAD; nothing reaches the backend."""
    for path in ("/", "/health"):
        assert served.http.get(path).status_code == 200
        probed = served.http.head(path)
        assert (probed.status_code, probed.content) == (200, b"")
    assert served.http.head("/nothing").status_code == 404
    assert served.backend.tickets == []


def test_an_unwell_backend_shows_in_the_status(served):
    """Health is a 503 when the backend is not well, for GET and HEAD."""
    served.backend.state = msgspec.structs.replace(served.backend.state, status="stuck")
    assert ((got := served.http.get("/health")).status_code, got.json()["status"]) == (503, "stuck")
    assert served.http.head("/health").status_code == 503


def test_no_cors(served):
    """Other origins get no permission, and OPTIONS of a program is answered."""
    response = served.http.options("/v1/models", headers={"origin": "http://elsewhere.example"})
    assert response.status_code == 403
    assert not [name for name in response.headers if name.startswith("access-control")]
    assert served.http.options("/v1/models").status_code == 204


@pytest.mark.parametrize("path", ["/schema", "/docs", "/openapi.json"])
def test_no_documentation_pages(served, path):
    """No page is served that would load scripts from elsewhere."""
    assert served.http.get(path).status_code == 404


def test_request_ids(served):
    """A usable x-request-id comes back, another is replaced, and every response has one."""
    long, mine = "x" * 200, "trace-1"
    ids = [
        served.http.get(path, headers={"x-request-id": given}).headers["x-request-id"]
        for path, given in [("/health", mine), ("/nothing", mine), ("/health", long), ("/health", "a b")]
    ]
    assert [mine, mine] == ids[:2]
    assert all(name.startswith("req-") for name in ids[2:])
    assert served.chat(stream=True).headers["x-request-id"].startswith("req-")


def test_query_strings_and_encodings_are_no_matter(served):
    """A query string, an accepted encoding and a missing content type change nothing."""
    headers = {"accept": "application/json", "accept-encoding": "gzip, br", "content-type": "text/plain"}
    body = b'{"messages": [{"role": "user", "content": "hi"}], "stream": true}'
    response = served.http.post("/v1/chat/completions?beta=true", content=body, headers=headers)
    assert response.status_code == 200
    assert "content-encoding" not in response.headers
    assert response.text.endswith("data: [DONE]\n\n")


@pytest.mark.parametrize("stream", [False, True])
def test_stopping_ends_what_is_under_way(serve, stream):
    """A stopping server ends open answers with an error and gives their requests up."""
    served = serve([*answer("a")[:2], FOREVER])
    got = []
    client = threading.Thread(target=lambda: got.append(served.chat(stream=stream)))
    client.start()
    served.until(lambda: served.backend.tickets)
    served.server.stop()
    client.join(10)
    assert got[0].status_code == (200 if stream else 503)
    assert "the server is stopping" in got[0].text
    assert served.backend.tickets[0].cancelled.is_set()


def test_stopping_lets_short_answers_end(serve):
    """Within its grace a stopping server lets an answer come to its end."""
    told = threading.Event()

    def script(_):
        told.wait(10)
        yield from answer("well")

    served = serve(script, grace_s=5)
    got = []
    client = threading.Thread(target=lambda: got.append(served.chat()))
    client.start()
    served.until(lambda: served.backend.tickets)
    served.server.stop()
    served.until(lambda: not served.server.servers[0].is_serving())
    told.set()
    client.join(10)
    assert got[0].json()["choices"][0]["message"]["content"] == "well"


def test_responses_are_not_held_back(served):
    """Connections have Nagle's algorithm off, so that the end of a response does not wait for a timer."""
    served.http.get("/health")
    for connection in served.server.server_state.connections:
        accepted = connection.transport.get_extra_info("socket")
        assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_an_address_in_use(served):
    """An address that is taken is an error that says which, and what to do."""
    port = int(served.server.url.rpartition(":")[2])
    with pytest.raises(UsageError, match=rf"cannot listen on 127.0.0.1:{port}: .*--port 0"):
        HttpServer(ScriptedBackend(["m"]), ServerSettings(port=port))


@pytest.mark.parametrize("how", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_and_returns(how):
    """On a signal `serve` reports the real port first, stops, and returns to its caller, who can tidy up."""
    program = """
        from omlx.config.settings import ServerSettings
        from omlx.server.serve import serve
        from omlx.testing.backend import ScriptedBackend
        def ready(url):
            print("at", url, flush=True)
        serve(ScriptedBackend(["m"]), ServerSettings(port=0), on_ready=ready)
        print("tidy")
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        url = next(line for line in process.stdout if line.startswith("at "))[3:].strip()
        assert httpx.get(f"{url}/health").status_code == 200
        process.send_signal(how)
        out, _ = process.communicate(timeout=10)
    assert (process.returncode, out.splitlines()[-1]) == (0, "tidy")
