"""Segments: every token in one, boundaries where messages end, whatever the template."""

import gc

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omlx.errors import RequestError
from omlx.text.chat import ChatPrompt, Message, TextPrompt, ToolCall
from omlx.text.segment import Segment
from omlx.text.segments import find_segments
from omlx.text.talks import TalkMemo
from omlx.text.tokenizer import FolderTokenizer
from tests.tiny import TEMPLATES, make_tokenizer

TOOLS = tuple(
    {"type": "function", "function": {"name": name, "description": "does", "parameters": {"type": "object"}}}
    for name in ("read", "write")
)
CALLS = (ToolCall("read", {"path": "a"}, id="1"), ToolCall("write", {"path": "b"}, id="2"))
TALK = (
    Message("system", " You are é.\n"),
    Message("user", "hi"),
    Message("assistant", tool_calls=CALLS),
    Message("tool", "one\n", tool_call_id="1"),
    Message("tool", "two", tool_call_id="2"),
    Message("assistant", "so", reasoning="hm", tool_calls=CALLS[:1]),
    Message("tool", "three", tool_call_id="1"),
    Message("assistant", "done"),
    Message("system", "note"),
    Message("user", "again"),
)


@pytest.fixture(scope="module")
def tokenizers(tmp_path_factory) -> dict[str, FolderTokenizer]:
    """Return a tokenizer with each template."""
    folder = tmp_path_factory.mktemp("segments")
    beginning = "{{ '<|endoftext|>' }}{% for m in messages %}"
    beginning += "{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}"
    # the end is worded by the beginning: how many messages there are before it
    counted = "{% for m in messages %}{{ '<|im_start|>' + '#' * loop.index + m.role + '\n' }}"
    counted += "{{ m.content + '<|im_end|>\n' }}{% endfor %}"
    templates = {**TEMPLATES, "beginning": beginning, "counted": counted}
    return {name: FolderTokenizer(make_tokenizer(folder / name, text)) for name, text in templates.items()}


def _find(tokenizer, prompt, text=None) -> list[tuple[Segment, str]]:
    """Return each segment with its text; check that they cover every token."""
    text = tokenizer.render(prompt) if text is None else text
    encoding = tokenizer.encode(text)
    segments = find_segments(tokenizer, prompt, text, encoding)
    edges = [0, *(segment.end for segment in segments)]
    assert edges[:-1] == [segment.start for segment in segments]
    assert len(encoding.tokens) == edges[-1]
    assert all(segment.start < segment.end for segment in segments)
    return [(s, tokenizer.decode(encoding.tokens[s.start : s.end])) for s in segments]


def _parts(tokenizer, prompt) -> list[tuple[str, str]]:
    return [(segment.role, text) for segment, text in _find(tokenizer, prompt)]


def test_chatml(tokenizers) -> None:
    """Tools, system, each message and the generation prompt of ChatML are told apart to the letter."""
    parts = _parts(tokenizers["chatml"], ChatPrompt(TALK, tools=TOOLS))
    call = '\n<tool_call>\n{"name": "%s", "arguments": {"path": "%s"}}\n</tool_call>'
    assert ("system", "<|im_start|>system\n You are é.\n") == parts[0]
    assert "tools" == parts[1][0]
    assert parts[1][1].endswith("</tool_call>.<|im_end|>\n")
    assert [
        ("user", "<|im_start|>user\nhi<|im_end|>\n"),
        ("assistant", f"<|im_start|>assistant{call % ('read', 'a')}{call % ('write', 'b')}<|im_end|>\n"),
        ("tool", "<|im_start|>user\n<tool_response>\none\n\n</tool_response>"),
        ("tool", "\n<tool_response>\ntwo\n</tool_response><|im_end|>\n"),
        ("assistant", f"<|im_start|>assistant\nso{call % ('read', 'a')}<|im_end|>\n"),
        ("tool", "<|im_start|>user\n<tool_response>\nthree\n</tool_response><|im_end|>\n"),
        ("assistant", "<|im_start|>assistant\ndone<|im_end|>\n"),
        ("system", "<|im_start|>system\nnote<|im_end|>\n"),
        ("user", "<|im_start|>user\nagain<|im_end|>\n"),
        ("generation", "<|im_start|>assistant\n"),
    ] == parts[2:]


