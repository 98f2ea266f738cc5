"""One prompt at a time: of any length, in any tier, a repeated prompt computes one token and answers the same."""

import pytest

from tests.tiny_models import WINDOW
from tests.trust.talk import BLOCK, answer, small_server, tokens_of

LENGTHS = [BLOCK - 1, BLOCK, BLOCK + 1, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 1, 3 * BLOCK + 7]


def test_prompts_of_any_length_answer_the_same_in_every_tier(folder, tmp_path):
    """A1: below, at and above block ends a prompt found in RAM, or on disk after a restart, says what it said cold."""
    prompts = [tokens_of(length, length) for length in LENGTHS]
    with small_server(folder, tmp_path) as server:
        cold = [answer(server, prompt) for prompt in prompts]
        hot = [answer(server, prompt) for prompt in prompts]
    with small_server(folder, tmp_path) as server:
        restarted = [answer(server, prompt) for prompt in prompts]
    assert [0] * len(LENGTHS) == [cached for _, cached in cold]
    assert [length - 1 for length in LENGTHS] == [cached for _, cached in hot]
    assert [text for text, _ in cold] == [text for text, _ in hot]
    assert hot == restarted


@pytest.mark.parametrize("length", [2 * BLOCK, 10 * WINDOW])
def test_a_prompt_that_is_stored_whole_computes_its_last_token(folder, tmp_path, length):
    """A2: sent three times, also after the window has wrapped, a prompt of whole blocks answers the same."""
    prompt = tokens_of(1, length)
    with small_server(folder, tmp_path) as server:
        (cold, none), *again = [answer(server, prompt, max_tokens=4) for _ in range(3)]
    assert 0 == none
    assert [(cold, length - 1)] * 2 == again


def test_a_window_that_has_wrapped_is_resumed_anywhere(folder_of, tmp_path):
    """G1: below, at and above the window all but the last token is restored, after a restart too."""
    folder, lengths = folder_of("gemma3"), [WINDOW // 2, WINDOW, WINDOW + 1, 3 * WINDOW, 10 * WINDOW]
    prompts = [tokens_of(length, length) for length in lengths]
    with small_server(folder, tmp_path) as server:
        cold = [answer(server, prompt)[0] for prompt in prompts]
        hot = [answer(server, prompt) for prompt in prompts]
    with small_server(folder, tmp_path) as server:
        restarted = [answer(server, prompt) for prompt in prompts]
    assert [(text, length - 1) for text, length in zip(cold, lengths, strict=True)] == hot == restarted


@pytest.mark.parametrize("place", [2 * WINDOW + 5, 5 * WINDOW])
def test_a_branch_far_before_the_window_computes_what_is_new(folder_of, tmp_path, place):
    """G1: a prompt that leaves another one windows before its end is resumed where it leaves it."""
    folder, prompt = folder_of("gemma3"), tokens_of(2, 10 * WINDOW)
    branch = [*prompt[:place], *tokens_of(3, WINDOW)]
    with small_server(folder, tmp_path / "cold") as server:
        cold, _ = answer(server, branch)
    with small_server(folder, tmp_path / "warm") as server:
        answer(server, prompt)
        assert (cold, place) == answer(server, branch)
