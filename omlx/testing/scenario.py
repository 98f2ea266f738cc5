"""The tests that a pipeline file carries: `[[test]]` tables, read as strictly as the rest of the file.

    [[test]]
    name = "a repeated prompt computes one token"

    [[test.step]]
    messages = [{ role = "user", content = "hello" }]
    answer = "hi"
    expect = { cached_tokens = 0, text = "hi" }

    [[test.step]]
    restart = true

They are run by `omlx.testing.rehearsal` with a fake model that has one token a byte.
"""

import re
from typing import Any, Literal

import msgspec

from omlx.config.decode import decode_table
from omlx.config.document import Document
from omlx.config.problem import FieldError, Problem
from omlx.config.settings import PositiveInt, Table
from omlx.types import RecordKind
from omlx.units import ByteSize, Duration

_BLOCK = re.compile(r"block ([1-9][0-9]*)")
#: Keys of which a step has exactly one: a request, or something that happens to the cache.
_REQUESTS = ("messages", "prompt", "file", "follow_up")
_EVENTS = ("restart", "evict", "corrupt", "wait")


class FakeModelTable(Table, frozen=True):
    """`[test.model]`: what the fake model is like.

    Options:
        layout: the kinds of its layers: full attention, sliding attention, recurrent.
        window: how far sliding attention looks back.
        context_tokens: the most tokens that prompt and answer may have together.
        cached: false for a model whose cache cannot be stored.
    """

    layout: tuple[RecordKind, ...] = ("kv",)
    window: PositiveInt = 64
    context_tokens: PositiveInt = 32_768
    cached: bool = True


class CallTable(Table, frozen=True):
    """A tool call of an assistant.

    Options:
        name: the tool.
        arguments: what it is called with.
        id: what its result names it by.
    """

    name: str
    arguments: dict[str, Any] = msgspec.field(default_factory=dict)
    id: str | None = None


class MessageTable(Table, frozen=True):
    """One message of a conversation.

    Options:
        role: who says it.
        content: its text.
        reasoning: what the assistant thought before it.
        tool_calls: what the assistant calls.
        tool_call_id: the call that this is the result of.
    """

    role: Literal["system", "user", "assistant", "tool"]
    content: str = ""
    reasoning: str | None = None
    tool_calls: tuple[CallTable, ...] = ()
    tool_call_id: str | None = None


class SegmentTable(Table, frozen=True):
    """A part of the prompt, with its length.

    Options:
        label: its name, as a trace shows it.
        tokens: its length.
    """

    label: str
    tokens: PositiveInt


class Expect(Table, frozen=True):
    """What must come of a request. What is left out may be anything.

    Options:
        prompt_tokens: the length of the prompt.
        cached_tokens: restored, of either tier; "all" is the whole prompt but its last token.
        hot_tokens: restored from RAM; "all" as above.
        cold_tokens: restored with the help of the disk; "all" as above.
        prefill_tokens: left to compute.
        segments: the parts of the prompt in order: labels, or tables of label and tokens.
        reused: labels of the parts that are restored whole.
        rewrites: names of the rules that changed something, in order.
        decision: what the plan says.
        written_blocks: stored of prompt and answer.
        text: the answer.
        finish: why it ended.
        error: words in the refusal; without this key, a refusal is a failure.
    """

    prompt_tokens: int | None = None
    cached_tokens: int | Literal["all"] | None = None
    hot_tokens: int | Literal["all"] | None = None
    cold_tokens: int | Literal["all"] | None = None
    prefill_tokens: int | None = None
    segments: tuple[str | SegmentTable, ...] | None = None
    reused: tuple[str, ...] | None = None
    rewrites: tuple[str, ...] | None = None
    decision: Literal["restore", "compute"] | None = None
    written_blocks: int | None = None
    text: str | None = None
    finish: Literal["stop", "length", "tool_calls"] | None = None
    error: str | None = None


