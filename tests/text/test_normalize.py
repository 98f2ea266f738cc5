"""Rules that keep a prefix stable: what they change, what they leave, what they report."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlx.config.problem import FieldError
from omlx.errors import ConfigError
from omlx.text.chat import ChatPrompt, Message, ToolCall
from omlx.text.normalize import NORMALIZE_RULES, Rewrite, Volatile, attribution, normalize

LINE = "x-anthropic-billing-header: cc_version=2.1.332.a1b; cc_entrypoint=cli; cch=0f3a9;"


def _chat(*messages: Message, tools=()) -> ChatPrompt:
    return ChatPrompt(messages, tools=tuple(tools))


def _tool(name: str, rng: random.Random | None = None) -> dict:
    """Return a tool; with `rng` its keys and `required` are shuffled."""
    shuffle = (lambda items: rng.sample(items, len(items))) if rng else (lambda items: items)
    properties = {
        "b": {"type": "string", "enum": ["z", "a"]},
        "a": {"oneOf": [{"type": "null"}, {"const": 1}]},
    }
    parameters = {
        "properties": dict(shuffle(list(properties.items()))),
        "required": shuffle(["a", "b"]),
        "type": "object",
    }
    function = {"name": name, "description": "d", "parameters": dict(shuffle(list(parameters.items())))}
    return dict(shuffle([("type", "function"), ("function", dict(shuffle(list(function.items()))))]))


@pytest.mark.parametrize("end", ["\n", "\n\n", "", " \n"])
def test_attribution_line_is_dropped(end) -> None:
    """A first system line with a hash that changes goes, and nothing after it does."""
    prompt, rewrites = attribution(_chat(Message("system", f"{LINE}{end}You are."), Message("user", "hi")))
    assert _chat(Message("system", "You are."), Message("user", "hi")) == prompt
    assert [Rewrite("attribution", "messages[0].content", f"dropped {LINE!r}")] == list(rewrites)


def test_attribution_block_is_dropped() -> None:
    """A system message that is nothing but the line goes altogether."""
    prompt, _ = attribution(_chat(Message("system", LINE), Message("system", "You are.")))
    assert _chat(Message("system", "You are.")) == prompt


@pytest.mark.parametrize(
    "message", [Message("user", LINE), Message("system", f"See {LINE}"), Message("assistant", LINE)]
)
def test_attribution_elsewhere_stays(message) -> None:
    """The same text in another role, or not at the beginning, is left alone."""
    prompt = _chat(message)
    assert (prompt, ()) == attribution(prompt)


def test_late_attribution_stays() -> None:
    """A system message in mid-conversation is not the head of the prompt."""
    prompt = _chat(Message("user", "hi"), Message("system", LINE))
    assert (prompt, ()) == attribution(prompt)


@given(st.integers(0, 2**32))
def test_tools_in_any_order_are_one_prompt(seed) -> None:
    """Tools in another order, with shuffled keys and shuffled `required`, become the same text."""
    rng = random.Random(seed)
    tools = [_tool(f"tool{n:02d}") for n in range(12)]
    shuffled = [_tool(f"tool{n:02d}", rng) for n in rng.sample(range(12), 12)]
    rules = ("tool_order", "schema_keys")
    one, two = (normalize(_chat(tools=t), rules)[0].tools for t in (tools, shuffled))
    assert repr(one) == repr(two)


def test_array_order_stays() -> None:
    """The order of `enum` and `oneOf` is the client's."""
    prompt, rewrites = normalize(_chat(tools=[_tool("t")]), ["schema_keys"])
    properties = prompt.tools[0]["function"]["parameters"]["properties"]
    assert (["a", "b"], ["z", "a"]) == (list(properties), properties["b"]["enum"])
    assert [{"type": "null"}, {"const": 1}] == properties["a"]["oneOf"]
    assert [Rewrite("schema_keys", "tools[0]", "sorted object keys")] == list(rewrites)


