"""What clients get when something is wrong."""

import threading

import httpx
import openai
import pytest
from structlog.testing import capture_logs

from omlx.errors import BusyError, ContextLengthError
from omlx.testing.backend import answer
from omlx.text.delta import Failed

CHAT, TEXT = "/v1/chat/completions", "/v1/completions"
HI = b'{"messages": [{"role": "user", "content": "hi"}], '
KEYS = {"message", "type", "param", "code"}

BAD_BODIES = [
    (CHAT, b"", None, "invalid_json"),
    (CHAT, b'{"messages": ', None, "invalid_json"),
    (CHAT, b'{"model": "\xff"}', None, "invalid_json"),
    (CHAT, b'{"x": ' + b"[" * 5000, None, "invalid_json"),
    (CHAT, b"[]", None, "invalid_value"),
    (CHAT, b"{}", "messages", "invalid_value"),
    (CHAT, b'{"messages": null}', "messages", "invalid_value"),
    (CHAT, b'{"messages": []}', "messages", "invalid_value"),
    (CHAT, b'{"messages": "hi"}', "messages", "invalid_value"),
    (CHAT, b'{"messages": [{"content": "hi"}]}', "messages[0].role", "invalid_value"),
    (CHAT, b'{"messages": [{"role": "banana", "content": "hi"}]}', "messages[0].role", "invalid_value"),
    (CHAT, b'{"messages": [{"role": "user", "content": 5}]}', "messages[0].content", "invalid_value"),
    (CHAT, b'{"messages": [{"role": "user", "content": ["hi"]}]}', "messages[0].content[0]", "invalid_value"),
    (CHAT, HI + b'"max_tokens": "many"}', "max_tokens", "invalid_value"),
    (CHAT, HI + b'"max_completion_tokens": 0}', "max_completion_tokens", "invalid_value"),
    (CHAT, HI + b'"temperature": -1}', "temperature", "invalid_value"),
    (CHAT, HI + b'"top_p": 1.5}', "top_p", "invalid_value"),
    (CHAT, HI + b'"stop": [1]}', "stop[0]", "invalid_value"),
    (CHAT, HI + b'"logit_bias": {"a": 1}}', "logit_bias", "invalid_value"),
    (CHAT, HI + b'"stream": "yes"}', "stream", "invalid_value"),
    (CHAT, HI + b'"n": 0}', "n", "invalid_value"),
    (CHAT, HI + b'"n": 17}', "n", "invalid_value"),
    (CHAT, HI + b'"logprobs": 3}', "logprobs", "invalid_value"),
    (CHAT, HI + b'"logprobs": true, "top_logprobs": 21}', "top_logprobs", "invalid_value"),
    (CHAT, HI + b'"top_logprobs": 3}', "top_logprobs", "invalid_value"),
    (CHAT, HI + b'"tool_choice": "required"}', "tool_choice", "unsupported_value"),
    (CHAT, HI + b'"tool_choice": {"type": "function"}}', "tool_choice", "unsupported_value"),
    (CHAT, HI + b'"response_format": {"type": "json_schema"}}', "response_format", "unsupported_value"),
    (CHAT, HI + b'"response_format": {"type": "xyz"}}', "response_format", "unsupported_value"),
    (CHAT, HI + b'"modalities": ["text", "audio"]}', "modalities", "unsupported_value"),
    (CHAT, HI + b'"tools": [{"type": "custom"}]}', "tools[0]", "unsupported_value"),
    (CHAT, HI + b'"tools": [{"function": {}}]}', "tools[0].function.name", "invalid_value"),
    (TEXT, b"{}", "prompt", "invalid_value"),
    (TEXT, b'{"prompt": null}', "prompt", "invalid_value"),
    (TEXT, b'{"prompt": []}', "prompt", "invalid_value"),
    (TEXT, b'{"prompt": [[]]}', "prompt", "invalid_value"),
    (TEXT, b'{"prompt": ["a", "b"]}', "prompt", "invalid_value"),
    (TEXT, b'{"prompt": [[1], [2]]}', "prompt", "invalid_value"),
    (TEXT, b'{"prompt": [1, "b"]}', "prompt", "invalid_value"),
    (TEXT, b'{"prompt": [-1]}', "prompt[0]", "invalid_value"),
    (TEXT, b'{"prompt": "a", "echo": true}', "echo", "unsupported_value"),
    (TEXT, b'{"prompt": "a", "best_of": 2}', "best_of", "unsupported_value"),
    (TEXT, b'{"prompt": "a", "logprobs": -1}', "logprobs", "invalid_value"),
    (TEXT, b'{"prompt": "a", "suffix": "z"}', "suffix", "unsupported_value"),
]


def error_of(response: httpx.Response) -> dict:
    """Return the error of a response that has the shape of one."""
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == KEYS
    assert error["message"]
    return error


def test_bad_bodies_are_named(served):
    """Every bad body is a 400 that names the field at fault, and none reaches the backend."""
    for path, body, param, code in BAD_BODIES:
        response = served.http.post(path, content=body)
        error = error_of(response)
        assert (response.status_code, error["type"]) == (400, "invalid_request_error"), body[:80]
        assert (error["param"], error["code"]) == (param, code), body[:80]
    assert served.backend.tickets == []


@pytest.mark.parametrize("kind", ["image_url", "input_audio", "file", "hologram"])
@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_foreign_parts_are_named(served, role, kind):
    """A part that is not text is refused by its place in the conversation, in every role."""
    content = [{"type": "text", "text": "see"}, {"type": kind}]
    response = served.chat(messages=[{"role": "user", "content": "hi"}, {"role": role, "content": content}])
    assert response.status_code == 400
    assert error_of(response)["param"] == "messages[1].content[1]"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("GET", "/metrics", 404, "not_found"),
        ("POST", "/chat/completions", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models", 405, "method_not_allowed"),
        ("POST", "/health", 405, "method_not_allowed"),
    ],
)
def test_wrong_addresses_are_json(served, method, path, status, code):
    """An unknown path is a 404 and a wrong method a 405, both with an error body."""
    response = served.http.request(method, path)
    assert (response.status_code, error_of(response)["code"]) == (status, code)


