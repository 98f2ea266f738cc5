"""The fakes behave like what they stand for, and fail loudly where a test must not pass."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlx.errors import CacheError
from omlx.pipeline.work import Capture, Decode, Open, Piece, Prefill, Wait
from omlx.store.record import check_record
from omlx.testing import ByteTokenizer, FakeExecutor, PlainParser, fake_layout, fake_model, text_of
from omlx.testing.kv import kv_rows
from omlx.text.chat import ChatPrompt, Message, ToolCall
from omlx.types import as_tokens

TOKENS = as_tokens(range(10, 110))


def captured(executor: FakeExecutor, model, cuts: list[int]):
    """Compute the tokens in chunks; return the pieces captured after each."""
    sequence = executor.run(Open(model.name, TOKENS))
    pieces, start = [], 0
    for end in cuts:
        executor.run(Prefill(sequence, end))
        [records] = executor.run(Capture(sequence, [(start, end)]))
        for record in records.values():
            check_record(record, model.layout, end - start)
        pieces.append(Piece(end - start, end - start, records))
        start = end
    return sequence, pieces


@given(st.text())
def test_text_survives_bytes(text):
    """What is encoded is decoded again, and every token begins at a character."""
    tokenizer = ByteTokenizer()
    encoding = tokenizer.encode(text)
    assert len(encoding.tokens) == len(encoding.starts)
    assert np.all(np.diff(encoding.starts) >= 0)
    assert text == tokenizer.decode(encoding.tokens)


def test_a_chat_is_rendered_by_turns():
    """Each message is a turn between special tokens; tools come first, calls after the content."""
    prompt = ChatPrompt(
        (Message("user", "hi é"), Message("assistant", "", tool_calls=(ToolCall("f", {"a": 1}),))),
        tools=({"name": "f"},),
    )
    text = ByteTokenizer().render(prompt)
    assert (
        """\
<|im_start|>tools
[{"name": "f"}]<|im_end|>
<|im_start|>user
hi é<|im_end|>
<|im_start|>assistant

{"name": "f", "arguments": {"a": 1}}<|im_end|>
<|im_start|>assistant
"""
        == text
    )
    encoding = ByteTokenizer().encode(text)
    assert 4 == list(encoding.tokens).count(256)
    assert 3 == list(encoding.tokens).count(257)


@pytest.mark.parametrize(
    ("stop", "shown", "stopped"),
    [
        ((), "one STOP two", False),
        (("STOP",), "one ", True),
        (("STOP two!", "O"), "one ST", True),
        (("two!",), "one STOP two", False),
    ],
)
def test_a_stop_string_ends_the_text_before_it(stop, shown, stopped):
    """Text up to a stop string is shown, and text that only began like one is not lost."""
    parser = PlainParser(stop)
    deltas = [delta for byte in b"one STOP two" for delta in parser.feed(byte)]
    assert shown == text_of([*deltas, *parser.finish()])
    assert stopped == parser.stopped


def test_half_a_character_is_not_shown():
    """Bytes become text when a character is complete; special tokens never do."""
    parser = PlainParser()
    assert ["", "é", ""] == [text_of(parser.feed(byte)) for byte in (0xC3, 0xA9, 257)]
    parser.feed(0xC3)
    assert [] == parser.finish()


@pytest.mark.parametrize("kinds", [("kv",), ("kv", "window"), ("kv", "state"), ("window",)])
def test_restored_goes_on_as_computed(kinds):
    """A sequence restored from its own records continues exactly as the one that computed them."""
    model = fake_model(layout=fake_layout(*kinds, window=16))
    executor = FakeExecutor(model)
    cold, pieces = captured(executor, model, [40, 60])
    executor.run(Prefill(cold, 99))
    warm = executor.run(Open(model.name, TOKENS, 60, pieces))
    executor.run(Prefill(warm, 99))
    answers = [[executor.run(Decode(sequence)) for _ in range(5)] for sequence in (cold, warm)]
    assert answers[0] == answers[1]
    assert (60, 0) == (warm.resumed, cold.resumed)
    assert 99 + 39 == executor.computed_tokens


@pytest.mark.parametrize("kinds", [("kv",), ("window",), ("kv", "state")])
@pytest.mark.parametrize("fault", ["other tokens", "shifted", "missing", "swapped"])
def test_a_wrong_restore_fails_loudly(kinds, fault):
    """Records of other tokens, of another place or not at all are never taken for the right ones."""
    model = fake_model(layout=fake_layout(*kinds))
    executor = FakeExecutor(model)
    _, pieces = captured(executor, model, [40, 60])
    tokens, resume = TOKENS.copy(), 60
    if fault == "other tokens":
        tokens[3] += 1
    elif fault == "shifted":
        resume = 61
    elif fault == "missing":
        pieces = pieces[:1] if "state" in kinds else pieces[1:]
    else:
        pieces = pieces[::-1]
    with pytest.raises(AssertionError, match=r"is that of other tokens|holds token"):
        executor.run(Open(model.name, tokens, resume, pieces))


def test_a_row_depends_on_all_tokens_before_it():
    """The fake KV of a position changes with any earlier token and with no later one."""
    rows = kv_rows(TOKENS)
    changed = TOKENS.copy()
    changed[50] += 1
    same = np.all(rows == kv_rows(changed), axis=1)
    assert (50, 0) == (same.sum(), same[50:].sum())
    assert np.array_equal(rows[40:], kv_rows(TOKENS[40:], rows[39].tobytes()))


def test_a_sliding_layer_drops_what_it_has_passed():
    """Right after a chunk its tokens can be captured; while decoding only the last of a window."""
    model = fake_model(layout=fake_layout("window", window=16))
    executor = FakeExecutor(model)
    sequence, _ = captured(executor, model, [40, 60, 99])
    assert 16 == sequence.capture_within
    executor.run(Capture(sequence, [(60, 99)]))
    for _ in range(10):
        executor.run(Decode(sequence))
    executor.run(Capture(sequence, [(sequence.offset - 16, sequence.offset)]))
    with pytest.raises(CacheError, match="not all held"):
        executor.run(Capture(sequence, [(sequence.offset - 17, sequence.offset)]))


def test_the_last_step_is_not_run_ahead():
    """A decode step runs the token that it returns unless no more will be wanted."""
    model = fake_model()
    executor = FakeExecutor(model, answer="ab")
    sequence = executor.run(Open(model.name, as_tokens([1])))
    assert [97, 98, 257] == [executor.run(Decode(sequence, last=last)) for last in (False, False, True)]
    assert (4, 3) == (len(sequence.tokens), sequence.offset)


@pytest.mark.parametrize("work", [Prefill, Wait])
def test_work_that_makes_no_sense_is_refused(work):
    """A prefill that goes back or past the prompt, and what is no work for an executor, fail."""
    model = fake_model()
    executor = FakeExecutor(model)
    sequence = executor.run(Open(model.name, TOKENS))
    with pytest.raises(AssertionError):
        executor.run(Prefill(sequence, 100) if work is Prefill else Wait(lambda: True))
