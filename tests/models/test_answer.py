"""Answers as they stream: what comes out must not depend on how the text was cut into tokens."""

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from omlx.models.answer import AnswerParsers
from omlx.text.delta import AnswerDelta, ReasoningDelta, TextDelta, ToolCallDelta
from omlx.text.tokenizer import FolderTokenizer
from omlx.types import as_tokens
from tests.tiny import QWEN3, make_sentencepiece, make_tokenizer

TOOLS = ({"type": "function", "function": {"name": "read", "parameters": {"type": "object"}}},)
CALL = '<tool_call>\n{"name": "read", "arguments": {"path": "naïve 漢字.txt", "n": [1, 2.5]}}\n</tool_call>'
EMPTY = as_tokens([])


class Model:
    """A tokenizer and the parsers of its folder."""

    def __init__(self, folder: Path, make: Callable[[Path], Path]) -> None:
        self.parsers = AnswerParsers(make(folder))
        self.tokenizer = FolderTokenizer(folder, self.parsers.tokenizer)

    def ids(self, text: str) -> list[int]:
        """Return the ids of a text."""
        return self.tokenizer.encode(text).tokens.tolist()

    def pieces(self, *texts: str) -> list[int]:
        """Return the ids of texts that were tokenized apart, as a model might put them out."""
        return [token for text in texts for token in self.ids(text)]

    def answer(self, ids: list[int], *, prompt: str = "", stop=(), tools=TOOLS, plain=False) -> "Answer":
        """Return what a parser makes of the ids, one at a time."""
        parser = self.parsers.new(as_tokens(self.ids(prompt)), stop, tools, plain=plain)
        deltas = [delta for token in ids for delta in parser.feed(token)]
        return Answer(deltas + parser.finish(), stopped=parser.stopped)


class Answer:
    """Deltas of an answer, joined."""

    def __init__(self, deltas: list[AnswerDelta], *, stopped: bool = False) -> None:
        self.deltas = deltas
        self.stopped = stopped
        self.text = "".join(d.text for d in deltas if isinstance(d, TextDelta))
        self.reasoning = "".join(d.text for d in deltas if isinstance(d, ReasoningDelta))
        self.calls = [(d.index, d.name, d.arguments) for d in deltas if isinstance(d, ToolCallDelta)]

    @property
    def whole(self) -> tuple:
        """Return all that a client sees but ids."""
        return self.text, self.reasoning, self.calls, self.stopped


@pytest.fixture(scope="module")
def model(tmp_path_factory) -> Model:
    """Return a model with reasoning and tool markers."""
    return Model(tmp_path_factory.mktemp("answer"), partial(make_tokenizer, template=QWEN3))


@given(st.text(alphabet="aé漢👩\u200d👧 \nď🇩🇪", max_size=12))
@settings(max_examples=60, deadline=None)
def test_text_survives(model, text) -> None:
    """The deltas of plain text join to the text, whatever characters its tokens split."""
    assert text == model.answer(model.ids(text), tools=()).text


def test_no_half_characters(model) -> None:
    """No delta holds a replacement character while a character is spread over tokens."""
    deltas = model.answer(model.ids("ďábel 漢字 👩‍👩‍👧 é"), tools=()).deltas
    assert not [delta for delta in deltas if "\ufffd" in delta.text]


def test_cut_inside_character(model) -> None:
    """An answer cut in the middle of a character ends with the character before."""
    assert "ok " == model.answer(model.ids("ok 👩")[:-1], tools=()).text


