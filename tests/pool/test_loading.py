"""Loading and unloading beside running requests, by first use and by API."""

import gc
import shutil
import time

import mlx.core as mx
import pytest

from tests.pool.talk import PROMPT, Stream, all_at_once, ask, several
from tests.tiny_models import make_model
from tests.trust.talk import answer, settled


def test_requests_that_come_while_a_model_loads_are_all_served(folders, tmp_path, brake):
    """F5b: ten requests for a model that is being loaded cause one load, and all of them are answered."""
    with several({"a": folders["a"]}, tmp_path) as server:

        def send(number: int):
            if number == 9:
                assert brake.began.wait(60)
                brake.free.set()
            return ask(server, "a", seed=number)

        found = all_at_once(10, send)
        assert [200] * 10 == [response.status_code for response in found]
        assert ["a"] == brake.reads


def test_a_model_that_computes_arrays_beside_its_weights_runs(tmp_path):
    """F11: a scaled rotary embedding, whose frequencies are made on the loader thread, runs on the device thread."""
    scaling = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
    scaling["original_max_position_embeddings"] = 8192
    folder = make_model(tmp_path / "model", "llama", rope_scaling=scaling)
    with several({"a": folder}, tmp_path / "cache") as server:
        assert 200 == ask(server, "a").status_code


def test_streams_go_on_while_another_model_loads(folders, tmp_path, brake):
    """A stream gets text during the whole of another model's load."""
    brake.free.set()
    with several({"a": folders["a"], "b": folders["b"]}, tmp_path) as server:
        server.runtime.preload("a").result()
        brake.free.clear()
        brake.began.clear()
        stream = Stream(server, "a")
        stream.wait_begun()
        loading = server.runtime.load("b")
        assert brake.began.wait(60)
        before = len(stream.texts)
        assert settled(lambda: len(stream.texts) > before + 20)
        assert not loading.done()
        brake.free.set()
        assert loading.result(60).loaded
        assert not stream.finished
        stream.stop()


def test_a_load_that_fails_fails_its_requests_alone(folders, tmp_path):
    """F5: who asked for a model that cannot be loaded is told why; others go on; the next request tries again."""
    broken = shutil.copytree(folders["b"], tmp_path / "broken")
    whole = (broken / "model.safetensors").read_bytes()
    (broken / "model.safetensors").write_bytes(whole[:-1000])
    with several({"a": folders["a"], "b": broken}, tmp_path / "cache") as server:
        stream = Stream(server, "a")
        stream.wait_begun()
        failed = all_at_once(3, lambda _: ask(server, "b"))
        assert [500] * 3 == [response.status_code for response in failed]
        assert "'b' cannot be loaded" in failed[0].json()["error"]["message"]
        assert stream.error is None
        (broken / "model.safetensors").write_bytes(whole)
        assert 200 == ask(server, "b").status_code
        assert not stream.finished
        stream.stop()


def test_a_model_that_streams_is_not_unloaded(folders, tmp_path):
    """F5a: unloading during a stream is refused with a 409 that says so, and the stream goes on; then it works."""
    with several({"a": folders["a"]}, tmp_path) as server:
        stream = Stream(server, "a")
        stream.wait_begun()
        refused = server.http.post("/v1/models/a/unload")
        assert 409 == refused.status_code
        assert "requests use it" in refused.json()["error"]["message"]
        before = len(stream.texts)
        assert settled(lambda: len(stream.texts) > before)
        stream.stop()
        assert settled(lambda: server.http.post("/v1/models/a/unload").status_code == 200)
        assert not server.http.get("/v1/models/a").json()["loaded"]


def test_load_and_unload_answer_with_the_model(folders, tmp_path):
    """Loading twice and unloading twice are no errors; unknown models and verbs are."""
    with several({"a": {"path": str(folders["a"]), "aliases": ("org/x",)}}, tmp_path) as server:
        said = [
            server.http.post(f"/v1/models/{path}")
            for path in ("a/load", "org/x/load", "a/unload", "a/unload")
        ]
        assert [(200, True), (200, True), (200, False), (200, False)] == [
            (response.status_code, response.json()["loaded"]) for response in said
        ]
        assert 404 == server.http.post("/v1/models/nobody/load").status_code
        assert 400 == server.http.post("/v1/models/a/explode").status_code


