"""The words of both dialects, frame by frame."""

import msgspec
import pytest

from omlx.errors import BusyError
from omlx.server.chat.render import ChatDialect
from omlx.server.completions.render import CompletionDialect
from omlx.text.delta import (
    Failed,
    Finished,
    ReasoningDelta,
    Started,
    TextDelta,
    TokenLogprob,
    ToolCallDelta,
    Usage,
)

USAGE = Usage(
    prompt_tokens=9, cached_tokens=8, hot_tokens=6, cold_tokens=2, prefilled_tokens=1, completion_tokens=4
)
END = Finished("stop", USAGE, {"fetch": 0.25})
WIRE_USAGE = (
    '"usage":{"prompt_tokens":9,"completion_tokens":4,"total_tokens":13,"prompt_tokens_details":{"cached_tokens":8},'
    '"omlx":{"hot_tokens":6,"cold_tokens":2,"prefilled_tokens":1,"seconds":{"fetch":0.25}}}'
)
CALLS = (
    Started(USAGE),
    ToolCallDelta(0, "call_a", "ls", '{"path": "."}'),
    ToolCallDelta(1, "call_b", "cat", '{"path" "broken"'),
    Finished("tool_calls", USAGE),
)


def frames(dialect, *deltas) -> list[str]:
    """Return the events of a stream without what every event has."""
    ends = [delta for delta in deltas if isinstance(delta, Finished)]
    events = [frame for delta in deltas for frame in dialect.frames(delta)]
    text = b"".join([*events, *(dialect.closing(ends) if ends else ())]).decode()
    assert text.endswith("\n\n")
    return [event.removeprefix("data: ") for event in text.split("\n\n")[:-1]]


def choices(events: list[str]) -> list[str]:
    """Return the choices of chat events."""
    head = '{"id":"chatcmpl-1","object":"chat.completion.chunk","created":7,"model":"m","choices":'
    return [event.removeprefix(head).removesuffix("}") for event in events]


def chat(**options) -> ChatDialect:
    """Return the dialect of one chat request."""
    return ChatDialect("chatcmpl-1", "m", 7, **options)


def test_chat_stream():
    """A chat stream is the role, thoughts, text, the reason, the usage once, and the end mark."""
    said = (Started(USAGE), ReasoningDelta("hm"), TextDelta("ď漢👩‍👧"), TextDelta('"\n'), END)
    assert [
        '[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]',
        '[{"index":0,"delta":{"reasoning_content":"hm"},"finish_reason":null}]',
        '[{"index":0,"delta":{"content":"ď漢👩‍👧"},"finish_reason":null}]',
        '[{"index":0,"delta":{"content":"\\"\\n"},"finish_reason":null}]',
        '[{"index":0,"delta":{},"finish_reason":"stop"}]',
        f"[],{WIRE_USAGE}",
        "[DONE]",
    ] == choices(frames(chat(include_usage=True), *said))


def test_chat_stream_without_usage():
    """Without include_usage no chunk carries usage."""
    assert choices(frames(chat(), Started(USAGE), Finished("length", USAGE))) == [
        '[{"index":0,"delta":{"role":"assistant"},"finish_reason":null}]',
        '[{"index":0,"delta":{},"finish_reason":"length"}]',
        "[DONE]",
    ]


def test_chat_stream_of_calls():
    """Each call travels whole with its index, id and name; malformed arguments travel as they are."""
    events = choices(frames(chat(), *CALLS))
    assert events[1:] == [
        (
            '[{"index":0,"delta":{"tool_calls":[{"index":0,"id":"call_a","type":"function",'
            '"function":{"name":"ls","arguments":"{\\"path\\": \\".\\"}"}}]},"finish_reason":null}]'
        ),
        (
            '[{"index":0,"delta":{"tool_calls":[{"index":1,"id":"call_b","type":"function",'
            '"function":{"name":"cat","arguments":"{\\"path\\" \\"broken\\""}}]},"finish_reason":null}]'
        ),
        '[{"index":0,"delta":{},"finish_reason":"tool_calls"}]',
        "[DONE]",
    ]


def test_chat_whole():
    """A whole answer holds what the stream held; content is null only beside calls."""
    plain = chat().whole([(Started(USAGE), ReasoningDelta("h"), ReasoningDelta("m"), TextDelta("so"), END)])
    calls = chat().whole([CALLS])
    silent = chat().whole([(Started(USAGE), END)])
    said = plain.choices[0].message
    assert (said.reasoning_content, said.content, said.tool_calls) == ("hm", "so", None)
    called = calls.choices[0].message
    assert (called.content, [call.id for call in called.tool_calls]) == (None, ["call_a", "call_b"])
    assert calls.choices[0].finish_reason == "tool_calls"
    assert silent.choices[0].message.content == ""


def test_tool_choice_none_words_calls_as_text():
    """With tool_choice none a call is text, and the answer ends as text does, streamed or not."""
    dialect = chat(calls_as_text=True)
    whole = dialect.whole([CALLS]).choices[0]
    events = choices(frames(dialect, *CALLS))
    text = '{"name": "ls", "arguments": {"path": "."}}{"name": "cat", "arguments": {"path" "broken"}'
    assert (text, None, "stop") == (whole.message.content, whole.message.tool_calls, whole.finish_reason)
    assert events[-2] == '[{"index":0,"delta":{},"finish_reason":"stop"}]'
    assert "tool_calls" not in "".join(events)