@given(st.lists(st.integers(0, 600), max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_tokens(model, ids) -> None:
    """No sequence of token ids raises, not even ids outside the vocabulary."""
    model.answer(ids)


def test_leading_space_is_kept(model) -> None:
    """A completion that continues a word boundary keeps its leading space."""
    assert " and so" == model.answer(model.ids(" and so"), tools=(), plain=True).text


@pytest.fixture(scope="module")
def sentences(tmp_path_factory) -> Model:
    """Return a model whose tokenizer has SentencePiece's structure."""
    return Model(tmp_path_factory.mktemp("sentences"), make_sentencepiece)


@given(st.lists(st.integers(0, 400), max_size=30))
@settings(max_examples=60, deadline=None)
def test_any_sentencepiece_tokens(sentences, ids) -> None:
    """The same holds for a SentencePiece tokenizer."""
    sentences.answer(ids)


def test_first_space_of_sentencepiece(sentences) -> None:
    """The space that SentencePiece puts before an answer is dropped in a chat and kept in a completion."""
    ids = sentences.ids(" the 漢 the")
    assert "the 漢 the" == sentences.answer(ids).text
    assert " the 漢 the" == sentences.answer(ids, plain=True).text


STOPS = [("beta gamma",), ("a be",), ("alpha",), ("delta", "beta"), ("👩‍👧",), ("\n\n",)]


@pytest.mark.parametrize("stop", STOPS)
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_stop_at_every_split(model, stop, data) -> None:
    """A stop string is found however its characters are cut; the text ends just before it."""
    text = "x alpha beta gamma delta 👩‍👩‍👧 ok\n\nmore"
    cuts = sorted(data.draw(st.sets(st.integers(0, len(text)), max_size=8)))
    pieces = [text[a:b] for a, b in zip([0, *cuts], [*cuts, len(text)], strict=True)]
    answer = model.answer(model.pieces(*pieces), stop=stop, tools=())
    ends = {text.find(s) + len(s): text.find(s) for s in stop}
    assert (text[: ends[min(ends)]], True) == (answer.text, answer.stopped)


def test_stop_not_met(model) -> None:
    """Text that only begins like a stop string is delivered at the end."""
    answer = model.answer(model.ids("alpha be"), stop=("beta",), tools=())
    assert ("alpha be", False) == (answer.text, answer.stopped)


def test_nothing_after_stop(model) -> None:
    """Tokens after a stop string give nothing, and finish gives nothing."""
    parser = model.parsers.new(EMPTY, ("b",))
    deltas = [delta for token in model.ids("ab") for delta in parser.feed(token)]
    assert ([TextDelta("a")], [], []) == (deltas, parser.feed(model.ids("c")[0]), parser.finish())


def test_stop_does_not_cut_calls_or_reasoning(model) -> None:
    """A stop string inside reasoning or a tool's arguments does not end the answer."""
    answer = model.answer(model.ids(f"<think>path</think>ok{CALL}"), stop=("path",))
    assert ("ok", "path", False, 1) == (answer.text, answer.reasoning, answer.stopped, len(answer.calls))


def test_end_tokens_are_not_text(model) -> None:
    """The token that ends an answer is never shown."""
    assert "hi" == model.answer(model.ids("hi<|im_end|>")).text


ANSWERS = [
    (f"Let me look.\n{CALL}", "Let me look.", "", 1),
    (f"{CALL}\n{CALL}", "", "", 2),
    (f"<think>\nhm <b>\n</think>\n\n{CALL}\n", "", "hm <b>", 1),
    ("<think>\n\n</think>\n\nHi  there\n", "Hi  there\n", "", 0),
    ("<think>one</think>A<think>two</think>B", "AB", "onetwo", 0),
    ("A ```</think>``` B", "A ```</think>``` B", "", 0),
    (f"<think>never closed {CALL} after", " after", "never closed", 1),
    ("<tool_call>\n{bad json}\n</tool_call> and on", "<tool_call>\n{bad json}\n</tool_call> and on", "", 0),
    ('<tool_call>\n{"name": "read"', '<tool_call>\n{"name": "read"', "", 0),
    ("<tool_call>[1, 2]</tool_call>", "<tool_call>[1, 2]</tool_call>", "", 0),
    ('<tool_call>{"name": "read", "arguments": NaN}</tool_call>', None, "", 0),
    ('<tool_call>{"name": "read", "arguments": "{\\"a\\": 1}"}</tool_call>', "", "", 1),
    ('<tool_call>{"name": "read"}', "", "", 1),
    ("a <b> <tool", "a <b> <tool", "", 0),
]


@pytest.mark.parametrize("case", ANSWERS, ids=range(len(ANSWERS)))
@given(data=st.data())
@settings(max_examples=15, deadline=None)
def test_blocks_at_every_split(model, case, data) -> None:
    """Text, reasoning and calls are the same for every cut of the answer, and none carries markers."""
    written, text, reasoning, num_calls = case
    cuts = sorted(data.draw(st.sets(st.integers(0, len(written)), max_size=10)))
    pieces = [written[a:b] for a, b in zip([0, *cuts], [*cuts, len(written)], strict=True)]
    answer = model.answer(model.pieces(*pieces))
    assert (written if text is None else text, reasoning, num_calls) == (
        answer.text,
        answer.reasoning,
        len(answer.calls),
    )


def test_reasoning_opened_by_prompt(model) -> None:
    """An answer whose prompt ends with an opened block starts as reasoning, also when it opens it again."""
    prompt = model.tokenizer.render(_ask({"enable_thinking": True}))
    for again in ("", "<think>\n"):
        answer = model.answer(model.ids(f"{again}hm\n</think>\n\nHi"), prompt=prompt)
        assert ("Hi", "hm") == (answer.text, answer.reasoning)


def test_marker_in_question_opens_nothing(model) -> None:
    """A user who writes a marker near the end of the prompt does not turn the answer into reasoning."""
    answer = model.answer(model.ids("Hi"), prompt="what is <think>?<|im_end|>\n<|im_start|>assistant\n")
    assert ("Hi", "") == (answer.text, answer.reasoning)


def test_without_tools_markers_are_text(model) -> None:
    """A request without tools gets tool markers as the text they are."""
    answer = model.answer(model.ids(f"see {CALL}"), tools=())
    assert (f"see {CALL}", []) == (answer.text, answer.calls)


def test_plain_has_no_blocks(model) -> None:
    """A raw completion is all text: no reasoning, no calls."""
    written = f"<think>a</think>{CALL}"
    assert (written, "", [], False) == model.answer(model.ids(written), plain=True).whole


def test_calls_have_unique_ids_and_indexes(model) -> None:
    """Calls are numbered from 0, each with an id of its own, and arguments that are JSON objects."""
    deltas = model.answer(model.ids(f"{CALL}\n{CALL}")).deltas
    assert [0, 1] == [call.index for call in deltas]
    assert 2 == len({call.id for call in deltas if call.id.startswith("call_")})
    assert {"path": "naïve 漢字.txt", "n": [1, 2.5]} == json.loads(deltas[0].arguments)


def test_parsers_do_not_share_state(model) -> None:
    """Two answers fed in turns give what each gives alone."""
    ids = model.ids(f"<think>é</think>漢字{CALL}")
    one, two = (model.parsers.new(EMPTY, (), TOOLS) for _ in range(2))
    turns = [(one.feed(token), two.feed(token)) for token in ids]
    alone = model.answer(ids).whole
    for side, parser in enumerate((one, two)):
        assert alone == Answer([d for turn in turns for d in turn[side]] + parser.finish()).whole


def test_text_flows_with_tools(model) -> None:
    """With tools in the request plain text still comes in many deltas, none held longer than a marker."""
    parser = model.parsers.new(EMPTY, (), TOOLS)
    written = "word " * 50
    shown = [len("".join(d.text for d in parser.feed(token))) for token in model.ids(written)]
    assert sum(shown) >= len(written) - len("</tool_call>")
    assert len([n for n in shown if n]) >= 50


def _ask(options: dict):
    from omlx.text.chat import ChatPrompt, Message

    return ChatPrompt((Message("user", "hi"),), template_options=options)
