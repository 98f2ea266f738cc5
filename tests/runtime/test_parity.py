"""The cache never changes an answer: what is restored answers as what is computed, over HTTP."""

import random
import threading

import pytest

from tests.serving import cached, serving, settings_for

WORDS = (
    *("the", "agent", "reads", "a", "file", "and", "answers", "with", "a", "tool"),
    *("call", "about", "paris", "today", "in", "one", "sentence"),
)


def prose(seed: int, words: int) -> str:
    """Return seeded words."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def conversation(seed: int) -> list[dict]:
    """Return a chat with a long system message and one question."""
    return [{"role": "system", "content": prose(seed, 220)}, {"role": "user", "content": prose(seed + 1, 30)}]


def text(answer: dict) -> str:
    """Return the visible text of a chat completion."""
    return answer["choices"][0]["message"]["content"]


@pytest.fixture
def plain(model_folder, tmp_path):
    """A server without any cache: the truth."""
    with serving(settings_for(model_folder, tmp_path / "none", pipeline="no_cache")) as server:
        yield server


def test_a_repeated_prompt_computes_one_token_and_answers_the_same(model_folder, tmp_path, plain):
    """Sent twice, a prompt is restored but for its last token, and the text is the cold one's."""
    with serving(settings_for(model_folder, tmp_path / "cache")) as server:
        cold = server.chat(conversation(1), max_tokens=32)
        warm = server.chat(conversation(1), max_tokens=32)
    assert text(plain.chat(conversation(1), max_tokens=32)) == text(cold) == text(warm)
    assert 0 == cached(cold)
    assert warm["usage"]["prompt_tokens"] - 1 == cached(warm)


def test_a_restart_changes_neither_answer_nor_reuse(model_folder, tmp_path, plain):
    """After a restart the same prompt is restored from disk as far as it was before, with the same text."""
    settings = settings_for(model_folder, tmp_path / "cache")
    with serving(settings) as server:
        server.chat(conversation(2), max_tokens=32)
    with serving(settings) as server:
        again = server.chat(conversation(2), max_tokens=32)
    assert text(plain.chat(conversation(2), max_tokens=32)) == text(again)
    assert again["usage"]["prompt_tokens"] - 1 == again["usage"]["omlx"]["cold_tokens"]


def test_the_next_turn_reuses_prompt_and_answer(model_folder, tmp_path, plain):
    """A conversation that goes on is restored up to where the template renders something new."""
    turn = conversation(3)
    with serving(settings_for(model_folder, tmp_path / "cache")) as server:
        first = server.chat(turn, max_tokens=24)
        turn = [
            *turn,
            {"role": "assistant", "content": text(first)},
            {"role": "user", "content": prose(9, 12)},
        ]
        second = server.chat(turn, max_tokens=24)
    assert text(plain.chat(turn, max_tokens=24)) == text(second)
    assert cached(second) >= first["usage"]["prompt_tokens"] - 1


@pytest.mark.parametrize("place", [0.1, 0.5, 0.9])
def test_an_edit_reuses_what_stands_before_it(model_folder, tmp_path, plain, place):
    """One changed word leaves everything before it reusable, and the answer is that of the edited prompt."""
    words = prose(4, 300).split()
    edited = [*words]
    edited[int(len(words) * place)] = "tokyo"
    with serving(settings_for(model_folder, tmp_path / "cache")) as server:
        whole = server.complete(" ".join(words), max_tokens=16)
        part = server.complete(" ".join(edited), max_tokens=16)
    assert plain.complete(" ".join(edited), max_tokens=16)["choices"][0]["text"] == part["choices"][0]["text"]
    share = cached(part) / whole["usage"]["prompt_tokens"]
    assert place - 0.05 <= share <= place + 0.05


def test_streamed_equals_not_streamed(model_folder, tmp_path):
    """The same request gives the same text and the same counts, streamed or not."""
    with serving(settings_for(model_folder, tmp_path / "cache")) as server:
        server.chat(conversation(5))
        whole = server.chat(conversation(5), max_tokens=20)
        body = {"messages": conversation(5), "temperature": 0, "max_tokens": 20, "stream": True}
        body["stream_options"] = {"include_usage": True}
        lines = server.http.post("/v1/chat/completions", json=body).text.splitlines()
    import json

    chunks = [json.loads(line[6:]) for line in lines if line.startswith("data: {")]
    streamed = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
    assert text(whole) == streamed
    assert cached(whole) == chunks[-1]["usage"]["prompt_tokens_details"]["cached_tokens"]


def test_concurrent_equals_alone(model_folder, tmp_path, plain):
    """Six requests at once, some with shared prefixes, each get the text they get alone."""
    prompts = [conversation(20 + i // 2) for i in range(6)]
    expected = [text(plain.chat(prompt, max_tokens=24)) for prompt in prompts]
    answers: dict[int, str] = {}
    with serving(settings_for(model_folder, tmp_path / "cache")) as server:

        def ask(number: int) -> None:
            answers[number] = text(server.chat(prompts[number], max_tokens=24))

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(6)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert expected == [answers[number] for number in range(6)]


def test_two_requests_with_one_prefix_compute_it_once(model_folder, tmp_path):
    """Sent at the same time, the second waits for the first and restores what it computed."""
    prompt = conversation(30)
    prompt[0]["content"] = prose(31, 1500)
    answers: list[dict] = []
    with serving(settings_for(model_folder, tmp_path / "cache")) as server:
        server.chat(conversation(99))
        threads = [
            threading.Thread(target=lambda: answers.append(server.chat(prompt, max_tokens=4)))
            for _ in range(3)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    prefilled = sorted(answer["usage"]["omlx"]["prefilled_tokens"] for answer in answers)
    assert 3 == len(answers)
    assert [1, 1] == prefilled[:2]


def test_a_client_that_leaves_keeps_what_was_computed(model_folder, tmp_path):
    """A request given up during prefill leaves its finished chunks for the retry."""
    import httpx

    long = prose(40, 2500)
    with serving(settings_for(model_folder, tmp_path / "cache")) as server:
        server.complete("warm up")
        with pytest.raises(httpx.ReadTimeout):
            server.http.post("/v1/completions", json={"prompt": long, "max_tokens": 4}, timeout=0.25)
        retry = server.complete(long, max_tokens=4)
    assert cached(retry) >= 512
    assert cached(retry) < retry["usage"]["prompt_tokens"] - 1


def test_a_pipeline_without_cache_stages_keeps_nothing(model_folder, tmp_path):
    """The `no_cache` pipeline makes no file and reuses nothing."""
    with serving(settings_for(model_folder, tmp_path / "cache", pipeline="no_cache")) as server:
        server.chat(conversation(6))
        assert 0 == cached(server.chat(conversation(6)))
    assert not (tmp_path / "cache").exists()