def test_no_parallel_calls():
    """With parallel_tool_calls false only the first call is delivered, streamed or not."""
    dialect = chat(one_call=True)
    assert [call.id for call in dialect.whole([CALLS]).choices[0].message.tool_calls] == ["call_a"]
    assert "call_b" not in "".join(frames(dialect, *CALLS))


def test_completion_stream():
    """A plain stream is text, the reason, the usage once, and the end mark; thoughts are text."""
    dialect = CompletionDialect("cmpl-1", "m", 7, include_usage=True)
    head = '{"id":"cmpl-1","object":"text_completion","created":7,"model":"m","choices":'
    assert [
        head + '[{"index":0,"text":"hm","logprobs":null,"finish_reason":null}]}',
        head + '[{"index":0,"text":"ď漢","logprobs":null,"finish_reason":null}]}',
        head + '[{"index":0,"text":"","logprobs":null,"finish_reason":"stop"}]}',
        head + f"[],{WIRE_USAGE}}}",
        "[DONE]",
    ] == frames(dialect, Started(USAGE), ReasoningDelta("hm"), TextDelta("ď漢"), END)


def test_completion_whole():
    """A whole plain answer is the text of the stream."""
    body = CompletionDialect("cmpl-1", "m", 7).whole([(Started(USAGE), TextDelta("a"), TextDelta("b"), END)])
    assert (
        body.choices[0].text,
        body.choices[0].finish_reason,
        body.usage.prompt_tokens_details.cached_tokens,
    ) == ("ab", "stop", 8)


@pytest.mark.parametrize("dialect", [chat(), CompletionDialect("cmpl-1", "m", 7)])
def test_late_failure(dialect):
    """A failure within a stream is one error event of the usual shape, then the end mark."""
    error = '{"message":"full; wait","type":"overloaded_error","param":null,"code":null}'
    assert [f'{{"error":{error}}}', "[DONE]"] == frames(dialect, Failed(BusyError("full", hint="wait")))


#: An answer of three tokens: `a`, and a character of two bytes in two tokens, of which only the second shows text.
WEIGHED = (
    Started(USAGE),
    TextDelta("a", (TokenLogprob(b"a", -0.5, (TokenLogprob(b"a", -0.5), TokenLogprob(b"b", -1.5))),)),
    TextDelta("\u00e9", (TokenLogprob(b"\xc3", -0.25), TokenLogprob(b"\xa9", float("-inf")))),
    END,
)


def test_chat_logprobs():
    """A chat's log probabilities name text and bytes of each token, streamed as whole; -inf is a number in JSON."""
    events = choices(frames(chat(logprobs=True), *WEIGHED))
    first = (
        '{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":['
        '{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"b","logprob":-1.5,"bytes":[98]}]}],"refusal":null}'
    )
    assert events[1] == f'[{{"index":0,"delta":{{"content":"a"}},"finish_reason":null,"logprobs":{first}}}]'
    assert "logprobs" not in events[0] + events[3]
    whole = chat(logprobs=True).whole([WEIGHED]).choices[0].logprobs.content
    assert [(each.token, each.logprob, each.bytes) for each in whole] == [
        ("a", -0.5, (97,)),
        ("\ufffd", -0.25, (0xC3,)),
        ("\ufffd", -9999.0, (0xA9,)),
    ]


def test_completion_logprobs():
    """A plain answer's log probabilities stand in columns; offsets go on from chunk to chunk, in each choice alone."""
    dialect = CompletionDialect("cmpl-1", "m", 7, logprobs=True)
    chunks = [msgspec.json.decode(frame[6:]) for delta in WEIGHED[1:3] for frame in dialect.frames(delta)]
    assert [chunk["choices"][0]["logprobs"]["text_offset"] for chunk in chunks] == [[0], [1, 2]]
    other = [msgspec.json.decode(frame[6:]) for frame in dialect.frames(WEIGHED[1], 1)]
    assert (other[0]["choices"][0]["index"], other[0]["choices"][0]["logprobs"]["text_offset"]) == (1, [0])
    columns = CompletionDialect("cmpl-1", "m", 7, logprobs=True).whole([WEIGHED]).choices[0].logprobs
    assert (columns.tokens, columns.token_logprobs) == (("a", "\ufffd", "\ufffd"), (-0.5, -0.25, -9999.0))
    assert columns.top_logprobs == ({"a": -0.5, "b": -1.5}, {}, {})


@pytest.mark.parametrize("dialect", [chat(), CompletionDialect("cmpl-1", "m", 7)])
def test_several_choices(dialect):
    """Choices have their indices; the prompt counts once, the answers' tokens together."""
    other = (Started(USAGE), TextDelta("z"), Finished("length", USAGE))
    body = dialect.whole([(Started(USAGE), TextDelta("a"), END), other])
    assert [(each.index, each.finish_reason) for each in body.choices] == [(0, "stop"), (1, "length")]
    assert (body.usage.prompt_tokens, body.usage.completion_tokens, body.usage.total_tokens) == (9, 8, 17)
