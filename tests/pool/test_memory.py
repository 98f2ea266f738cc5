"""One budget of memory: models make way for each other, the hot tier for requests, and what cannot fit is refused."""

import random

import mlx.core as mx
import pytest

from omlx.errors import BusyError, TooLargeError
from omlx.runtime.memory import Account, model_refusal, request_refusal, spare_models
from omlx.runtime.turns import Resident
from omlx.units import ByteSize
from tests.pool.talk import Stream, all_at_once, ask, several, tokens_of
from tests.trust.talk import answer, settled

MIB = 1024**2


def memory(server) -> dict[str, int]:
    """Return the account that `/health` shows."""
    return server.http.get("/health").json()["memory"]


def weights(folder) -> int:
    """Return the bytes of a model's weights."""
    return sum(file.stat().st_size for file in folder.glob("*.safetensors"))


@pytest.mark.parametrize(
    ("need", "kind"), [(30, None), (50, None), (51, BusyError), (60, BusyError), (61, TooLargeError)]
)
def test_a_request_is_refused_for_now_or_for_good(need, kind):
    """F8: the hot tier does not count against a request; what else runs does for now, weights that stay for good."""
    account = Account(100, weights_bytes=40, sequences_bytes=8, hot_bytes=50, pending_bytes=2)
    refusal = request_refusal(need, account, 40)
    assert kind is (type(refusal) if refusal else None)
    assert refusal is None or "server.memory" in str(refusal)


def test_a_model_is_refused_that_can_never_fit():
    """A model larger than the budget leaves beside pinned ones is refused, with need, have and the key to change."""
    assert model_refusal("m", 60, 100, 40) is None
    assert (
        "'m' needs 61 B, and server.memory (100 B) leaves 60 B beside pinned models; raise server.memory"
        in str(model_refusal("m", 61, 100, 40))
    )


def test_models_that_nobody_uses_make_way_for_a_request():
    """Of models without leases the least recently used go, as many as are needed; pinned ones and its own stay."""
    residents = [
        Resident("own", 9, used_s=0.0),
        Resident("pinned", 9, used_s=1.0, pinned=True),
        Resident("used", 9, leases=1, used_s=2.0),
        Resident("late", 9, used_s=4.0),
        Resident("early", 9, used_s=3.0),
    ]
    assert ("early",) == spare_models(residents, "own", 9)
    assert ("early", "late") == spare_models(residents, "own", 10)


