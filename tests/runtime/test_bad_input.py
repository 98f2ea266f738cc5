"""Bad input is refused with the right status and a JSON error, before anything is computed."""

import pytest

from tests.serving import serving, settings_for

CHAT = "/v1/chat/completions"


@pytest.fixture(scope="module")
def server(model_folders, tmp_path_factory):
    with serving(
        settings_for(model_folders["llama"], tmp_path_factory.mktemp("bad"), window_tokens=128)
    ) as running:
        running.complete("warm up")
        yield running


@pytest.mark.parametrize(
    ("path", "content", "status", "code", "param"),
    [
        (CHAT, b"{", 400, "invalid_json", None),
        (CHAT, b"[]", 400, "invalid_value", None),
        (
            CHAT,
            b'{"messages": [{"role": "user", "content": "hi"}], "model": "nope"}',
            404,
            "model_not_found",
            "model",
        ),
        (CHAT, b'{"messages": []}', 400, "invalid_value", "messages"),
        (CHAT, b"{}", 400, "invalid_value", "messages"),
        (
            CHAT,
            b'{"messages": [{"role": "user", "content": 7}]}',
            400,
            "invalid_value",
            "messages[0].content",
        ),
        (
            CHAT,
            b'{"messages": [{"role": "user", "content": "hi"}], "temperature": "hot"}',
            400,
            "invalid_value",
            "temperature",
        ),
        ("/v1/completions", b'{"prompt": ""}', 400, None, None),
        ("/v1/completions", b'{"prompt": [5, 512]}', 400, None, "prompt"),
        ("/v1/completions", b'{"prompt": [-1]}', 400, "invalid_value", None),
        ("/v1/completions", b'{"prompt": [99999999999]}', 400, "invalid_value", None),
        ("/v1/nothing", b"{}", 404, "not_found", None),
    ],
)
def test_bad_input_is_named(server, path, content, status, code, param):
    """D16: every fault of the client is a JSON error with its status, its code and the field at fault."""
    response = server.http.post(path, content=content, headers={"content-type": "application/json"})
    assert status == response.status_code, response.text
    error = response.json()["error"]
    assert error["message"]
    assert code == error["code"]
    if param is not None:
        assert param == error["param"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_prompt_over_the_window_is_refused_with_both_numbers(server, stream):
    """D12, D13: a prompt that does not fit is a 400 that clients act on; nothing is cut off, nothing computed."""
    before = _computed(server)
    body = {"messages": [{"role": "user", "content": "word " * 500}], "stream": stream}
    response = server.http.post(CHAT, json=body)
    assert 400 == response.status_code
    error = response.json()["error"]
    assert "context_length_exceeded" == error["code"]
    assert "128" in error["message"]
    assert before == _computed(server)


def _computed(server) -> tuple[int, int]:
    """Return how many prompt tokens were computed and bytes stored since the start."""
    totals = server.http.get("/health").json()["totals"]
    return totals["tokens"].get("prefilled", 0), totals["nbytes"].get("written", 0)


def test_the_answer_is_bounded_by_the_window(server):
    """D7: without a limit an answer ends where the window does, and says `length`."""
    answer = server.post("/v1/completions", {"prompt": "the user asks", "ignore_eos": True, "temperature": 0})
    assert "length" == answer["choices"][0]["finish_reason"]
    assert 128 == answer["usage"]["total_tokens"]


def test_an_exact_multiple_of_the_block_is_answered_each_time(server):
    """A2: a prompt that is stored completely still computes its last token, and answers the same."""
    prompt = [40 + i % 60 for i in range(64)]
    answers = [server.complete(prompt) for _ in range(3)]
    assert 1 == len({answer["choices"][0]["text"] for answer in answers})
    assert [0, 63, 63] == [answer["usage"]["prompt_tokens_details"]["cached_tokens"] for answer in answers]
