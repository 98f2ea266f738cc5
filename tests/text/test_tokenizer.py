"""The tokenizer of a folder: rendering, offsets, threads, errors."""

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from omlx.errors import ModelLoadError, RequestError
from omlx.text.chat import ChatPrompt, Message, ToolCall
from omlx.text.tokenizer import FolderTokenizer, as_spans, token_starts
from tests.tiny import TEMPLATES, make_sentencepiece, make_tokenizer

CALLS = (
    Message("user", "hi"),
    Message("assistant", tool_calls=(ToolCall("read", {"path": "ä.txt"}, id="x_1"),)),
    Message("tool", "found", tool_call_id="x_1"),
)


@pytest.fixture(scope="module")
def tokenizer(tmp_path_factory) -> FolderTokenizer:
    """Return a tokenizer with the ChatML template."""
    return FolderTokenizer(make_tokenizer(tmp_path_factory.mktemp("tokenizer")))


@given(st.text(alphabet="aé漢👩\u200d \n<|im_end|>the", max_size=20))
@settings(max_examples=100, deadline=None)
def test_starts_are_characters(tokenizer, text) -> None:
    """Tokens from the first one with a start decode to the text from that character on."""
    found = tokenizer.encode(text)
    assert text == tokenizer.decode(found.tokens)
    assert sorted(found.starts) == found.starts.tolist()
    for start in sorted(set(found.starts.tolist())):
        first = int(np.searchsorted(found.starts, start))
        assert text[start:] == tokenizer.decode(found.tokens[first:])


def test_starts_with_byte_fallback(tmp_path) -> None:
    """Tokens of several characters, and bytes of one character, start where their text starts."""
    found = FolderTokenizer(make_sentencepiece(tmp_path)).encode("x the漢 the")
    assert [0, 1, 5, 5, 5, 6] == found.starts.tolist()


def test_trimmed_offsets() -> None:
    """Space that offsets leave out belongs to the token after it."""
    assert [0, 3, 7] == token_starts(as_spans([(0, 3), (4, 7), (9, 12)])).tolist()


def test_token_across_characters() -> None:
    """A token that begins inside a character is cut together with the one that began it."""
    assert [0, 1, 1, 3] == token_starts(as_spans([(0, 1), (1, 3), (2, 3), (3, 4)])).tolist()


def test_no_tokens(tokenizer) -> None:
    """An empty text has no tokens."""
    found = tokenizer.encode("")
    assert (0, 0) == (len(found.tokens), len(found.starts))


@pytest.mark.parametrize("name", TEMPLATES)
def test_calls_reach_every_template(tmp_path, name) -> None:
    """A call and its result are in the rendered prompt of every template, and no `None` is."""
    text = FolderTokenizer(make_tokenizer(tmp_path, TEMPLATES[name])).render(ChatPrompt(CALLS))
    assert ["read", "ä.txt", "found"] == [word for word in ("read", "ä.txt", "found") if word in text]
    assert "None" not in text
    assert '"path": "ä.txt"' in text


def test_client_ids_never_reach_the_prompt(tmp_path) -> None:
    """Two conversations that differ in call ids only render to one text, with ids by position."""
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, TEMPLATES["text-arguments"]))
    other = (
        CALLS[0],
        Message("assistant", tool_calls=(ToolCall("read", {"path": "ä.txt"}, id="other"),)),
        Message("tool", "found", tool_call_id="other"),
    )
    text = tokenizer.render(ChatPrompt(CALLS))
    assert text == tokenizer.render(ChatPrompt(other))
    assert "[RESULT]call00001 found" in text


def test_late_system_message_is_append_only(tmp_path) -> None:
    """A system message in mid-conversation leaves all before it as it was, for every template."""
    before = (Message("system", "head"), Message("user", "one"), Message("assistant", "two"))
    late = (*before, Message("system", "note"), Message("user", "three"))
    for name, template in TEMPLATES.items():
        tokenizer = FolderTokenizer(make_tokenizer(tmp_path / name, template))
        start = tokenizer.render(ChatPrompt((*before, Message("user", "three"))), add_generation_prompt=False)
        start = start[: start.index("two") + 3]
        text = tokenizer.render(ChatPrompt(late), add_generation_prompt=False)
        assert text.startswith(start), name
        assert text.index("two") < text.index("note") < text.index("three"), name