def test_a_hundred_loads_with_traffic_leave_nothing_stuck(folders, tmp_path):
    """F5c: loaded and unloaded a hundred times while requests come, all are answered, and memory returns to base."""
    with several({"a": folders["a"], "b": folders["b"]}, tmp_path, hot=1) as server:
        base = mx.get_active_memory()
        statuses = []
        for number in range(100):
            path = f"/v1/models/{'ab'[number % 2]}/{'load' if number % 3 else 'unload'}"
            statuses += [
                response.status_code
                for response in all_at_once(
                    3,
                    lambda who, n=number, p=path: (
                        server.http.post(p) if who == 2 else ask(server, "ab"[who], n)
                    ),
                )
            ]
        assert {200, 409} >= set(statuses)
        assert 0 == sum(status == 409 for status in statuses[::3] + statuses[1::3])
        assert settled(lambda: server.runtime.health().running == 0)
        for name in "ab":
            assert 200 == server.http.post(f"/v1/models/{name}/unload").status_code
        assert settled(lambda: gc.collect() >= 0 and base + 100_000 >= mx.get_active_memory())
        assert 0 == server.http.get("/health").json()["memory"]["weights_bytes"]


def test_an_idle_model_goes_while_another_one_streams(folders, tmp_path):
    """B18: a model that is idle is unloaded; another one's stream goes on; blocks written before are found after."""
    models = {"a": {"path": str(folders["a"]), "idle": 0.3}, "b": folders["b"]}
    with several(models, tmp_path) as server:
        cold, _ = answer(server, PROMPT, model="a")
        stream = Stream(server, "b")
        stream.wait_begun()
        assert settled(lambda: server.runtime._pool.peek("a") is None)
        before = len(stream.texts)
        assert (cold, len(PROMPT) - 1) == answer(server, PROMPT, model="a")
        assert settled(lambda: len(stream.texts) > before)
        assert stream.error is None
        assert not stream.finished
        stream.stop()


def test_what_was_cached_outlives_model_and_server(folders, tmp_path):
    """H1: blocks in RAM and on disk, each under its limit, survive an unload, a swap and a restart."""
    with several({"a": folders["a"], "b": folders["b"]}, tmp_path, hot=2**20) as server:
        cold, restored = answer(server, PROMPT, model="a")
        assert 0 == restored
        server.http.post("/v1/models/a/unload")
        answer(server, PROMPT, model="b")
        server.http.post("/v1/models/b/unload")
        assert (cold, len(PROMPT) - 1) == answer(server, PROMPT, model="a")
        cache = server.http.get("/health").json()["cache"]
        assert cache["hot"]["bytes"] <= cache["hot"]["budget_bytes"] == 2**20
        assert cache["cold"]["bytes"] <= cache["cold"]["budget_bytes"]
    with several({"a": folders["a"]}, tmp_path) as server:
        assert (cold, len(PROMPT) - 1) == answer(server, PROMPT, model="a")


def test_weights_that_were_replaced_are_noticed_at_reload(folders, tmp_path):
    """I1: other weights under the same name, loaded again without a restart, find nothing in either tier."""
    folder = shutil.copytree(folders["a"], tmp_path / "model")
    with several({"a": folder}, tmp_path / "cache") as server:
        first, _ = answer(server, PROMPT, model="a")
        server.http.post("/v1/models/a/unload")
        path = folder / "model.safetensors"
        content = bytearray(path.read_bytes())
        content[-4000:] = content[-8000:-4000]
        path.write_bytes(content)
        second, restored = answer(server, PROMPT, model="a")
        assert 0 == restored
        assert (second, len(PROMPT) - 1) == answer(server, PROMPT, model="a")
    with several({"a": folder}, tmp_path / "other") as server:
        assert second == answer(server, PROMPT, model="a")[0]
    assert first != second


@pytest.mark.parametrize("preload", [True, False])
def test_a_model_is_loaded_at_the_start_if_its_settings_say_so(folders, tmp_path, preload):
    """`preload` loads before any request; without it the first request does."""
    with several({"a": {"path": str(folders["a"]), "preload": preload}}, tmp_path) as server:
        if preload:
            assert settled(lambda: server.runtime.models()[0].loaded)
        else:
            time.sleep(0.2)
            assert not server.runtime.models()[0].loaded
