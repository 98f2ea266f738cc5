"""Each cause is told from two prompts that differ by it alone."""

from dataclasses import replace
from typing import Any

import msgspec
import pytest

from omlx.explain.causes import STORED, TABLE, likely_cause
from omlx.explain.clue import Clue
from omlx.explain.difference import compare, tool_at
from omlx.explain.session import follow, prepare
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services
from omlx.stages.normalize import NormalizeStage
from omlx.stages.segment import SegmentStage
from omlx.stages.tokenize import TokenizeStage
from omlx.testing import fake_model
from omlx.text.chat import ChatPrompt, Message, ToolCall
from omlx.text.tokenizer import FolderTokenizer
from omlx.types import RequestId
from tests.tiny import CHATML, QWEN3, make_tokenizer

RULES = (
    "You help with the code in this folder. Read before you write, and run the tests before you say done. "
    * 2
)
QUESTION = Message("user", "What does the parser do with an empty file, and which test says so?")
ANSWER = Message("assistant", "It returns an empty tree. The test of the reader says so, near its end.")


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Return a model whose template keeps the reasoning of the last turn, and under True one that renders tools."""
    folder = tmp_path_factory.mktemp("tokenizers")
    made = {tools: make_tokenizer(folder / str(tools), CHATML if tools else QWEN3) for tools in (True, False)}
    return {tools: replace(fake_model(), tokenizer=FolderTokenizer(path)) for tools, path in made.items()}


@pytest.fixture
def model(models):
    """Return the model whose template renders reasoning."""
    return models[False]


def tool(name: str, description: str = "Does what it says.", **properties: str) -> dict[str, Any]:
    """Return a tool with string properties."""
    schema = {key: {"type": "string", "description": words} for key, words in properties.items()}
    parameters = {"type": "object", "properties": schema or {"path": {"type": "string"}}}
    return {
        "type": "function",
        "function": {"name": name, "description": description, "parameters": parameters},
    }


def talk(
    *messages: Message, system: str = RULES, tools: tuple[dict[str, Any], ...] = (), **options: Any
) -> ChatPrompt:
    """Return a conversation with a system message."""
    return ChatPrompt((Message("system", system), *messages), tools, options)


def user(text: str) -> Message:
    """Return a user's message."""
    return Message("user", text)


def calls(arguments: dict[str, Any] | str) -> Message:
    """Return an assistant's message with one call."""
    return Message("assistant", tool_calls=(ToolCall("read", arguments),))


NOTE = user("<context>Two files are open: parser.py, and reader.py of the tests. One job runs.</context>")
RESULT = Message("tool", "def parse(text): ...")
MORE = (QUESTION, ANSWER, user("And with one that holds a single line?"))
OLD = (user("First of all: list the modules of this package, each with a line on what it is for."), ANSWER)
READ, WRITE, LIST = tool("read"), tool("write"), tool("list")

#: Cause -> what was stored, and what comes now. Nothing is normalized.
PAIRS: dict[str, tuple[ChatPrompt, ChatPrompt]] = {
    "attribution": tuple(
        talk(*MORE, system=f"x-anthropic-billing-header: cc_version=2.1.{build}; cch={build};\n{RULES}")
        for build in ("0a1b2", "f3e4d")
    ),
    "tool_order": (talk(QUESTION, tools=(LIST, READ, WRITE)), talk(QUESTION, tools=(LIST, WRITE, READ))),
    "key_order": (
        talk(QUESTION, tools=(tool("read", path="of the file", encoding="of the text"),)),
        talk(QUESTION, tools=(tool("read", encoding="of the text", path="of the file"),)),
    ),
    "tools_changed": (talk(QUESTION, tools=(LIST, READ)), talk(QUESTION, tools=(LIST, READ, WRITE))),
    "clock": tuple(talk(*MORE, system=f"{RULES} Today is Tue Dec 0{day} 2026. Be brief.") for day in (1, 2)),
    "tool_edited": (talk(QUESTION, tools=(READ,)), talk(QUESTION, tools=(tool("read", "Reads a file."),))),
    "rerendered": (
        talk(QUESTION, Message("assistant", "Let me look.  It is in the reader."), user("Go on.")),
        talk(QUESTION, Message("assistant", "Let me look. It is in the reader."), user("Go on.")),
    ),
    "arguments_order": (
        talk(QUESTION, calls({"path": "reader.py", "lines": "all of them"}), RESULT),
        talk(QUESTION, calls({"lines": "all of them", "path": "reader.py"}), RESULT),
    ),
    "reasoning": (
        talk(QUESTION, msgspec.structs.replace(ANSWER, reasoning="Where is that test?")),
        talk(QUESTION, ANSWER, user("Go on.")),
    ),
    "moved": (talk(QUESTION, NOTE), talk(QUESTION, ANSWER, user("Go on."), NOTE)),
    "shortened": (talk(*OLD, *MORE), talk(*MORE)),
    "another_prompt": (talk(*MORE), talk(*MORE, system="Name this conversation in four words.")),
    "another_question": (talk(QUESTION), talk(user("Which of the modules may import the store?"))),
    "system_changed": (talk(*MORE), talk(*MORE, system=RULES + "The folder is called omega.")),
    "answer_changed": (
        talk(QUESTION, ANSWER, user("Go on.")),
        talk(QUESTION, Message("assistant", "It returns nothing. No test says so."), user("Go on.")),
    ),
    "history_edited": (
        talk(user("One. What does the parser do?"), ANSWER, user("Go on.")),
        talk(user("One. What does the reader do?"), ANSWER, user("Go on.")),
    ),
}


#: What no small template does: open an answer otherwise than it writes one into history.
GENERATION = Clue("generation", None, (), "<|im_start|>", "assistant:", "assistant\nIt is", is_last=True)


