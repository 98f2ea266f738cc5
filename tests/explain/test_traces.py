"""Sessions of real agents: every difference is where a plain comparison of the rendered prompts finds it."""

from dataclasses import replace
from itertools import pairwise

import msgspec
import pytest

from omlx.explain.difference import compare
from omlx.explain.session import follow, prepare
from omlx.pipeline.stage import Services
from omlx.server.dialects import read_request
from omlx.stages.normalize import NormalizeStage
from omlx.stages.segment import SegmentStage
from omlx.stages.tokenize import TokenizeStage
from omlx.testing import fake_model
from omlx.text.tokenizer import FolderTokenizer
from tests.serving import trace
from tests.tiny import make_tokenizer

STAGES = (NormalizeStage(), TokenizeStage(), SegmentStage())
#: C16: the share of a session's prompt tokens that an earlier prompt has in the same place, in per cent.
BASELINE = {"pi": 87.4, "opencode": 87.8, "openclaw": 88.3, "claude": 88.7, "codex": 88.6, "aider": 47.5}
#: Why prompts of these sessions part, and how often.
CAUSES = {"opencode": {"another_prompt": 1}, "openclaw": {"moved": 8}, "aider": {"moved": 2}}


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """Return a fake model with a real tokenizer and template, and a window for large prompts."""
    folder = make_tokenizer(tmp_path_factory.mktemp("tokenizer"))
    return replace(fake_model(window_tokens=2**20), tokenizer=FolderTokenizer(folder))


@pytest.fixture(scope="module")
def states(model):
    """Return the prompts of each agent, rendered once."""
    done = {}

    def of(agent):
        if agent not in done:
            requests = [read_request(msgspec.json.encode(line))[1] for line in trace(agent)]
            done[agent] = [prepare(STAGES, request, model, Services(None)) for request in requests]
        return done[agent]

    return of


def _shared(left: str, right: str) -> int:
    """Return how many characters two texts begin with alike."""
    length = min(len(left), len(right))
    if left[:length] == right[:length]:
        return length
    return next(at for at in range(length) if left[at] != right[at])


def _label_at(state, char: int) -> str:
    """Return which message holds a character: the first whose rendering, with all before it, reaches past it."""
    prompt, tokenizer = state.prompt, state.model.tokenizer
    for count in range(1, len(prompt.messages) + 1):
        begun = msgspec.structs.replace(prompt, messages=prompt.messages[:count])
        text = tokenizer.render(begun, add_generation_prompt=False)
        if _shared(text, state.text) > char:
            message = prompt.messages[count - 1]
            return f"message {count - 1} ({message.role})" if count > 1 else "system"
    return "generation prompt"


@pytest.mark.parametrize("agent", BASELINE)
def test_each_difference_is_where_the_texts_part(states, agent):
    """For consecutive requests the character and the named part are those of a plain comparison, or there is none."""
    prompts = states(agent)
    for before, now in pairwise(prompts):
        found = compare(now, before)
        char = _shared(now.text, before.text)
        if found is None:
            assert char in (len(before.text), len(now.text))
            continue
        assert (char, _label_at(now, char)) == (found.char, found.segment)
        assert found.lost_tokens <= len(before.tokens) - found.token


@pytest.mark.parametrize("agent", BASELINE)
def test_c16_no_session_reuses_less_than_it_did(states, agent):
    """C16: what the prompts of a session share stays at the baseline, and so do the reasons for the rest."""
    session = follow(states(agent))
    assert 100 * session.shared_tokens / session.prompt_tokens >= BASELINE[agent] - 2
    assert CAUSES.get(agent, {}) == {cost.name: cost.turns for cost in session.costs}
