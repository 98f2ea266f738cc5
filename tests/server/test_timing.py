"""A client that asks learns where its request's time went, streamed or not."""

import json
import re
import time

import pytest
from structlog.testing import capture_logs

from omlx.server.timing import timing_headers
from omlx.testing.backend import Pause
from omlx.text.delta import Finished, Started, TextDelta, Usage
from tests.serving import Served, cached, settings_for
from tests.serving import serving as serving_model

ASKED = {"x-omlx-timings": "1"}
USAGE = Usage(prompt_tokens=9, prefilled_tokens=9, completion_tokens=1)
BEFORE = {"queue": 0.0001, "tokenize": 0.0042}
SCRIPT = [Started(USAGE, BEFORE), TextDelta("a"), Finished("stop", USAGE, {**BEFORE, "decode": 1.5})]
PATHS = ["/v1/chat/completions", "/v1/completions"]


def body(**more) -> dict:
    return {"messages": [{"role": "user", "content": "hi"}], "prompt": "hi", **more}


def parts(value: str) -> dict[str, float]:
    """Return the milliseconds by part, read as a browser does."""
    return {name: float(spent) for name, spent in re.findall(r"([\w-]+);dur=([\d.]+)", value)}


@pytest.mark.parametrize("path", PATHS)
def test_a_whole_answer_has_every_part(serve, path):
    """The header of an answer that is not streamed has all parts, in milliseconds."""
    response = serve(SCRIPT).http.post(path, json=body(), headers=ASKED)
    assert {"queue": 0.1, "tokenize": 4.2, "decode": 1500.0} == parts(response.headers["server-timing"])


@pytest.mark.parametrize("path", PATHS)
def test_a_stream_has_what_is_known_and_then_the_rest(serve, path):
    """A stream's header has the parts before prefill; its last chunk has all, though no usage was asked for."""
    response = serve(SCRIPT).http.post(path, json=body(stream=True), headers=ASKED)
    assert {"queue": 0.1, "tokenize": 4.2} == parts(response.headers["server-timing"])
    chunks = [line[6:] for line in response.text.splitlines() if line.startswith("data: {")]
    assert {**BEFORE, "decode": 1.5} == json.loads(chunks[-1])["usage"]["omlx"]["seconds"]


@pytest.mark.parametrize("path", PATHS)
def test_nobody_else_gets_them(serve, path):
    """Without the header there is none in the response, and a stream has no usage that was not asked for."""
    served = serve(SCRIPT)
    assert "server-timing" not in served.http.post(path, json=body()).headers
    streamed = served.http.post(path, json=body(stream=True))
    assert "server-timing" not in streamed.headers
    assert "usage" not in streamed.text


def test_a_stream_that_waits_has_no_header(serve, monkeypatch):
    """When headers must go before anything is known, they say nothing."""
    monkeypatch.setattr("omlx.server.answer.HEADERS_WITHIN_S", 0.01)
    response = serve([Pause(0.3), *SCRIPT]).http.post(PATHS[0], json=body(stream=True), headers=ASKED)
    assert "server-timing" not in response.headers
    assert '"decode":1.5' in response.text


def test_foreign_names_cannot_break_the_header():
    """A stage of any name becomes a token of the header."""
    said = [Finished("stop", USAGE, {'x"; y\r\n,': 0.001})]
    assert {"server-timing": "x___y___;dur=1.000"} == timing_headers(ASKED, said)


def test_sums_and_events_of_a_real_request(model_folders, tmp_path):
    """/health sums what requests cost, and one event a request tells its tokens, bytes and seconds."""
    with serving_model(settings_for(model_folders["llama"], tmp_path)) as served:
        messages = [{"role": "user", "content": "the user asks " * 40}]
        served.chat(messages)
        with capture_logs() as logs:
            answer = served.chat(messages)
            refused = served.http.post(PATHS[1], json=body(prompt=[10**9]))
            totals = ended(served, 3)
    assert 400 == refused.status_code
    events = {log["request"]: log for log in logs if log["event"] == "request ended"}
    event, tokens = events[answer["id"]], totals["tokens"]
    assert (3, 1) == (totals["requests"], totals["failed"])
    assert tokens["prompt"] == tokens["hot"] + tokens["cold"] + tokens["prefilled"]
    assert cached(answer) == tokens["hot"] == event["hot_tokens"]
    assert totals["nbytes"]["hot"] == event["hot_bytes"] > 0
    assert totals["nbytes"]["written"] > event["written_bytes"] >= 0
    parts = ["queue", "load", "normalize", "tokenize", "segment", "coalesce", "lookup", "fetch", "prefill"]
    assert {*parts, "decode", "writeback"} == set(totals["seconds"]) == set(totals["counts"])
    assert (3, 1, 2) == tuple(totals["counts"][part] for part in ("queue", "load", "decode"))


def ended(served: Served, requests: int) -> dict:
    """Return the sums once that many requests have ended: a client has its answer a moment before."""
    for _ in range(500):
        totals = served.http.get("/health").json()["totals"]
        if totals["requests"] == requests:
            return totals
        time.sleep(0.01)
    raise AssertionError(totals)
