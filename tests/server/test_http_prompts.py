"""From bodies to neutral requests: what means the same becomes the same."""

import msgspec
import pytest

from omlx.pipeline.request import Sampling
from omlx.server.body import decode_body
from omlx.server.chat.prompt import chat_prompt
from omlx.server.chat.schema import ChatBody
from omlx.server.completions.schema import CompletionBody, plain_prompt
from omlx.text.chat import ChatPrompt, Message, TextPrompt, TokenPrompt, ToolCall

CALL = {"id": "call_1", "type": "function", "function": {"name": "ls", "arguments": '{"path": "."}'}}


def prompt_of(*messages, **body):
    """Return the neutral prompt of a body as JSON would bring it."""
    raw = msgspec.json.encode({"messages": messages, **body})
    return chat_prompt(decode_body(raw, ChatBody))


@pytest.mark.parametrize("role", ["system", "user", "assistant", "tool"])
def test_content_as_text_and_as_parts(role):
    """The same text as a string, as one part and as several gives equal prompts, in every role."""
    parts = [
        {"type": "text", "text": "one "},
        {"type": "text", "text": "two", "cache_control": {"type": "x"}},
    ]
    forms = ["one two", [{"type": "text", "text": "one two"}], parts]
    expected = ChatPrompt((Message(role, "one two"),))
    assert [expected] * 3 == [prompt_of({"role": role, "content": form}) for form in forms]


@pytest.mark.parametrize("content", [{"content": None}, {}, {"content": ""}, {"content": []}])
def test_content_null_absent_and_empty(content):
    """A turn that only calls tools has the same prompt with null, absent, empty and no-part content."""
    said = prompt_of(
        {"role": "user", "content": "look"},
        {"role": "assistant", "tool_calls": [CALL], **content},
        {"role": "tool", "tool_call_id": "call_1", "content": "a.txt"},
    )
    expected = (
        Message("user", "look"),
        Message("assistant", tool_calls=(ToolCall("ls", {"path": "."}, "call_1"),)),
        Message("tool", "a.txt", tool_call_id="call_1"),
    )
    assert expected == said.messages


def test_developer_is_system():
    """A developer message is a system message, wherever it stands."""
    turns = [{"role": "user", "content": "hi"}, {"role": "developer", "content": "be brief"}]
    expected = (Message("user", "hi"), Message("system", "be brief"))
    assert expected == prompt_of(*turns).messages


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ('{"a": 1}', {"a": 1}),
        ('{"a":1}', {"a": 1}),
        ({"a": 1}, {"a": 1}),
        ("", {}),
        (" ", {}),
        ("{}", {}),
        (None, {}),
        ('{"a": ', '{"a": '),
        ('["a"]', '["a"]'),
    ],
)
def test_arguments(given, expected):
    """Tool arguments become the object they spell; text that spells none is kept as it is."""
    call = {"function": {"name": "ls", "arguments": given}}
    (message,) = prompt_of({"role": "assistant", "tool_calls": [call]}).messages
    assert expected == message.tool_calls[0].arguments


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"reasoning_content": "hm"}, "hm"),
        ({"reasoning": "hm"}, "hm"),
        ({"reasoning_content": None, "reasoning": ""}, None),
        ({}, None),
    ],
)
def test_reasoning(given, expected):
    """Thoughts are taken from either field that clients send them back in."""
    (message,) = prompt_of({"role": "assistant", "content": "so", **given}).messages
    assert expected == message.reasoning


def test_tools_keep_what_templates_read():
    """A tool keeps name, description and parameters in that order, with defaults for what was left out."""
    schema = {"type": "object", "properties": {"b": {}, "a": {}}}
    tools = [
        {
            "type": "function",
            "function": {"strict": True, "parameters": schema, "name": "ls", "description": "list"},
        },
        {"function": {"name": "goal", "parameters": None}},
    ]
    bare = {"name": "goal", "description": "", "parameters": {"type": "object", "properties": {}}}
    expected = (
        {"type": "function", "function": {"name": "ls", "description": "list", "parameters": schema}},
        {"type": "function", "function": bare},
    )
    got = prompt_of({"role": "user"}, tools=tools).tools
    assert repr(expected) == repr(got)