def test_models_that_do_not_fit_together_take_turns(folders, tmp_path, brake):
    """Requests for two models of which one fits are all served, with few loads."""
    brake.free.set()
    budget = ByteSize(weights(folders["b"]) * 2 - MIB // 8)
    with several({"b": folders["b"], "d": folders["b"]}, tmp_path, memory=budget, max_running=2) as server:
        found = all_at_once(24, lambda n: ask(server, "bd"[n % 2], n, max_tokens=8))
        assert [200] * 24 == [response.status_code for response in found]
        assert len(brake.reads) <= 4
        assert memory(server)["weights_bytes"] <= budget


def test_who_waits_for_a_switch_is_served_though_others_keep_coming(folders, tmp_path):
    """A request for another model is answered while requests for the loaded one never cease."""
    budget = ByteSize(weights(folders["b"]) * 2 - MIB // 8)
    with several({"b": folders["b"], "d": folders["b"]}, tmp_path, memory=budget, max_running=2) as server:
        assert 200 == ask(server, "b").status_code
        done = []

        def keep_on(who: int):
            if who == 0:
                done.append(ask(server, "d"))
                return done[0]
            while not done:
                response = ask(server, "b", who)
            return response

        assert [200] * 5 == [response.status_code for response in all_at_once(5, keep_on)]


def test_the_least_recently_used_makes_way_and_a_pinned_model_stays(folders, tmp_path):
    """Under a budget for two, a third model takes the place of the one not used for longest, never a pinned one's."""
    budget = ByteSize(sum(weights(folder) for folder in folders.values()) - weights(folders["a"]) + MIB // 4)
    models = {"a": {"path": str(folders["a"]), "pin": True}, "b": folders["b"], "c": folders["c"]}
    with several(models, tmp_path, memory=budget) as server:
        for name in "abc":
            assert 200 == ask(server, name).status_code
        assert {"a": True, "b": False, "c": True} == {
            card.name: card.loaded for card in server.runtime.models()
        }


def test_a_model_larger_than_the_memory_is_refused_at_once(folders, tmp_path):
    """A model that can never fit is a 400 that names what it needs, what there is, and the key."""
    with several({"b": folders["b"]}, tmp_path, memory=ByteSize(MIB)) as server:
        refused = ask(server, "b")
        assert (400, "not_enough_memory") == (refused.status_code, refused.json()["error"]["code"])
        assert "raise server.memory in models.toml" in refused.json()["error"]["message"]


def test_a_prompt_that_never_fits_is_refused_before_prefill(folders, tmp_path):
    """F8: a prompt whose keys and values cannot fit is a 400 before anything is computed; the next request works."""
    budget = ByteSize(weights(folders["a"]) + 2 * MIB)
    with several({"a": folders["a"]}, tmp_path, memory=budget) as server:
        refused = ask(server, "a", prompt=tokens_of(1, 4000))
        assert 400 == refused.status_code
        assert "server.memory" in refused.json()["error"]["message"]
        assert "retry-after" not in refused.headers
        assert settled(lambda: len(server.runtime.traces()) == 1)
        assert {"prefill"}.isdisjoint(span.stage for span in server.runtime.traces()[0].spans)
        assert 200 == ask(server, "a").status_code


def test_the_hot_tier_gives_way_and_then_others_have_to_wait(folders, tmp_path):
    """F8: blocks in RAM go before a request is refused; for what others hold it gets a 503, and runs afterwards."""
    budget = ByteSize(weights(folders["a"]) + 3 * MIB)
    with several({"a": folders["a"]}, tmp_path, memory=budget, hot=2 * MIB) as server:
        for seed in range(4):
            answer(server, tokens_of(seed, 400), model="a")
        full = memory(server)
        assert full["hot_bytes"] > MIB
        stream = Stream(server, "a", max_tokens=2600)
        stream.wait_begun()
        during = memory(server)
        assert during["sequences_bytes"] > MIB
        assert during["hot_bytes"] < full["hot_bytes"]
        assert during["budget_bytes"] >= sum(
            during[name] for name in ("weights_bytes", "sequences_bytes", "hot_bytes", "pending_bytes")
        )
        refused = ask(server, "a", prompt=tokens_of(9, 900), max_tokens=1000)
        assert 503 == refused.status_code
        assert int(refused.headers["retry-after"]) > 0
        assert "server.memory" in refused.json()["error"]["message"]
        stream.stop()
        assert settled(lambda: memory(server)["sequences_bytes"] == 0)
        assert 200 == ask(server, "a", prompt=tokens_of(9, 900), max_tokens=1000).status_code


def test_admission_is_bounded(folders, tmp_path, brake):
    """F9: of twenty requests at once two run, four wait, and fourteen are told to come back; all accepted complete."""
    with several({"a": folders["a"]}, tmp_path, max_running=2, max_queued=4) as server:

        def send(number: int):
            response = ask(server, "a", number)
            if response.status_code == 503:
                refused.append(number)
            if len(refused) == 14:
                brake.free.set()
            return response

        refused: list[int] = []
        found = all_at_once(20, send)
        assert {200: 6, 503: 14} == {
            status: sum(response.status_code == status for response in found) for status in (200, 503)
        }
        assert all(
            int(response.headers["retry-after"]) > 0 for response in found if response.status_code == 503
        )


def test_no_more_run_than_may(folders, tmp_path):
    """F9: with the model in memory, two of six run and four wait; in the order in which they came."""
    with several({"a": folders["a"]}, tmp_path, max_running=2, max_queued=4) as server:
        server.runtime.preload("a").result()
        streams = [Stream(server, "a", max_tokens=60) for _ in range(6)]
        assert settled(lambda: sum(server.runtime._gate.counts()) == 6)
        health = server.http.get("/health").json()
        assert (2, 4) == (health["running"], health["queued"])
        assert 503 == ask(server, "a").status_code
        for stream in streams:
            stream.join()
        assert all(stream.finished and stream.error is None for stream in streams)


@pytest.mark.parametrize("where", ["queue", "load", "prefill", "decode"])
def test_a_request_that_takes_too_long_is_given_up(folders, tmp_path, brake, where):
    """A request that is overdue ends with an error that says where it was, and what it held is free."""
    with several({"a": folders["a"]}, tmp_path, max_running=1, request_timeout=1.0) as server:
        if where != "load":
            brake.free.set()
            server.runtime.preload("a").result()
        busy = Stream(server, "a", max_tokens=30_000) if where == "queue" else None
        if busy:
            busy.wait_begun()
        prompt = tokens_of(2, 60_000 if where == "prefill" else 40)
        found = ask(server, "a", prompt=prompt, max_tokens=5000)
        message = found.json()["error"]["message"]
        assert 504 == found.status_code
        assert "was not answered within 1 s" in message
        assert where == "queue" or f"it was in {where}" in message
        if busy:
            busy.join()
            assert "was not answered within 1 s" in busy.error["message"]
        brake.free.set()
        assert settled(lambda: server.runtime._gate.counts() == (0, 0))
        assert 0 == memory(server)["sequences_bytes"]
        assert 200 == ask(server, "a").status_code


def test_memory_stays_where_it_is_over_many_requests(folders, tmp_path):
    """F8: over many requests with random shared prefixes the bytes and arrays that are held reach a level and stay."""
    rng, levels, base = random.Random(1), [], mx.get_active_memory()
    prefixes = [tokens_of(seed, 120) for seed in range(6)]
    with several({"a": folders["a"], "c": folders["c"]}, tmp_path, hot=MIB) as server:
        for number in range(100):
            prompt = rng.choice(prefixes)[: rng.randrange(40, 121)] + tokens_of(number, rng.randrange(1, 40))
            assert 200 == ask(server, rng.choice("ac"), prompt=prompt).status_code
            if number >= 40:
                levels.append(mx.get_active_memory())
        hot = server.runtime._store.stats().hot
        assert hot.bytes <= MIB
        assert max(levels[30:]) <= max(levels[:30]) * 1.05
        assert max(levels) - base < memory(server)["weights_bytes"] + 2 * MIB