def test_result_without_call(tmp_path) -> None:
    """A result whose call is not in the conversation is rendered by every template."""
    talk = (Message("user", "hi"), Message("tool", "found", tool_call_id="gone"))
    for name, template in TEMPLATES.items():
        tokenizer = FolderTokenizer(make_tokenizer(tmp_path / name, template))
        assert "found" in tokenizer.render(ChatPrompt(talk)), name


def test_refusal_names_what_happened(tmp_path) -> None:
    """A template's complaint is a RequestError that quotes it."""
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, TEMPLATES["gemma"]))
    with pytest.raises(RequestError, match="roles must alternate") as caught:
        tokenizer.render(ChatPrompt((Message("assistant", "first"),)))
    assert "messages" == caught.value.param


def test_python_error_in_template(tmp_path) -> None:
    """A template that fails on a value is a RequestError that names the message, never another exception."""
    template = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.name }}"
    template += (
        "{% for k, v in c.function.arguments.items() %}{{ k }}{{ v }}{% endfor %}{% endfor %}{% endfor %}"
    )
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, template))
    bad = Message("assistant", tool_calls=(ToolCall("read", "no json"),))
    with pytest.raises(RequestError) as caught:
        tokenizer.render(ChatPrompt((Message("user", "hi"), bad)))
    assert "messages[1].tool_calls[0].function.arguments" == caught.value.param


def test_base_model(tmp_path) -> None:
    """A model without chat template says so, and where to go instead."""
    with pytest.raises(RequestError, match="/v1/completions"):
        FolderTokenizer(make_tokenizer(tmp_path, None)).render(ChatPrompt(CALLS))


def test_template_options(tmp_path) -> None:
    """Template options reach the template; one that would replace it is refused."""
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, TEMPLATES["qwen3"]))
    off = ChatPrompt(CALLS[:1], template_options={"enable_thinking": False})
    assert tokenizer.render(off).endswith("<think>\n\n</think>\n\n")
    with pytest.raises(RequestError) as caught:
        tokenizer.render(ChatPrompt(CALLS[:1], template_options={"chat_template": "{{ 1 }}"}))
    assert "chat_template_kwargs" == caught.value.param


def test_threads(tokenizer) -> None:
    """Eight threads that encode, decode and render at once give what one gives."""

    def work(number: int) -> tuple[str, str]:
        text = tokenizer.render(ChatPrompt((Message("user", f"ask {number}"),)))
        return text, tokenizer.decode(tokenizer.encode(text).tokens)

    with ThreadPoolExecutor(8) as pool:
        assert all(text == back for text, back in pool.map(work, range(40)))


def test_missing_tokenizer(tmp_path) -> None:
    """A folder without tokenizer is a ModelLoadError that names it."""
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "llama"}))
    with pytest.raises(ModelLoadError, match=tmp_path.name):
        FolderTokenizer(tmp_path).encode("x")


def test_import_is_light() -> None:
    """Importing the text room imports neither transformers nor MLX nor a server."""
    code = (
        "import sys, omlx.text.tokenizer, omlx.text.segments, omlx.text.normalize, omlx.text.text_config;"
        "heavy = ('transformers', 'jinja2', 'tokenizers', 'mlx', 'mlx_lm', 'litestar');"
        "print([name for name in heavy if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "[]" == done.stdout.strip()


@pytest.mark.parametrize("name", TEMPLATES)
def test_tools_that_a_template_drops_are_never_silent(tmp_path, name) -> None:
    """A template that leaves tools out is known for it, and the log says so once, at the first request with tools."""
    tool = {"type": "function", "function": {"name": "read", "description": "d", "parameters": {}}}
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path, TEMPLATES[name]))
    with capture_logs() as logs:
        tokenizer.render(ChatPrompt((Message("user", "hi"),)))
        assert [] == logs
        texts = [tokenizer.render(ChatPrompt((Message("user", "hi"),), (tool,))) for _ in range(2)]
    drops = name in {"qwen3", "gemma", "smol", "text-arguments"}
    assert drops == tokenizer.drops_tools() == ("read" not in texts[0])
    assert [tmp_path.name] * drops == [log["model"] for log in logs]