def test_tool_choice_none_leaves_the_prompt_alone():
    """`tool_choice: "none"` renders the same prompt, so the cached prefix still matches."""
    tools = [{"type": "function", "function": {"name": "ls"}}]
    auto, none = (prompt_of({"role": "user"}, tools=tools, tool_choice=choice) for choice in ("auto", "none"))
    assert auto == none


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {}),
        ({"chat_template_kwargs": {"enable_thinking": True}}, {"enable_thinking": True}),
        ({"reasoning_effort": "low"}, {"reasoning_effort": "low"}),
        ({"reasoning_effort": "none"}, {"reasoning_effort": "none", "enable_thinking": False}),
        (
            {"reasoning_effort": "low", "chat_template_kwargs": {"reasoning_effort": "high"}},
            {"reasoning_effort": "high"},
        ),
    ],
)
def test_template_options(given, expected):
    """Template options are the request's own, over what the reasoning effort stands for."""
    assert expected == prompt_of({"role": "user"}, **given).template_options


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("text", TextPrompt("text")),
        (["text"], TextPrompt("text")),
        ([1, 2], TokenPrompt((1, 2))),
        ([[1, 2]], TokenPrompt((1, 2))),
    ],
)
def test_plain_prompts(given, expected):
    """A plain prompt is a text or token ids, bare or in a list of one."""
    assert expected == plain_prompt(decode_body(msgspec.json.encode({"prompt": given}), CompletionBody))


@pytest.mark.parametrize(
    ("given", "limit"),
    [
        ({}, None),
        ({"max_tokens": None}, None),
        ({"max_tokens": -1}, None),
        ({"max_tokens": 9}, 9),
        ({"max_completion_tokens": 7}, 7),
        ({"max_completion_tokens": 7, "max_tokens": 9}, 7),
        ({"max_completion_tokens": None, "max_tokens": 9}, 9),
    ],
)
def test_max_tokens(served, given, limit):
    """The newer name of the limit wins; null, -1 and absent bound nothing."""
    assert served.chat(**given).status_code == 200
    assert limit == served.backend.tickets[-1].request.max_tokens


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, ()),
        ([], ()),
        ("", ()),
        ("end", ("end",)),
        (["a", "b", "c", "d", "e"], ("a", "b", "c", "d", "e")),
    ],
)
def test_stop(served, given, expected):
    """Stop strings come as null, as one string, or as a list of any length."""
    assert served.chat(stop=given).status_code == 200
    assert expected == served.backend.tickets[-1].request.stop


def test_sampling_says_only_what_was_said(served):
    """Values not given stay unsaid, so that the model's own settings decide; given ones arrive."""
    served.chat()
    unsaid = served.backend.tickets[-1].request.sampling
    served.chat(temperature=0, top_p=0.5, top_k=-1, seed=-3, logit_bias={"5": -100}, ignore_eos=True)
    said = served.backend.tickets[-1].request
    assert Sampling() == unsaid
    assert Sampling(temperature=0, top_p=0.5, top_k=0, seed=2**63 - 3, logit_bias={5: -100}) == said.sampling
    assert said.ignore_eos


def test_fields_that_clients_send_as_a_matter_of_course(served):
    """Fields that real clients send are never a 400, nor are unknown ones."""
    response = served.chat(
        n=1,
        user="u",
        metadata={"a": "b"},
        store=False,
        parallel_tool_calls=True,
        reasoning_effort="medium",
        tool_choice="auto",
        seed=1,
        ignore_eos=False,
        min_tokens=1,
        return_token_ids=True,
        cache_prompt=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True},
        response_format={"type": "text"},
        logprobs=False,
        top_logprobs=0,
        top_p=1,
        logit_bias=None,
        tools=[],
        from_the_future={"x": [1]},
    )
    assert response.status_code == 200


@pytest.mark.parametrize("name", ["coder", "org/model", "", None])
def test_model_names(served, name):
    """An alias, the full name, an empty and a null name reach the same model."""
    assert served.chat(model=name).json()["model"] == "org/model"
    assert served.backend.tickets[-1].request.model == "org/model"
