"""A real server: what a trace foretells is what the server then does, and it tells what it did."""

import json
import threading
import time
from pathlib import Path

import httpx
import msgspec
import pytest

from omlx.explain.disk import DiskStore
from omlx.explain.explainer import Explainer
from omlx.models.describe import describe
from omlx.pipeline.cost import CostBook, profile_folder
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.model import Computing
from omlx.pipeline.stage import Services
from omlx.pipeline.timeline import RequestTrace
from omlx.server.dialects import read_request
from omlx.server.identity import new_id
from omlx.text.delta import Failed, Finished, Usage
from tests.explain.conftest import pipeline
from tests.serving import serving, settings_for, trace
from tests.tiny import CHATML, SMOL
from tests.tiny_models import make_model

TRACED = {"x-omlx-trace": "1"}


@pytest.fixture(scope="module")
def thin_model(tmp_path_factory):
    """One narrow layer: real prompts of 45,000 tokens in seconds."""
    thin = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1}
    return make_model(tmp_path_factory.mktemp("thin") / "model", "llama", **thin)


def bodies(agent: str, count: int) -> list[tuple[str, dict]]:
    """Return the first requests of an agent's session, for four tokens each."""
    found = []
    for line in trace(agent)[:count]:
        body = {**line["body"], "model": "tiny", "stream": False, "max_completion_tokens": 4}
        body.pop("stream_options", None)
        found.append((line["path"], body))
    return found


def explained(server, path: str, body: dict, **query) -> Explanation:
    """Return the server's explanation of a request that is not run."""
    answer = server.http.post("/v1/trace", json=body, params={"path": path, **query})
    assert answer.status_code == 200, answer.text
    return msgspec.json.decode(answer.content, type=Explanation)


def without_times(found: Explanation) -> Explanation:
    """Return an explanation without what was measured meanwhile."""
    plan = msgspec.structs.replace(found.plan, restore_s=0.0, prefill_s=0.0, cold_run_s=0.0)
    return msgspec.structs.replace(found, plan=plan, stages=(), notes=())


def _run(server, path: str, body: dict) -> tuple[Usage, Explanation]:
    """Run a body of any API, whether or not its answers can be rendered; return its usage and its explanation."""
    name = new_id("run")
    _, request = read_request(json.dumps(body).encode(), path, name)
    over = threading.Event()
    request = msgspec.structs.replace(request, max_tokens=4, explain=True)
    server.runtime.submit(request, lambda delta: over.set() if isinstance(delta, Finished | Failed) else None)
    assert over.wait(60)
    deadline = time.monotonic() + 10
    while True:
        found = [trace for trace in server.runtime.traces() if trace.id == name]
        if found:
            return found[0].usage, found[0].explanation
        assert time.monotonic() < deadline
        time.sleep(0.005)  # it is kept just after its last delta


def _offline(folder, settings, path: str, body: dict) -> Explanation:
    """Return what `omlx trace` tells without a server."""
    costs = CostBook(profile_folder(settings.cache))
    model = describe("tiny", settings.models["tiny"], folder, costs, Computing())
    disk = DiskStore(Path(settings.cache.directory), int(settings.cache.cold), 1.0)
    _, request = read_request(json.dumps(body).encode(), path)
    return Explainer(pipeline(), Services(disk, costs=costs), disk, "disk").dry(request, model)


@pytest.mark.parametrize("agent", ["pi", "opencode", "openclaw", "claude", "codex", "aider"])
def test_the_plan_is_what_the_server_does(agent, thin_model, tmp_path):
    """Cached tokens by tier are as foretold, turn by turn, from RAM, and from disk after a restart."""
    settings = settings_for(thin_model, tmp_path)
    turns = bodies(agent, 3)
    with serving(settings) as server:
        server.runtime.preload().result()  # before that, the layout of its cache is not known
        for path, body in turns[:-1]:
            foretold = explained(server, path, body)
            usage, real = _run(server, path, body)
            assert without_times(foretold) == without_times(real)
            assert (foretold.plan.hot_tokens, foretold.plan.cold_tokens) == (
                usage.hot_tokens,
                usage.cold_tokens,
            )
            assert foretold.plan.prompt_tokens - foretold.plan.resume == usage.prefilled_tokens
    path, body = turns[-1]
    by_files = _offline(thin_model, settings, path, body)
    with serving(settings) as server:
        foretold = explained(server, path, body)
        usage, _ = _run(server, path, body)
        assert (0, by_files.plan.cold_tokens) == (usage.hot_tokens, usage.cold_tokens)
        assert foretold.plan == msgspec.structs.replace(
            by_files.plan,
            restore_s=foretold.plan.restore_s,
            prefill_s=foretold.plan.prefill_s,
            cold_run_s=foretold.plan.cold_run_s,
        )
        assert foretold.difference == by_files.difference


@pytest.fixture(scope="module")
def server(thin_model, tmp_path_factory):
    """One server with a short conversation in its cache."""
    with serving(settings_for(thin_model, tmp_path_factory.mktemp("cache"))) as server:
        server.chat([{"role": "user", "content": "Say what the index is for. " * 20}])
        yield server


def chat(text: str) -> dict:
    """Return a body for four tokens."""
    return {"messages": [{"role": "user", "content": text}], "temperature": 0, "max_tokens": 4}


def test_a_stream_ends_with_its_explanation(server):
    """With the header the last chunk before the end carries the explanation, asked for usage or not."""
    lines = server.http.post(
        "/v1/chat/completions", json={**chat("hello"), "stream": True}, headers=TRACED
    ).text
    frames = [line.removeprefix("data: ") for line in lines.splitlines() if line.startswith("data: {")]
    found = msgspec.convert(json.loads(frames[-1])["usage"]["omlx"]["trace"], Explanation)
    assert "tiny" == found.model
    assert [] == [frame for frame in frames[:-1] if "trace" in frame]


