"""Many sessions at once: none changes what another one reads."""

import contextlib
import gc
import random
from concurrent.futures import ThreadPoolExecutor

import omlx.models  # noqa: F401 - loads the fast BLAS, before MLX

# isort: split
import mlx.core as mx
import pytest

from omlx.engine.sequence import RunningSequence
from tests.trust.talk import BLOCK, answer, settled, small_server, statistics, tokens_of

SHARED = tokens_of(1, 4 * BLOCK)


def test_branches_that_run_at_once_answer_as_alone(folder, tmp_path):
    """A4: two requests that go on from one prefix, together and then alone, say what each says cold."""
    prompts = [[*SHARED, *tokens_of(seed, 20)] for seed in (2, 3)]
    colds = []
    for number, prompt in enumerate(prompts):
        with small_server(folder, tmp_path / f"cold{number}") as server:
            colds.append(answer(server, prompt, max_tokens=64)[0])
    with small_server(folder, tmp_path / "warm") as server, ThreadPoolExecutor(2) as pool:
        answer(server, [*SHARED, 9])
        for _ in range(3):
            together = list(pool.map(lambda prompt: answer(server, prompt, max_tokens=64)[0], prompts))
            assert colds == together
        assert (colds[0], len(prompts[0]) - 1) == answer(server, prompts[0], max_tokens=64)


def test_what_is_held_does_not_grow_with_the_number_of_requests(folder, tmp_path):
    """A4: once the tier in RAM is full, more requests hold no more memory, and no block stays pinned."""
    held = []
    with small_server(folder, tmp_path, hot=400_000) as server, without_collector():
        for number in range(24):
            answer(server, [*SHARED, *tokens_of(number, 2 * BLOCK)], max_tokens=2)
            assert settled(lambda: not running_sequences())
            assert server.runtime._store.flush(30)  # what waits for the disk is held, too
            held.append(mx.get_active_memory())
        assert 0 == statistics(server)["hot"]["pinned_blocks"]
    assert max(held[16:]) <= max(held[8:16]) + 100_000


def test_a_request_that_is_over_holds_no_device_memory(folder, tmp_path):
    """A4: finished, given up or refused, a request lets go of its sequence at once, before any collection."""
    with small_server(folder, tmp_path, window_tokens=2000) as server, without_collector():
        answer(server, SHARED)
        body = {"prompt": SHARED, "ignore_eos": True, "stream": True}
        with server.http.stream("POST", "/v1/completions", json=body) as reply:
            next(reply.iter_lines())
        assert 400 == server.http.post("/v1/completions", json={"prompt": [9] * 2000}).status_code
        assert settled(lambda: server.runtime.health().running == 0 and not running_sequences())


@contextlib.contextmanager
def without_collector():
    """Keep the collector of cycles from running."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def running_sequences() -> list:
    """Return the sequences that something still refers to."""
    return [each for each in gc.get_objects() if isinstance(each, RunningSequence)]


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_5"])
def test_no_session_answers_with_the_content_of_another(folder_of, tmp_path, family):
    """A5: twenty sessions of which two fit in RAM, resumed by four workers in any order, keep their own codes."""
    folder, filler = folder_of(family), tokens_of(5, 6 * BLOCK)
    first = [[*tokens_of(100 + number, 8), *filler] for number in range(20)]
    asked = [[*prompt, *tokens_of(6, 5)] for prompt in first]
    with small_server(folder, tmp_path / "cold") as server:
        colds = [answer(server, prompt, max_tokens=12)[0] for prompt in asked]
    assert len(set(colds)) >= 8
    order = random.Random(0)
    with small_server(folder, tmp_path / "warm", hot=2 * 250_000) as server, ThreadPoolExecutor(4) as pool:
        for prompt in first:
            answer(server, prompt, max_tokens=1)
        for _ in range(2):
            numbers = order.sample(range(20), 20)
            found = dict(
                zip(
                    numbers, pool.map(lambda n: answer(server, asked[n], max_tokens=12), numbers), strict=True
                )
            )
            assert colds == [found[number][0] for number in range(20)]
            assert min(cached for _, cached in found.values()) >= 6 * BLOCK
        hot = statistics(server)["hot"]
        assert hot["evicted_records"] > 0
        assert statistics(server)["cold"]["read_records"] > 0