def test_required_in_data_stays() -> None:
    """A list called `required` inside a default value is data; a property of that name is a schema."""
    schema = {"properties": {"required": {"default": {"required": ["b", "a"]}, "type": "object"}}}
    tool = {"type": "function", "function": {"name": "t", "parameters": schema}}
    prompt = _chat(tools=[tool])
    assert (prompt, ()) == normalize(prompt, ["schema_keys"])


def test_results_follow_calls() -> None:
    """Results of parallel calls come in the order of the calls, whatever order the client sent."""
    calls = Message("assistant", tool_calls=(ToolCall("a", {}, id="1"), ToolCall("b", {}, id="2")))
    one, two = Message("tool", "one", tool_call_id="1"), Message("tool", "two", tool_call_id="2")
    end = Message("user", "next")
    prompt, rewrites = normalize(_chat(calls, two, one, end), ["result_order"])
    assert _chat(calls, one, two, end) == prompt
    assert ["messages[1]"] == [rewrite.where for rewrite in rewrites]


def test_volatile_text_is_replaced_in_system_only() -> None:
    """The user's pattern is replaced by a fixed text in system messages, and nowhere else."""
    rule = Volatile(pattern=r"\d\d:\d\d", replace=r"\clock")
    prompt, rewrites = rule(_chat(Message("system", "at 10:59"), Message("user", "at 10:59")))
    assert _chat(Message("system", r"at \clock"), Message("user", "at 10:59")) == prompt
    assert ["messages[0].content"] == [rewrite.where for rewrite in rewrites]
    assert (prompt, ()) == rule(prompt)


@pytest.mark.parametrize("begun", [(), (Message("assistant", "It is"),)], ids=["", "begun"])
def test_volatile_text_can_move_to_the_end(begun) -> None:
    """What is taken out of the system prompt is said behind the newest message, before an answer that was begun."""
    rule = Volatile(pattern=r"^Time: .*\n", move=True)
    ask = Message("user", "What time is it?")
    prompt, [rewrite] = rule(_chat(Message("system", "Be brief.\nTime: 10:59\nUse tools."), ask, *begun))
    moved = Message("system", "Time: 10:59")
    assert _chat(Message("system", "Be brief.\nUse tools."), ask, moved, *begun) == prompt
    assert rewrite.what.endswith("now said at the end")


@pytest.mark.parametrize(
    ("pattern", "words"),
    [("(", "no regular expression"), ("x*", "matches the empty text"), ("", "empty text")],
)
def test_a_pattern_that_cannot_work_is_refused(pattern, words) -> None:
    """What is no regular expression, or matches between any two letters, is refused as it is read."""
    with pytest.raises(FieldError, match=words):
        Volatile(pattern=pattern)


def test_unknown_rule() -> None:
    """An unknown rule is a ConfigError with the nearest name."""
    with pytest.raises(ConfigError, match="did you mean 'tool_order'"):
        normalize(_chat(), ["tools_order"])


@pytest.mark.parametrize("name", NORMALIZE_RULES.names())
def test_second_run_changes_nothing(name) -> None:
    """Every rule is done after one run, and reports nothing then."""
    rng = random.Random(1)
    calls = Message("assistant", tool_calls=(ToolCall("a", {}, id="1"), ToolCall("b", {}, id="2")))
    results = (Message("tool", "two", tool_call_id="2"), Message("tool", "one", tool_call_id="1"))
    prompt = _chat(Message("system", f"{LINE}\nx"), calls, *results, tools=[_tool("b", rng), _tool("a", rng)])
    once, rewrites = normalize(prompt, [name])
    assert rewrites
    assert (once, ()) == normalize(once, [name])


def test_no_rules_leave_the_prompt() -> None:
    """With every rule off the prompt is the very same object."""
    prompt = _chat(Message("system", LINE))
    assert normalize(prompt, ())[0] is prompt
