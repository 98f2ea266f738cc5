"""Each stage does its part, and touches only what it declares."""

from dataclasses import replace
from typing import Any

import pytest

from omlx.errors import ContextLengthError, RequestError
from omlx.pipeline.request import Sampling
from omlx.pipeline.stage import Services, Stage
from omlx.pipeline.state import Answer, State
from omlx.pipeline.work import Open, Prefill, Work
from omlx.stages import built_in_stages
from omlx.stages.decode import DecodeStage
from omlx.stages.normalize import NormalizeStage
from omlx.stages.prefill import PrefillStage
from omlx.stages.segment import SegmentStage
from omlx.stages.tokenize import TokenizeStage
from omlx.stages.writeback import block_ranges
from omlx.testing import FakeExecutor, drive, fake_model, guarded, new_state, text_of
from omlx.text.chat import ChatPrompt, Message, TextPrompt, TokenPrompt
from omlx.text.delta import ToolCallDelta
from tests.stages.conftest import shipped

NO_STORE = Services(None)


def run(state: State, *stages: Stage) -> State:
    """Run stages of the host lane, each held to its declaration."""
    for stage in stages:
        guarded(stage).run(state, NO_STORE)
    return state


def answered(prompt: Any, answer: str | None = None, **options: Any) -> tuple[Answer, str, FakeExecutor]:
    """Return how a plain chain answered a prompt."""
    sink: list = []
    model = options.pop("model", fake_model())
    executor = FakeExecutor(model, answer=answer)
    state = new_state(model, prompt, sink=sink, **options)
    drive(shipped("no_cache"), state, NO_STORE, executor)
    return state.answer, text_of(sink), executor


@pytest.mark.parametrize("kind", [kind for _, kind in built_in_stages()])
def test_a_stage_declares_itself(kind):
    """Every built-in stage has a promise, a lane, and fields that a state has."""
    fields = set(State.__dataclass_fields__)
    assert kind.__doc__
    assert {*kind.requires, *kind.uses, *kind.assigns} <= fields
    assert not {*kind.requires} & {*kind.assigns}


def test_normalize_rewrites_and_reports():
    """A rule's change is made and listed; the request itself stays as it was."""
    prompt = ChatPrompt(
        (Message("system", "x-anthropic-billing-header: cch=12345;\nbe brief"), Message("user", "hi"))
    )
    state = run(new_state(fake_model(), prompt), NormalizeStage())
    assert "be brief" == state.prompt.messages[0].content
    assert ["attribution"] == [rewrite.rule for rewrite in state.rewrites]
    assert prompt is state.request.prompt
    assert prompt == run(new_state(fake_model(), prompt), NormalizeStage(rules=())).prompt


@pytest.mark.parametrize("prompt", [TextPrompt("plain"), TokenPrompt((1, 2, 3))])
def test_normalize_leaves_text_and_tokens_alone(prompt):
    """What is no conversation passes unchanged."""
    assert prompt is run(new_state(fake_model(), prompt), NormalizeStage()).prompt


@pytest.mark.parametrize(
    ("prompt", "text", "num_tokens"),
    [
        ("hi", "<|im_start|>user\nhi<|im_end|>\n<|im_start|>assistant\n", 21),
        (TextPrompt("plain é"), "plain é", 8),
        (TokenPrompt((5, 6)), "", 2),
    ],
)
def test_tokenize_turns_every_kind_of_prompt_into_tokens(prompt, text, num_tokens):
    """Chats are rendered, text is tokenized, tokens stay; each token has the place where it begins."""
    state = run(new_state(fake_model(), prompt), TokenizeStage())
    assert (text, num_tokens, num_tokens) == (state.text, len(state.tokens), len(state.starts))
    assert "int32" == state.tokens.dtype


@pytest.mark.parametrize(("length", "fits"), [(9, True), (10, False), (11, False)])
def test_tokenize_refuses_what_leaves_no_room_for_an_answer(length, fits):
    """A prompt as long as the window is refused with the numbers, before any work is done."""
    state = new_state(fake_model(window_tokens=10), TokenPrompt(tuple(range(length))))
    if fits:
        run(state, TokenizeStage())
    else:
        with pytest.raises(ContextLengthError, match=f"is 10 tokens, but the prompt has {length}"):
            run(state, TokenizeStage())


def test_tokenize_refuses_an_empty_prompt():
    """There must be a token to begin with."""
    with pytest.raises(RequestError, match="the prompt is empty"):
        run(new_state(fake_model(), TextPrompt("")), TokenizeStage())


@pytest.mark.parametrize("prompt", [TextPrompt("plain"), TokenPrompt((1, 2, 3))])
def test_segment_takes_what_is_no_chat_as_one(prompt):
    """Text and tokens are one segment."""
    state = run(new_state(fake_model(), prompt), TokenizeStage(), SegmentStage())
    assert [("prompt", 0, len(state.tokens))] == [(s.role, s.start, s.end) for s in state.segments]