def test_llama(tokenizers) -> None:
    """Tools before the system text, trimmed contents and one call a message are told apart."""
    talk = (*TALK[:3], *TALK[3:5])
    parts = _parts(tokenizers["llama3"], ChatPrompt(talk, tools=TOOLS))
    assert ["tools", "system", "user", "assistant", "tool", "tool", "generation"] == [
        role for role, _ in parts
    ]
    assert "You are é.<|eot|>" == parts[1][1]
    assert "<|head|>user<|/head|>\n\nhi<|eot|>" == parts[2][1]
    assert "<|head|>ipython<|/head|>\n\none\n<|eot|>" == parts[4][1]


def test_gemma(tokenizers) -> None:
    """A system text merged into the first user turn is a segment of its own."""
    assert [
        ("system", "<bos><start_of_turn>user\nhead"),
        ("user", "\n\nhi<end_of_turn>\n"),
        ("generation", "<start_of_turn>model\n"),
    ] == _parts(tokenizers["gemma"], ChatPrompt((Message("system", "head"), Message("user", "hi"))))


def test_empty_think_block_is_in_the_generation_prompt(tokenizers) -> None:
    """What a template adds at the end only is in the generation prompt, so a boundary stands before it."""
    prompt = ChatPrompt(TALK[:2], template_options={"enable_thinking": False})
    parts = _parts(tokenizers["qwen3"], prompt)
    assert ("generation", "<|im_start|>assistant\n<think>\n\n</think>\n\n") == parts[-1]


def test_dropped_reasoning(tokenizers) -> None:
    """Reasoning inside a content, dropped by the template, costs no boundary."""
    talk = (
        Message("user", "hi"),
        Message("assistant", "<think>\nhm\n</think>\n\nyes"),
        Message("user", "so"),
    )
    parts = _parts(tokenizers["qwen3"], ChatPrompt(talk))
    assert ["user", "assistant", "user", "generation"] == [role for role, _ in parts]
    assert "<|im_start|>assistant\nyes<|im_end|>\n" == parts[1][1]


def test_system_of_the_template(tokenizers) -> None:
    """A system text that the template adds by itself is a segment, shared by all conversations."""
    (first, text), *_ = _find(tokenizers["smol"], ChatPrompt(TALK[1:2]))
    assert ("system", "<|im_start|>system\nYou are a helper<|im_end|>\n") == (first.role, text)


def test_labels(tokenizers) -> None:
    """Labels name a message by its index in the conversation."""
    labels = [segment.label for segment, _ in _find(tokenizers["chatml"], ChatPrompt(TALK[:3]))]
    assert ["system", "message 1 (user)", "message 2 (assistant)", "generation prompt"] == labels


@pytest.mark.parametrize("name", TEMPLATES)
@pytest.mark.parametrize("count", range(2, len(TALK) + 1))
def test_longer_talk_keeps_boundaries(tokenizers, name, count) -> None:
    """A conversation that continues has every boundary of the shorter one, up to its last message."""
    tokenizer = tokenizers[name]
    talk = tuple(msgspec.structs.replace(message, reasoning=None) for message in TALK)
    short = _find(tokenizer, ChatPrompt(talk[:count], tools=TOOLS))
    long = _find(tokenizer, ChatPrompt(talk, tools=TOOLS))
    closed = [segment for segment, _ in short if segment.role != "generation"][:-1]
    assert [(s.role, s.start, s.end) for s in closed] == [(s.role, s.start, s.end) for s, _ in long][
        : len(closed)
    ]


ROLES = st.sampled_from(["system", "user", "assistant", "tool"])
TEXTS = st.text(alphabet="aé漢 \n<>|", max_size=6) | st.sampled_from(
    [
        "",
        "  ",
        "</think>x",
        "<think>a</think>b",
        "<|im_end|>\n",
        "<tool_response>x</tool_response>",
        "zqprobe000001E",
    ]
)


@pytest.mark.parametrize("name", TEMPLATES)
@given(talk=st.lists(st.builds(Message, ROLES, TEXTS), max_size=6), tools=st.booleans())
@settings(max_examples=40, deadline=None)
def test_any_conversation_is_covered(tokenizers, name, talk, tools) -> None:
    """Every token of any conversation is in exactly one segment, in every template."""
    prompt = ChatPrompt((Message("user", "q"), *talk), tools=TOOLS if tools else ())
    assert _find(tokenizers[name], prompt)


