"""Every dialect's body becomes the same neutral conversation."""

import json

import pytest

from omlx.errors import RequestError
from omlx.server.dialects import read_request
from omlx.text.chat import ChatPrompt, Message, TextPrompt, TokenPrompt, ToolCall
from tests.serving import trace

TOOL = {
    "type": "function",
    "function": {"name": "ls", "description": "lists", "parameters": {"type": "object"}},
}
EXPECTED = ChatPrompt(
    (
        Message("system", "Help."),
        Message("user", "look"),
        Message(
            "assistant", "Let me.", reasoning="Where?", tool_calls=(ToolCall("ls", {"path": "."}, id="1"),)
        ),
        Message("tool", "a.py", tool_call_id="1"),
        Message("user", "and?"),
    ),
    (TOOL,),
)

CHAT = {
    "messages": [
        {"role": "developer", "content": "Help."},
        {"role": "user", "content": [{"type": "text", "text": "look"}]},
        {
            "role": "assistant",
            "content": "Let me.",
            "reasoning_content": "Where?",
            "tool_calls": [{"id": "1", "function": {"name": "ls", "arguments": '{"path": "."}'}}],
        },
        {"role": "tool", "content": "a.py", "tool_call_id": "1"},
        {"role": "user", "content": "and?"},
    ],
    "tools": [TOOL],
}
RESPONSES = {
    "instructions": "Help.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "look"}]},
        {
            "type": "reasoning",
            "summary": [],
            "content": [{"type": "reasoning_text", "text": "Where?"}],
            "id": "x",
        },
        {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me."}],
            "id": "y",
        },
        {
            "type": "function_call",
            "call_id": "1",
            "name": "ls",
            "arguments": '{"path": "."}',
            "status": "completed",
        },
        {"type": "function_call_output", "call_id": "1", "output": "a.py"},
        {"type": "reasoning", "summary": []},
        {"type": "message", "role": "user", "content": "and?"},
    ],
    "tools": [
        {"type": "namespace", "name": "files", "tools": [{"type": "function", **TOOL["function"]}]},
        {"type": "web_search"},
    ],
}
MESSAGES = {
    "system": [{"type": "text", "text": "Help.", "cache_control": {"type": "ephemeral"}}],
    "messages": [
        {"role": "user", "content": "look"},
        {
            "role": "assistant",
            "content": [
                {"type": "thinking", "thinking": "Where?", "signature": "s"},
                {"type": "text", "text": "Let me."},
                {"type": "tool_use", "id": "1", "name": "ls", "input": {"path": "."}},
            ],
        },
        {
            "role": "user",
            "content": [
                {"tool_use_id": "1", "type": "tool_result", "content": [{"type": "text", "text": "a.py"}]},
                {"type": "text", "text": "and?"},
            ],
        },
    ],
    "tools": [
        {"name": "ls", "description": "lists", "input_schema": {"type": "object"}},
        {"name": "web_search"},
    ],
}


@pytest.mark.parametrize("body", [CHAT, RESPONSES, MESSAGES], ids=["chat", "responses", "messages"])
def test_one_conversation_in_every_dialect(body):
    """Roles, reasoning, calls, results and tools come out alike, and the shape tells the dialect."""
    assert EXPECTED == read_request(json.dumps(body).encode())[1].prompt


@pytest.mark.parametrize(
    ("body", "prompt"),
    [
        ({"prompt": "x"}, TextPrompt("x")),
        ({"prompt": [1, 2]}, TokenPrompt((1, 2))),
        ({"input": "x"}, ChatPrompt((Message("user", "x"),))),
    ],
)
def test_short_forms(body, prompt):
    """Plain prompts and a lone input are told by their shape."""
    assert prompt == read_request(json.dumps(body).encode())[1].prompt


def test_a_turn_of_many_items_is_one_message():
    """Calls in a row belong to one message; reasoning begins another."""
    call = {"type": "function_call", "name": "ls", "arguments": "{}"}
    thought = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm."}]}
    items = [{"role": "user", "content": "x"}, call, call, thought, thought, call]
    prompt = read_request(json.dumps({"input": items}).encode())[1].prompt
    assert [0, 2, 0, 1] == [len(message.tool_calls) for message in prompt.messages]
    assert [None, None, "Hm.", "Hm."] == [message.reasoning for message in prompt.messages]


def test_a_system_message_stays_where_it_is():
    """C3: a reminder in mid-conversation is not moved to the front."""
    body = {
        "system": "A.",
        "messages": [{"role": "user", "content": "x"}, {"role": "system", "content": "B."}],
    }
    assert ["A.", "x", "B."] == [
        m.content for m in read_request(json.dumps(body).encode())[1].prompt.messages
    ]


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/v1/responses", {"input": [{"role": "nobody"}]}, "input[0].role"),
        ("/v1/responses", {"input": [{"type": "item_reference"}]}, "input[0].type"),
        (
            "/v1/responses",
            {"input": [{"role": "user", "content": [{"type": "input_image"}]}]},
            "input[0].content[0]",
        ),
        ("/v1/messages", {"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        (
            "/v1/messages",
            {"messages": [{"role": "user", "content": [{"type": "image"}]}]},
            "messages[0].content[0]",
        ),
        ("/v1/messages", {"messages": []}, "messages"),
        ("/v2/chat", {"messages": []}, "path"),
    ],
)
def test_what_cannot_be_rendered_is_refused_by_name(path, body, param):
    """An unknown role, item, part or path is refused with the place at fault."""
    with pytest.raises(RequestError) as refused:
        read_request(json.dumps(body).encode(), path)
    assert param == refused.value.param


@pytest.mark.parametrize("path", ["/v1/messages?beta=true", "messages", "/messages/"])
def test_a_path_may_be_written_in_many_ways(path):
    """Query, slashes and prefix are no matter."""
    assert "/v1/messages" == read_request(json.dumps(MESSAGES).encode(), path)[0]


@pytest.mark.parametrize("agent", ["pi", "opencode", "openclaw", "claude", "codex", "aider"])
def test_real_agents_are_understood(agent):
    """Every request of a recorded session becomes a conversation that grows."""
    prompts = [read_request(json.dumps(line).encode())[1].prompt for line in trace(agent)]
    lengths = [len(prompt.messages) for prompt in prompts][
        1:
    ]  # one of them begins with a request for a title
    assert lengths == sorted(lengths)
    assert all(prompt.messages[0].role == "system" for prompt in prompts)