def test_segment_names_the_parts_of_a_chat():
    """System, messages and generation prompt are contiguous, from the first token to the last."""
    prompt = ChatPrompt(
        (
            Message("system", "brief"),
            Message("user", "one"),
            Message("assistant", "two"),
            Message("user", "three"),
        )
    )
    state = run(new_state(fake_model(), prompt), TokenizeStage(), SegmentStage())
    assert ["system", "user", "assistant", "user", "generation"] == [s.role for s in state.segments]
    edges = [0, *(s.end for s in state.segments)]
    assert edges[:-1] == [s.start for s in state.segments]
    assert len(state.tokens) == edges[-1]


def test_prefill_runs_chunks_on_the_grid():
    """The prompt is computed up to its last token but one, a chunk at a time, cut where segments end."""
    pieces: list[Work] = []
    state = new_state(
        fake_model(), ChatPrompt((Message("system", "s" * 70), Message("user", "u" * 60))), max_tokens=1
    )
    stages = (TokenizeStage(), SegmentStage(), PrefillStage(chunk_tokens=64), DecodeStage())
    drive(stages, state, NO_STORE, FakeExecutor(state.model), pieces.append)
    assert [64, 80, 128, 148, len(state.tokens) - 1] == [w.end for w in pieces if isinstance(w, Prefill)]
    assert (0, ()) == (pieces[0].resume, pieces[0].pieces)


def test_prefill_opens_with_the_sampling_of_request_and_model():
    """What the request does not say, the model's settings do."""
    model = replace(fake_model(), sampling=Sampling(temperature=0.5, top_k=7))
    opened: list[Work] = []
    state = new_state(model, "hi", sampling=Sampling(top_k=3), max_tokens=1)
    drive(shipped("no_cache"), state, NO_STORE, FakeExecutor(model), opened.append)
    assert isinstance(opened[0], Open)
    assert Sampling(temperature=0.5, top_k=3) == opened[0].sampling


def test_a_prompt_of_one_token_needs_no_prefill():
    """The first decode step runs the last token; there is nothing before it."""
    _, _, executor = answered(TokenPrompt((7,)), max_tokens=3)
    assert {"Open": 1, "Decode": 3} == dict(executor.ran)


@pytest.mark.parametrize(
    ("options", "answer", "text", "reason", "num_tokens"),
    [
        ({}, "hello", "hello", "stop", 6),
        ({"max_tokens": 3}, "hello", "hel", "length", 3),
        ({"max_tokens": 5}, "hello", "hello", "length", 5),
        ({"max_tokens": 6}, "hello", "hello", "stop", 6),
        ({"stop": ("ll",)}, "hello", "he", "stop", 4),
        ({"stop": ("lx",), "max_tokens": 3}, "hello", "hel", "length", 3),
        ({"ignore_eos": True, "max_tokens": 9}, "hello", "hello", "length", 9),
        ({"model": fake_model(max_tokens=2)}, "hello", "he", "length", 2),
        ({"model": fake_model(max_tokens=2), "max_tokens": 4}, "hello", "hell", "length", 4),
        ({"model": fake_model(window_tokens=24)}, "hello", "hel", "length", 3),
        ({"model": fake_model(window_tokens=24), "max_tokens": 50}, "hello", "hel", "length", 3),
    ],
)
def test_decode_ends_where_it_should(options, answer, text, reason, num_tokens):
    """End token, stop string, limit of request or model, window: whichever comes first ends the answer."""
    ended, said, executor = answered("hi", answer, **options)
    assert (reason, num_tokens, text) == (ended.reason, ended.num_tokens, said)
    assert num_tokens == executor.ran["Decode"]


def test_decode_asks_for_nothing_after_the_last_token():
    """The step that reaches the limit is announced as the last, so that no token is computed in vain."""
    steps: list[Work] = []
    state = new_state(fake_model(), "hi", max_tokens=3)
    drive(shipped("no_cache"), state, NO_STORE, FakeExecutor(state.model, answer="hello"), steps.append)
    assert [False, False, True] == [work.last for work in steps if hasattr(work, "last")]
    assert len(state.tokens) + 2 == state.sequence.offset


def test_decode_reports_calls():
    """An answer that ends with a call ends for that reason; one cut short does not."""

    class Calling:
        stopped = False

        def feed(self, token: int) -> list:
            return [ToolCallDelta(0, "c", "f", "{}")] if token == ord("e") else []

        def finish(self) -> list:
            return []

    model = replace(fake_model(), new_parser=lambda *_: Calling())
    assert "tool_calls" == answered("hi", "hello", model=model)[0].reason
    assert "length" == answered("hi", "hello", model=model, max_tokens=3)[0].reason


@pytest.mark.parametrize(
    ("start", "end", "cuts", "ranges"),
    [
        (0, 10, [], [(0, 4), (4, 8), (8, 10)]),
        (3, 10, [5, 9, 10, 2], [(3, 5), (5, 9), (9, 10)]),
        (3, 9, [4], [(3, 4), (4, 8), (8, 9)]),
        (5, 5, [], []),
        (6, 5, [], []),
    ],
)
def test_blocks_are_cut_at_segment_ends_and_never_longer_than_asked(start, end, cuts, ranges):
    """New blocks cover the range without a hole, begin where the last one ended, and end at the cuts."""
    assert ranges == list(block_ranges(start, end, 4, cuts))