def _state(model, prompt, *, rules=()):
    stages = (NormalizeStage(rules=rules), TokenizeStage(), SegmentStage())
    return prepare(stages, Request(id=RequestId("r"), model="m", prompt=prompt), model, Services(None))


@pytest.mark.parametrize("cause", [row.name for row in TABLE])
def test_each_cause_is_told_by_an_example(models, cause):
    """A prompt that leaves another one for a reason is given that reason."""
    if cause == "generation":
        assert cause == likely_cause(GENERATION).name
        return
    stored, now = (_state(models["tool" in cause or "key" in cause], prompt) for prompt in PAIRS[cause])
    found = compare(now, stored)
    assert cause == found.cause.name


MENDED = ["attribution", "tool_order", "key_order"]


@pytest.mark.parametrize("cause", MENDED)
def test_a_named_rule_mends_what_it_is_named_for(models, cause):
    """C1, C4: with the rule that the remedy names, the two prompts part no more."""
    [rule] = [rule for rule in NormalizeStage().rules if f"`{rule}`" in _row(cause).remedy]
    stored, now = (_state(models[True], prompt, rules=(rule,)) for prompt in PAIRS[cause])
    assert stored.tokens.tolist() == now.tokens.tolist()
    assert compare(now, stored) is None


def _row(cause):
    return next(row for row in TABLE if row.name == cause)


def test_every_cause_says_what_mends_it():
    """No cause is without words for what it is and what would mend it, and no name stands for two."""
    rows = [
        *((row.name, row.what, row.remedy) for row in TABLE),
        *((c.name, c.what, c.remedy) for c in STORED.values()),
    ]
    assert [] == [row for row in rows if not all(row)]
    assert len(rows) == len({name for name, _, _ in rows})


@pytest.mark.parametrize(
    ("before", "ours", "theirs"),
    [
        ("It is 2026-12-0", "1.", "2."),
        ("The time is ", "09:41:00 now", "10:02:13 now"),
        ("Today: ", "Tuesday, December 1, 2026", "Wednesday, December 2, 2026"),
        ("[Tue 2026-12-01 02:3", "5 UTC] hi", "7 UTC] hi"),
        ("started at 17646", "12345", "99999"),
        ("since 1 ", "December 2026", "January 2027"),
    ],
)
def test_c8_clocks_of_many_forms(before, ours, theirs):
    """C8: a date, a time of day or an epoch in the system prompt is called a clock."""
    assert "clock" == likely_cause(_clue(before, ours, theirs)).name


@pytest.mark.parametrize(
    ("before", "ours", "theirs"), [("version 1.", "2", "3"), ("you may", " go", " Marchand")]
)
def test_what_is_no_clock(before, ours, theirs):
    """Numbers and words that only look like a date are none."""
    assert "system_changed" == likely_cause(_clue(before, ours, theirs)).name


def _clue(before, ours, theirs):
    return Clue("system", None, (), before, ours, theirs, is_last=False)


def test_c2_a_marker_at_the_end_costs_itself(model):
    """C2: a growing row of notes at the end parts from nothing but the generation prompt."""
    notes = [Message("system", f"<budget>{left} tokens left</budget>") for left in (9000, 8000, 7000)]
    prompts = [talk(QUESTION, *notes[: count + 1]) for count in range(3)]
    session = follow(_state(model, prompt) for prompt in prompts)
    lost = [turn.difference.lost_tokens for turn in session.turns if turn.difference]
    assert all(each <= 8 for each in lost)
    assert session.shared_tokens == sum(turn.prompt_tokens for turn in session.turns[:-1]) - sum(lost)


def test_c3_a_late_system_message_parts_where_it_stands(model):
    """C3: a reminder in mid-conversation leaves everything before it shared."""
    first, second = (
        _state(model, talk(*MORE, *late)) for late in ((), (Message("system", "Mind the budget."),))
    )
    found = compare(second, first)
    assert found is None or "message 4" in found.segment or "generation" in found.segment


def test_a_session_sums_what_each_cause_cost(model):
    """The tokens of every turn that parts from an earlier one are summed by cause, the dearest first."""
    clocks = [
        talk(*MORE, *(user(f"{number}.") for number in range(turn)), system=f"{RULES} It is 09:4{turn} now.")
        for turn in range(4)
    ]
    session = follow(_state(model, prompt) for prompt in [*clocks, *PAIRS["another_prompt"][1:]])
    assert ["clock", "another_prompt"] == [cost.name for cost in session.costs]
    assert 3 == session.costs[0].turns
    assert sum(t.difference.lost_tokens for t in session.turns if t.difference) == sum(
        cost.lost_tokens for cost in session.costs
    )


def test_a_turn_is_told_against_the_nearest_earlier_one(model):
    """With two conversations by turns, each request is compared with its own."""
    one, other = (
        talk(*MORE, system=RULES + name) for name in ("This is the first.", "Here is the second one.")
    )
    more = [
        msgspec.structs.replace(each, messages=(*each.messages, ANSWER, user("Go on.")))
        for each in (one, other)
    ]
    session = follow(_state(model, prompt) for prompt in [one, other, *more])
    assert [None, 1, 1, 2] == [turn.against for turn in session.turns]


def test_the_tool_of_a_place():
    """The schema that holds a place is named, also before the first name and for names inside names."""
    text = '{"name": "read"} {"name": "read_all"} {"name": "list"}'
    names = ("read", "read_all", "list")
    places = [text.index(word) for word in ("read", "read_all", "list")]
    assert list(names) == [tool_at(names, text, place) for place in places]
    assert "read" == tool_at(names, text, 0)
    assert None is tool_at((), text, 3)
