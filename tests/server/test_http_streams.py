"""Streams, silences and clients that leave, over a real socket."""

import asyncio
import http.client
import json
import threading

import openai
import pytest
from structlog.testing import capture_logs

from omlx.errors import BusyError, CancelledError, ModelLoadError
from omlx.pipeline.request import Request
from omlx.server.reply import Reply
from omlx.testing.backend import Pause, ScriptedBackend, answer
from omlx.text.chat import TextPrompt
from omlx.text.delta import Failed, Finished, ReasoningDelta, Started, TextDelta, ToolCallDelta, Usage

USAGE = Usage(prompt_tokens=9, cached_tokens=8, hot_tokens=8, prefilled_tokens=1, completion_tokens=4)
MESSAGES = [{"role": "user", "content": "hi"}]
TEXT = "ďábel 漢字 👩‍👩‍👧 é"
FOREVER = Pause(60)


def ask(served, **options):
    """Ask through the official client."""
    return served.openai.chat.completions.create(model="coder", messages=MESSAGES, **options)


def test_streamed_equals_not_streamed(serve):
    """The official client reads the same text and usage from a stream as from a whole answer."""
    served = serve(answer(*TEXT, usage=USAGE))
    whole = ask(served)
    chunks = list(ask(served, stream=True, stream_options={"include_usage": True}))
    deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
    assert TEXT == whole.choices[0].message.content == "".join(delta.content or "" for delta in deltas)
    assert len(deltas) == len(TEXT) + 2
    assert "\ufffd" not in TEXT
    assert whole.usage == chunks[-1].usage
    assert [chunk.usage is not None for chunk in chunks] == [False] * (len(chunks) - 1) + [True]
    assert "stop" == whole.choices[0].finish_reason == chunks[-2].choices[0].finish_reason


@pytest.mark.parametrize("path", ["chat/completions", "completions"])
@pytest.mark.parametrize("stream", [False, True])
def test_cached_tokens_on_every_path(serve, path, stream):
    """cached_tokens is the same number on every path, streamed or not."""
    served = serve(answer("well", usage=USAGE))
    body = {"messages": MESSAGES, "prompt": "hi", "stream": stream, "stream_options": {"include_usage": True}}
    text = served.http.post(f"/v1/{path}", json=body).text
    last = text.split("data: ")[-2] if stream else text
    assert json.loads(last)["usage"]["prompt_tokens_details"] == {"cached_tokens": 8}


@pytest.mark.parametrize("options", [None, {}, {"include_usage": False}])
def test_no_usage_unless_asked(served, options):
    """A stream carries no usage unless it was asked for."""
    assert "usage" not in served.chat(stream=True, stream_options=options).text


def test_parallel_calls_through_the_official_accumulator(serve):
    """Two calls reach the official client as two calls with ids, whose arguments parse."""
    calls = [ToolCallDelta(i, f"call_{i}", name, '{"path": "é"}') for i, name in enumerate(["ls", "cat"])]
    served = serve([Started(USAGE), ReasoningDelta("hm"), *calls, Finished("tool_calls", USAGE)])
    with served.openai.chat.completions.stream(model="coder", messages=MESSAGES) as stream:
        choice = stream.get_final_completion().choices[0]
    assert choice.finish_reason == "tool_calls"
    got = [
        (call.id, call.function.name, json.loads(call.function.arguments))
        for call in choice.message.tool_calls
    ]
    assert got == [("call_0", "ls", {"path": "é"}), ("call_1", "cat", {"path": "é"})]
    assert ask(served).choices[0].message.reasoning_content == "hm"


def test_keep_alive_in_every_silence(serve):
    """Headers and comments come before the backend says anything, and again in the middle of an answer."""
    heard = [threading.Event(), threading.Event()]

    def script(_):
        heard[0].wait(10)
        yield Started(USAGE)
        yield TextDelta("a")
        heard[1].wait(10)
        yield Finished("stop", USAGE)

    served = serve(script, keep_alive=0.05)
    comments, lines = iter(heard), []
    body = {"messages": MESSAGES, "stream": True}
    with served.http.stream("POST", "/v1/chat/completions", json=body) as response:
        assert response.headers["content-type"] == "text/event-stream; charset=utf-8"
        for line in response.iter_lines():
            if line == ": keep-alive" and (not lines or lines[-1].startswith("data")):
                next(comments).set()  # the backend goes on only because a comment came
            lines += [line] if line else []
    kinds = [line.split(":")[0] for line in lines]
    assert kinds[0] == ""
    assert "" in kinds[kinds.index("data") :]
    assert lines[-1] == "data: [DONE]"


