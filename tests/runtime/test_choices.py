"""`n` and `logprobs` over HTTP, with a real model and the official client."""

import math

import openai
import pytest

from omlx.stages.coalesce import CoalesceStage
from tests.serving import serving, settings_for

ASKED = [{"role": "user", "content": "Say something about stones and rivers. " * 6}]


@pytest.fixture(scope="module")
def server(model_folders, tmp_path_factory):
    with serving(settings_for(model_folders["llama"], tmp_path_factory.mktemp("choices"))) as running:
        yield running


@pytest.fixture(scope="module")
def client(server):
    with openai.OpenAI(api_key="unused", base_url=f"{server.url}/v1", max_retries=0) as made:
        yield made


def test_several_answers_to_one_prompt(server, client):
    """Each choice is drawn by itself, a seed repeats them all, and the prompt is computed once for all of them."""
    before = server.http.get("/health").json()["totals"]["tokens"].get("prefilled", 0)
    ask = {"model": "tiny", "messages": ASKED, "n": 3, "seed": 5, "temperature": 1.0, "max_tokens": 12}
    answer = client.chat.completions.create(**ask)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    texts = [choice.message.content for choice in answer.choices]
    assert len(set(texts)) == 3
    assert texts == [choice.message.content for choice in client.chat.completions.create(**ask).choices]
    usage = answer.usage
    assert 3 * 12 >= usage.completion_tokens > 12
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    # the prompt once, then its last token for each of the five other answers; a choice that looks while the first is
    # about to finish computes what is still missing, which is less than is worth waiting for
    computed = server.http.get("/health").json()["totals"]["tokens"]["prefilled"] - before
    allowed = 2 * CoalesceStage().min_shared_tokens
    assert allowed < usage.prompt_tokens
    assert 0 <= computed - (usage.prompt_tokens + 5) < allowed


def test_a_stream_of_several_answers_is_the_whole_answer(client):
    """The chunks of each choice, put together, are what comes without a stream; each ends, and the usage comes once."""
    ask = {"model": "tiny", "messages": ASKED, "n": 2, "seed": 9, "temperature": 1.0, "max_tokens": 8}
    whole = client.chat.completions.create(**ask)
    chunks = list(client.chat.completions.create(**ask, stream=True, stream_options={"include_usage": True}))
    texts, ends = ["", ""], []
    for chunk in chunks:
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
            ends += [choice.index] if choice.finish_reason else []
    assert texts == [choice.message.content for choice in whole.choices]
    assert sorted(ends) == [0, 1]
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == [
        whole.usage.completion_tokens
    ]


def test_logprobs_of_a_chat(client):
    """Each token comes with its bytes, its log probability and the likeliest; streamed they are the same."""
    ask = {"model": "tiny", "messages": ASKED, "temperature": 0, "max_tokens": 8}
    plain = client.chat.completions.create(**ask)
    ask |= {"logprobs": True, "top_logprobs": 4}
    choice = client.chat.completions.create(**ask).choices[0]
    assert choice.message.content == plain.choices[0].message.content
    assert plain.choices[0].logprobs is None
    tokens = choice.logprobs.content
    spelled = b"".join(bytes(token.bytes) for token in tokens)
    assert spelled.decode("utf-8", "replace").rstrip("\ufffd") == choice.message.content
    for token in tokens:
        assert [other.logprob for other in token.top_logprobs] == sorted(
            (other.logprob for other in token.top_logprobs), reverse=True
        )
        assert (token.bytes, token.logprob) == (token.top_logprobs[0].bytes, token.top_logprobs[0].logprob)
        assert sum(math.exp(other.logprob) for other in token.top_logprobs) <= 1 + 1e-6
    streamed = [
        token
        for chunk in client.chat.completions.create(**ask, stream=True)
        if chunk.choices and chunk.choices[0].logprobs
        for token in chunk.choices[0].logprobs.content
    ]
    assert [(t.token, round(t.logprob, 4)) for t in streamed] == [
        (t.token, round(t.logprob, 4)) for t in tokens
    ]


def test_logprobs_of_a_completion(client):
    """The older form: columns of tokens, numbers, likeliest and offsets."""
    answer = client.completions.create(
        model="tiny", prompt="stones ", temperature=0, max_tokens=6, logprobs=2
    )
    columns = answer.choices[0].logprobs
    assert 6 == len(columns.tokens) == len(columns.token_logprobs) == len(columns.text_offset)
    assert all(1 <= len(top) <= 2 for top in columns.top_logprobs)
    assert columns.text_offset[0] == 0
    assert columns.text_offset == sorted(columns.text_offset)


def test_a_client_that_leaves_ends_all_its_answers(server, client):
    """No choice goes on when the client is gone."""
    stream = client.chat.completions.create(
        model="tiny", messages=ASKED, n=3, max_tokens=4000, extra_body={"ignore_eos": True}, stream=True
    )
    next(iter(stream))
    stream.close()
    for _ in range(200):
        if not server.http.get("/health").json()["running"]:
            return
    pytest.fail("answers go on that nobody listens to")