def test_template_that_reads_contents(tmp_path) -> None:
    """A template whose output hangs on a content's ends gives whole prompt and generation prompt."""
    template = (
        "{% for m in messages %}{{ '[' + m.role + (' short' if m.content|length < 9 else '') + ']' }}"
        "{{ m.content }}{% endfor %}{% if add_generation_prompt %}[answer]{% endif %}"
    )
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, template))
    parts = _parts(tokenizer, ChatPrompt((Message("user", "hi"),)))
    assert [("prompt", "[user short]hi"), ("generation", "[answer]")] == parts


def test_content_rendered_twice(tmp_path) -> None:
    """A template that shows a content twice gives one segment: no position is the message's."""
    template = "{% for m in messages %}{{ m.content + '/' + m.content + '/' }}{% endfor %}"
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, template))
    assert [("prompt", "hi/hi/")] == _parts(tokenizer, ChatPrompt((Message("user", "hi"),)))


def test_empty_last_message(tmp_path) -> None:
    """A last message that renders to nothing is no segment."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, template))
    talk = (Message("user", "hello"), Message("assistant"))
    assert [("user", "hello")] == _parts(tokenizer, ChatPrompt(talk))


def test_content_like_a_probe(tokenizers) -> None:
    """A content that looks like a probe is told apart all the same."""
    talk = (Message("user", "zqprobe000000E zqprobeq000000E"), Message("assistant", "hi"))
    roles = [role for role, _ in _parts(tokenizers["smol"], ChatPrompt(talk))]
    assert ["system", "user", "assistant", "generation"] == roles


def test_beginning_of_text_is_no_segment(tokenizers) -> None:
    """A lone first token belongs to the first message."""
    parts = _parts(tokenizers["beginning"], ChatPrompt(TALK[1:2]))
    assert [("user", "<|endoftext|><|im_start|>user\nhi<|im_end|>\n")] == parts


def test_boundary_inside_a_token(tmp_path) -> None:
    """A boundary that falls inside a token moves to the token's start."""
    template = "{% for m in messages %}{{ m.content }}{% endfor %}"
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, template))
    assert 3 == len(tokenizer.encode("xy the").tokens)
    parts = _parts(tokenizer, ChatPrompt((Message("user", "xy t"), Message("user", "he"))))
    assert [("user", "xy"), ("user", " the")] == parts


def test_text_prompt_is_one_segment(tokenizers) -> None:
    """A prompt that is no chat is one segment."""
    assert [("prompt", "hello")] == [
        (s.role, t) for s, t in _find(tokenizers["smol"], TextPrompt("hello"), "hello")
    ]


def test_cost_is_one_long_render(tokenizers) -> None:
    """The conversation itself is rendered once more, however many messages it has."""

    class Counting:
        def __init__(self, inner) -> None:
            self.inner = inner
            self.long = 0

        def render(self, prompt, *, add_generation_prompt=True) -> str:
            self.long += len(prompt.messages) > 3
            return self.inner.render(prompt, add_generation_prompt=add_generation_prompt)

    counting, prompt = Counting(tokenizers["chatml"]), ChatPrompt(TALK * 5, tools=TOOLS)
    text = tokenizers["chatml"].render(prompt)
    assert len(find_segments(counting, prompt, text, tokenizers["chatml"].encode(text))) > 40
    assert 1 == counting.long


def _taught(tokenizer, *prompts) -> TalkMemo:
    """Return a memo that has seen the prompts."""
    memo = TalkMemo()
    for prompt in prompts:
        _segments(tokenizer, prompt, memo)
    return memo


def _segments(tokenizer, prompt, memo=None):
    text = tokenizer.render(prompt)
    return find_segments(tokenizer, prompt, text, tokenizer.encode(text), memo)


LONGER = (
    *TALK, Message("assistant", "so it is"), Message("user", "more"), Message("assistant", tool_calls=CALLS[:1]),
    Message("tool", "", tool_call_id="1"), Message("tool", "stray"), Message("assistant", "", reasoning="well"),
    Message("user", "and now?"),
)  # fmt: skip


@pytest.mark.parametrize("name", [*TEMPLATES, "beginning", "counted"])
@pytest.mark.parametrize("tools", [(), TOOLS], ids=["plain", "tools"])
def test_what_is_remembered_changes_no_segment(tokenizers, name, tools) -> None:
    """A conversation that goes on from any message, or is edited at one, has the segments of one that is new."""
    tokenizer = tokenizers[name]
    whole = _prompt(tokenizer, LONGER, tools)
    if whole is None:
        pytest.skip("this template takes no such conversation")
    expected = _segments(tokenizer, whole)
    for length in range(1, len(LONGER) + 1):
        begun = _prompt(tokenizer, LONGER[:length], tools)
        edited = [*LONGER[: length - 1], Message("user", "else"), *LONGER[length:]]
        for known in (begun, _prompt(tokenizer, edited, tools)):
            if known is not None:
                assert expected == _segments(tokenizer, whole, _taught(tokenizer, known))
        if begun is not None:
            assert _segments(tokenizer, begun) == _segments(tokenizer, begun, _taught(tokenizer, whole))