def test_keep_alive_is_invisible_to_the_official_client(serve):
    """The official client sees no extra content in a stream with comments."""
    pauses = [step for text in "abc" for step in (Pause(0.05), TextDelta(text))]
    served = serve([Started(USAGE), *pauses, Finished("stop", USAGE)], keep_alive=0.01)
    chunks = list(ask(served, stream=True))
    assert [chunk.choices[0].delta.content for chunk in chunks] == [None, "a", "b", "c", None]


def test_late_failure_raises_in_the_official_client(serve):
    """A failure after the headers raises in the official client, after what came before it."""
    served = serve([Started(USAGE), TextDelta("a"), Failed(ModelLoadError("the disk is gone"))])
    stream = ask(served, stream=True)
    assert [next(stream).choices[0].delta.content for _ in range(2)] == [None, "a"]
    with pytest.raises(openai.APIError, match="the disk is gone") as caught:
        next(stream)
    assert caught.value.body["type"] == "server_error"


def test_late_failure_without_a_stream(serve):
    """The same failure without a stream is a status and a body."""
    served = serve([Started(USAGE), TextDelta("a"), Failed(ModelLoadError("the disk is gone"))])
    response = served.chat()
    assert (response.status_code, response.json()["error"]["message"]) == (500, "the disk is gone")


@pytest.mark.parametrize("last", [Finished("cancelled", USAGE), Failed(CancelledError("stopped"))])
def test_a_cut_answer_never_looks_complete(serve, last):
    """An answer that the backend gave up on is an error, streamed or not."""
    served = serve([Started(USAGE), TextDelta("a"), last])
    assert served.chat().status_code == 503
    events = served.chat(stream=True).text.split("\n\n")
    assert "overloaded_error" in events[-3]
    assert 'finish_reason":"' not in "".join(events)


def test_a_rendering_bug_ends_the_stream_with_an_error(serve):
    """A bug after the headers is an error event, its traceback is logged, and the request is given up."""
    served = serve([Started(USAGE), TextDelta(object()), FOREVER])
    with capture_logs() as logs:
        events = served.chat(stream=True).text.split("\n\n")
    assert "internal error" in events[1]
    assert events[2:] == ["data: [DONE]", ""]
    assert any(entry.get("exc_info") for entry in logs)
    assert served.backend.tickets[0].cancelled.wait(5)


@pytest.mark.parametrize("script", [[FOREVER], [Started(USAGE), FOREVER], [*answer("a", "b")[:2], FOREVER]])
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_ends_its_request(serve, script, stream):
    """A client that goes away in the queue, in prefill or in an answer ends its request; others go on."""
    served = serve(lambda request: script if request.max_tokens == 1 else answer("well"))
    connection = http.client.HTTPConnection(*served.server.url.removeprefix("http://").split(":"))
    body = json.dumps({"messages": MESSAGES, "stream": stream, "max_tokens": 1})
    connection.request("POST", "/v1/chat/completions", body)
    served.until(lambda: served.backend.tickets)
    connection.close()
    assert served.backend.tickets[0].cancelled.wait(5)
    assert ask(served).choices[0].message.content == "well"
    assert not served.backend.tickets[1].cancelled.is_set()


def test_a_client_that_leaves_after_three_chunks(serve):
    """A stream closed in the middle ends its request."""

    def script(_):
        yield Started(USAGE)
        while True:
            yield TextDelta("a")
            yield Pause(0.01)

    served = serve(script)
    with ask(served, stream=True) as stream:
        for _ in range(3):
            next(stream)
    assert served.backend.tickets[0].cancelled.wait(5)


def test_a_finished_request_is_not_cancelled(served):
    """A request that ended by itself is not given up afterwards."""
    served.chat()
    served.chat(stream=True)
    assert [ticket.cancelled.is_set() for ticket in served.backend.tickets] == [False, False]


def test_deltas_after_the_end_of_the_loop_are_dropped():
    """A backend that speaks after the server is gone hears no exception."""
    sinks = []

    class Recorder(ScriptedBackend):
        def submit(self, request, sink):
            sinks.append(sink)
            return super().submit(request, sink)

    async def listen():
        Reply(Recorder(["m"]), [Request(id="r", model="m", prompt=TextPrompt(""))])

    asyncio.run(listen())
    sinks[0](Started(USAGE))


def test_a_closed_reply_keeps_nothing():
    """What a backend says after the client left is not kept."""

    async def listen():
        backend = ScriptedBackend(["m"], answer("a", "b"))
        reply = Reply(backend, [Request(id="r", model="m", prompt=TextPrompt(""))])
        await reply.take(5)
        reply.close()
        backend.tickets[0].thread.join()
        await asyncio.sleep(0)
        return await reply.take(0.01)

    assert asyncio.run(listen()) is None


def test_busy_while_queued(serve):
    """A request refused shortly after it was queued still gets its status on a stream."""
    served = serve([Pause(0.1), Failed(BusyError("full"))])
    assert served.chat(stream=True).status_code == 503