def test_nothing_is_explained_unasked(server):
    """Without the header an answer has no explanation."""
    assert "trace" not in server.chat([{"role": "user", "content": "hello"}])["usage"]["omlx"]


def test_text_comes_only_when_asked_for(server):
    """C19: both sides' text is in an explanation when the query says so, and not otherwise."""
    body = chat("Say what the index is for. " * 10 + "Then stop.")
    hidden, shown = (
        explained(server, "/v1/chat/completions", body, text=text).difference for text in ("false", "true")
    )
    assert (None, None) == (hidden.ours, hidden.theirs)
    assert shown.ours.startswith("Then stop.")
    assert hidden.token == shown.token


def test_a_finished_request_can_be_looked_at(server):
    """Plan and fact of a request are kept under its id: stages in order, tokens and bytes by tier."""
    body = chat("Say what the index is for. " * 20 + "And the queue?")
    said = server.post("/v1/chat/completions", body)
    for name in (said["id"], "last"):
        kept = msgspec.json.decode(server.http.get(f"/v1/trace/{name}").content, type=RequestTrace)
        assert said["id"] == kept.id
    usage = said["usage"]["omlx"]
    assert (usage["hot_tokens"], usage["prefilled_tokens"]) == (
        kept.usage.hot_tokens,
        kept.usage.prefilled_tokens,
    )
    assert (kept.plan.resume, kept.plan.hot_bytes) == (kept.usage.cached_tokens, kept.hot_bytes)
    stages = [span.stage for span in kept.spans]
    order = ["normalize", "tokenize", "segment", "coalesce", "lookup", "fetch", "prefill"]
    assert order == [name for name in stages if name in order]
    assert {"decode", "writeback"} <= set(stages)
    assert all(0 <= span.began_s <= span.ended_s <= kept.total_s for span in kept.spans)
    assert kept.written.blocks > 0
    assert said["id"] in [entry["id"] for entry in server.http.get("/v1/trace").json()["data"]]


def test_an_unknown_request_is_not_found(server):
    """An id that is not remembered is a 404 that says where to look."""
    answer = server.http.get("/v1/trace/nobody")
    assert (404, "request_not_found") == (answer.status_code, answer.json()["error"]["code"])


def test_a_refused_request_is_refused_in_a_trace_too(server):
    """What the chain refuses before prefill, a dry run refuses with the same words."""
    body = {**chat("x " * 70_000)}
    real, dry = (server.http.post(path, json=body) for path in ("/v1/chat/completions", "/v1/trace"))
    assert real.status_code == dry.status_code == 400
    assert real.json() == dry.json()


def _events(server, query: str, until: str, act) -> list[tuple[str, dict]]:
    """Return the events of a tap, from an act on until one of that name."""
    found: list[tuple[str, dict]] = []
    with (
        httpx.Client(base_url=server.url, timeout=20) as http,
        http.stream("GET", f"/v1/tap{query}") as stream,
    ):
        lines = stream.iter_lines()
        next(lines)  # the first comment: it listens
        thread = threading.Thread(target=act)
        thread.start()
        name = ""
        for line in lines:
            if line.startswith("event: "):
                name = line.removeprefix("event: ")
            elif line.startswith("data: "):
                found.append((name, json.loads(line.removeprefix("data: "))))
                if name == until:
                    break
        thread.join()
    return found


def test_a_tap_tells_every_stage_as_it_happens(server):
    """Each stage begins and ends, between the request's arrival and its end."""
    events = _events(server, "", "finished", lambda: server.post("/v1/chat/completions", chat("hello tap")))
    assert "arrived" == events[0][0]
    told = [(name, data["stage"]) for name, data in events if "stage" in data]
    stages = [stage for name, stage in told if name == "began"]
    assert [
        "normalize",
        "tokenize",
        "segment",
        "coalesce",
        "lookup",
        "fetch",
        "prefill",
        "decode",
        "writeback",
    ] == stages
    assert sorted(stages) == sorted(stage for name, stage in told if name == "ended")
    assert events[-1][1]["usage"]["prompt_tokens"] > 0
    times = [data["at_s"] for _, data in events]
    assert times == sorted(times)


def test_a_tap_can_be_narrowed(server):
    """One stage of one model is told alone, with the ends of requests; an unknown model is a 404."""
    act = lambda: server.post("/v1/chat/completions", chat("hello again"))  # noqa: E731
    events = _events(server, "?model=tiny&stage=prefill", "finished", act)
    assert ["arrived", "began", "ended", "finished"] == [name for name, _ in events]
    assert 404 == server.http.get("/v1/tap", params={"model": "nobody"}).status_code


@pytest.mark.parametrize("template", [SMOL, CHATML])
def test_dropped_tools_are_told(tmp_path, template):
    """An explanation says when the template leaves tools out, and only then."""
    settings = settings_for(make_model(tmp_path / "model", "llama", template=template), tmp_path / "cache")
    tool = {"type": "function", "function": {"name": "read"}}
    body = {"messages": [{"role": "user", "content": "hi"}], "tools": [tool]}
    with serving(settings) as server:
        told = explained(server, "/v1/chat/completions", body).notes
        without = explained(server, "/v1/chat/completions", {**body, "tools": []}).notes
    assert (template == SMOL) == any("not told of the tools" in note for note in told)
    assert not any("tools" in note for note in without)