@pytest.mark.parametrize("path", [CHAT, TEXT])
def test_unknown_model(served, path):
    """An unknown model is a 404 that lists the known ones, on every path."""
    body = {"model": "gpt-9", "messages": [{"role": "user", "content": "hi"}], "prompt": "hi"}
    response = served.http.post(path, json=body)
    error = error_of(response)
    assert (response.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "org/model" in error["message"]


def test_large_bodies_are_refused(serve):
    """A body over the limit is a 413, whether its length was announced or not."""
    served = serve(max_body=1000)
    announced = served.http.post(CHAT, content=b"x" * 2000)
    chunked = served.http.post(CHAT, content=iter([b"x" * 900, b"x" * 900]))
    assert [error_of(response)["code"] for response in (announced, chunked)] == ["body_too_large"] * 2
    assert (announced.status_code, chunked.status_code) == (413, 413)


@pytest.mark.parametrize("stream", [False, True])
def test_busy(serve, stream):
    """A full queue is a 503 that says when to come back, streamed or not."""

    def refuse(_):
        raise BusyError("the queue is full")

    response = serve(refuse).chat(stream=stream)
    assert (response.status_code, error_of(response)["type"]) == (503, "overloaded_error")
    assert int(response.headers["retry-after"]) > 0


@pytest.mark.parametrize("stream", [False, True])
def test_failure_before_the_first_delta_has_its_status(serve, stream):
    """A prompt that does not fit is a 400 with the code clients compact on, also on a stream."""
    response = serve([Failed(ContextLengthError(5000, 4096))]).chat(stream=stream)
    error = error_of(response)
    assert response.status_code == 400
    assert (error["code"], error["type"]) == ("context_length_exceeded", "invalid_request_error")
    assert "5000" in error["message"]
    assert "4096" in error["message"]


@pytest.mark.parametrize("stream", [False, True])
def test_a_bug_is_a_500_with_its_traceback_logged(serve, stream):
    """A bug is a 500 that tells the client nothing of it, and the log everything; the server lives on."""
    scripts = iter([ValueError("secret"), answer("well")])

    def script(_):
        step = next(scripts)
        if isinstance(step, Exception):
            raise step
        return step

    served = serve(script)
    with capture_logs() as logs:
        response = served.chat(stream=stream)
    assert response.status_code == 500
    assert "secret" not in response.text
    assert error_of(response)["type"] == "server_error"
    assert [str(entry["exc_info"]) for entry in logs if "exc_info" in entry] == ["secret"]
    assert served.chat().status_code == 200


def test_the_official_client_raises_its_own_errors(served):
    """The official client turns statuses and bodies into its exceptions, with code and param."""
    messages = [{"role": "user", "content": "hi"}]
    with pytest.raises(openai.NotFoundError) as unknown:
        served.openai.chat.completions.create(model="gpt-9", messages=messages)
    with pytest.raises(openai.BadRequestError) as refused:
        served.openai.chat.completions.create(model="coder", messages=messages, n=0)
    assert (unknown.value.code, refused.value.param) == ("model_not_found", "n")


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 401),
        ({"authorization": "Bearer wrong"}, 401),
        ({"authorization": "Basic sésame"}, 401),
        ({"x-api-key": "sesam"}, 401),
        ({"authorization": "Bearer sésame"}, 200),
        ({"authorization": "bearer sésame"}, 200),
        ({"x-api-key": "sésame"}, 200),
        ({"x-api-key": "sésame", "authorization": "Bearer dummy"}, 200),
    ],
)
def test_key(serve, headers, status):
    """With a key set, requests pass with it, as a bearer token or as x-api-key, and get a 401 without."""
    served = serve(api_key="sésame")
    raw = {name: value.encode() for name, value in headers.items()}
    body = {"messages": [{"role": "user", "content": "hi"}]}
    answers = [
        served.http.post(CHAT, json=body, headers=raw),
        served.http.get("/v1/models", headers=raw),
        served.http.get("/v1/models/coder", headers=raw),
    ]
    assert [response.status_code for response in answers] == [status] * 3
    if status == 401:
        assert error_of(answers[0])["code"] == "invalid_api_key"


def test_health_without_the_key_names_nothing(serve):
    """Probes need no key, and learn no model names without it."""
    served = serve(api_key="sesame")
    closed = served.http.get("/health")
    opened = served.http.get("/health", headers={"x-api-key": "sesame"})
    assert (closed.status_code, closed.json()["models"]) == (200, [])
    assert [card["name"] for card in opened.json()["models"]] == ["org/model"]


def test_without_a_key_any_key_will_do(served):
    """With no key set, any Authorization is accepted."""
    assert served.http.get("/v1/models", headers={"authorization": "Bearer dummy"}).status_code == 200


def test_a_client_that_leaves_while_it_sends_its_body_is_no_bug(served):
    """A body cut off in the middle is forgotten without a traceback."""
    begun = threading.Event()

    def body():
        yield b'{"messages": '
        begun.set()
        raise OSError("unplugged")

    with capture_logs() as logs:
        with pytest.raises(OSError, match="unplugged"):
            served.http.post(CHAT, content=body())
        assert begun.is_set()
        assert served.chat().status_code == 200
    assert [entry for entry in logs if "exc_info" in entry] == []