class Step(Table, frozen=True):
    """One request, or one thing that happens to the cache.

    Options:
        messages: a request: a conversation.
        prompt: a request: plain text.
        file: a request: the body of one in a JSON file beside this file.
        follow_up: a request: the last conversation, its answer, and this message of the user.
        tools: the tools of `messages`, in the form of the OpenAI API.
        answer: what the model says to it.
        max_tokens: the longest answer.
        stop: texts that end the answer.
        expect: what must come of it.
        restart: the server stops and starts: RAM is empty, the disk is read.
        evict: "hot" or "cold": all blocks go from that tier.
        corrupt: "block 3": the file of the last request's third block is damaged, and RAM is emptied.
        wait: until all is on disk, then as long as this says.
    """

    messages: tuple[MessageTable, ...] = ()
    prompt: str | None = None
    file: str | None = None
    follow_up: str | None = None
    tools: tuple[dict[str, Any], ...] = ()
    answer: str | None = None
    max_tokens: PositiveInt = 256
    stop: tuple[str, ...] = ()
    expect: Expect = Expect()
    restart: bool = False
    evict: Literal["hot", "cold"] | None = None
    corrupt: str | None = None
    wait: Duration | None = None

    def __post_init__(self) -> None:
        """Refuse a step that does nothing, or two things."""
        given = [key for key in (*_REQUESTS, *_EVENTS) if getattr(self, key) not in (None, (), False)]
        if not given:
            raise ValueError("a step needs one of: " + ", ".join((*_REQUESTS, *_EVENTS)))
        if len(given) > 1:
            raise FieldError(
                given[1], f"a step does one thing, and this one has {given[0]!r}", "make two steps"
            )
        if given[0] in _EVENTS and self.expect != Expect():
            raise FieldError("expect", f"nothing comes of {given[0]!r}", "expect it of the next request")
        if self.corrupt is not None and not _BLOCK.fullmatch(self.corrupt):
            raise FieldError(
                "corrupt", f"expected a block by its number, got {self.corrupt!r}", 'write "block 3"'
            )

    @property
    def corrupt_block(self) -> int:
        """Return the number of the block that is to be damaged, counted from 1."""
        match = _BLOCK.fullmatch(self.corrupt or "")
        return int(match[1]) if match else 0


class PipelineTest(Table, frozen=True):
    """`[[test]]`: steps that are walked one after the other, with an empty cache at first.

    Options:
        name: what it shows.
        model: what the fake model is like.
        answer: what the model says; left out, letters that depend on every token before them.
        hot: the most RAM that blocks may take.
        cold: the most disk that blocks may take.
        step: what is done.
    """

    name: str
    step: tuple[Step, ...]
    model: FakeModelTable = FakeModelTable()
    answer: str | None = None
    hot: ByteSize = ByteSize(64 * 1024**2)
    cold: ByteSize = ByteSize(256 * 1024**2)

    def __post_init__(self) -> None:
        """Refuse a test that does nothing."""
        if not self.step:
            raise ValueError("a test needs at least one [[test.step]]")


class _Tests(Table, frozen=True):
    test: tuple[PipelineTest, ...] = ()


def decode_tests(document: Document) -> tuple[tuple[PipelineTest, ...], list[Problem]]:
    """Return the tests of a pipeline file, or none and all problems of its `[[test]]` tables."""
    table = {"test": document.data["test"]} if "test" in document.data else {}
    found, problems = decode_table(document, (), table, _Tests)
    tests = found.test if found else ()
    return tests, problems + _missing_files(document, tests)


def _missing_files(document: Document, tests: tuple[PipelineTest, ...]) -> list[Problem]:
    return [
        document.value_problem(
            ("test", number, "step", index, "file"),
            f"file: {step.file!r} does not exist",
            "name one beside this file",
        )
        for number, test in enumerate(tests)
        for index, step in enumerate(test.step)
        if step.file is not None and not (document.path.parent / step.file).is_file()
    ]