def _prompt(tokenizer, messages, tools) -> ChatPrompt | None:
    prompt = ChatPrompt(tuple(messages), tools=tools)
    try:
        tokenizer.render(prompt)
    except RequestError:
        return None
    return prompt


class Counting:
    """A tokenizer that counts the messages it renders."""

    def __init__(self, inner) -> None:
        self.inner = inner
        self.messages = 0

    def render(self, prompt, *, add_generation_prompt=True) -> str:
        self.messages += len(prompt.messages)
        return self.inner.render(prompt, add_generation_prompt=add_generation_prompt)

    def encode(self, text, **options):
        return self.inner.encode(text, **options)


@pytest.mark.parametrize("name", ["chatml", "smol", "qwen3"])
def test_a_conversation_that_goes_on_is_rendered_in_part(tokenizers, name) -> None:
    """Of a long loop of tool calls, a further turn has only its last messages rendered with probes."""
    loop = (
        Message("assistant", "look", tool_calls=CALLS[:1]),
        Message("tool", "found", tool_call_id="1"),
    )
    begun = ChatPrompt((Message("system", "s"), Message("user", "go"), *loop * 30), tools=TOOLS)
    following = msgspec.structs.replace(begun, messages=(*begun.messages, *loop))
    counting = Counting(tokenizers[name])
    memo = _taught(counting, begun)
    counting.messages = 0
    _segments(counting, following, memo)
    assert counting.messages - len(following.messages) <= 6  # the text itself is rendered by who asks


def test_what_a_further_turn_rewords_is_found_anew(tokenizers) -> None:
    """Where a template drops the reasoning of the turn before, all before that turn is remembered."""
    begun = [Message("user", "go"), *[Message("assistant", "a"), Message("user", "b")] * 20]
    thought = [Message("assistant", "so", reasoning="hm", tool_calls=CALLS[:1]), Message("tool", "one")]
    prompt = ChatPrompt((*begun, *thought))
    following = ChatPrompt((*begun, *thought, Message("assistant", "done"), Message("user", "more")))
    counting = Counting(tokenizers["qwen3"])
    memo = _taught(counting, prompt)
    assert "hm" not in counting.render(following)
    counting.messages = 0
    found = _segments(counting, following, memo)
    assert counting.messages - len(following.messages) <= 8
    assert _segments(tokenizers["qwen3"], following) == found


def test_other_tools_or_options_are_another_conversation(tokenizers) -> None:
    """Nothing is remembered across a change of the tools or of the template's options."""
    begun = ChatPrompt(TALK, tools=TOOLS)
    for changed in ({"tools": TOOLS[:1]}, {"template_options": {"enable_thinking": False}}):
        other = msgspec.structs.replace(begun, **changed)
        tokenizer = tokenizers["chatml"]
        memo = _taught(tokenizer, begun)
        assert memo.head(tokenizer, begun, tokenizer.render(begun)) is not None
        assert memo.head(tokenizer, other, tokenizer.render(other)) is None


def test_memory_of_conversations_is_bounded(tokenizers) -> None:
    """The oldest conversations go first; one that goes on takes the place of its beginning; a gone tokenizer's go."""
    tokenizer, memo = Counting(tokenizers["chatml"]), TalkMemo(most_chars=1000)
    prompts = [ChatPrompt((Message("user", f"{number}" + "x" * 300),)) for number in range(3)]
    for prompt in prompts:
        _segments(tokenizer, prompt, memo)
    known = [memo.head(tokenizer, prompt, tokenizer.render(prompt)) is not None for prompt in prompts]
    assert [False, True, True] == known
    following = ChatPrompt((*prompts[2].messages, Message("assistant", "y"), Message("user", "z")))
    _segments(tokenizer, following, memo)
    assert memo.head(tokenizer, prompts[1], tokenizer.render(prompts[1])) is not None
    assert 2 == memo.num_talks()
    del tokenizer
    gc.collect()
    assert 0 == memo.num_talks()
