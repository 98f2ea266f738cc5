"""Two requests that share a prefix compute it once: the second waits, then finds it stored."""

import pytest

from omlx.pipeline.conductor import device_steps
from omlx.pipeline.stage import Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Prefill, Wait, Work
from omlx.stages.coalesce import CoalesceStage
from omlx.testing import guarded, new_state
from tests.stages.conftest import Talk, shipped

SHARED = "the same long beginning " * 20


def begin(talk: Talk, prompt: str) -> tuple[State, Steps]:
    """Return a request whose prompt is known, and its `coalesce` stage's work."""
    state = new_state(talk.model, prompt, max_tokens=5)
    for stage in talk.stages[:3]:  # normalize, tokenize, segment
        guarded(stage).run(state, talk.services)
    return state, guarded(CoalesceStage()).run(state, talk.services)


def rest(talk: Talk, state: State) -> Steps:
    """Return the device work of a request that nothing is restored for."""
    stages = [stage for stage in talk.stages if stage.name() in ("prefill", "decode", "writeback")]
    return device_steps(tuple(guarded(stage) for stage in stages), state, talk.services)


def go_on(talk: Talk, steps: Steps, work: Work | None, until: int | None = None) -> Work | None:
    """Carry out pieces until so many tokens have run, or to the end; return the piece that waits."""
    work = work or next(steps)
    try:
        while until is None or not isinstance(work, Prefill) or work.sequence.offset < until:
            work = steps.send(talk.executor.run(work))
    except StopIteration:
        return None
    return work


@pytest.fixture
def talk(store) -> Talk:
    """Return a model behind the default pipeline, with small chunks."""
    return Talk(shipped("default", prefill={"chunk_tokens": 64}), store)


def test_the_second_request_waits_until_the_first_has_passed(talk):
    """While the first computes what both share the second does nothing; afterwards it finds it stored."""
    first, waiting = begin(talk, SHARED + "one" * 50)
    assert [] == list(waiting)
    steps = rest(talk, first)
    work = go_on(talk, steps, None, until=64)
    second, waiting = begin(talk, SHARED + "two" * 50)
    wait = next(waiting)
    assert isinstance(wait, Wait)
    shared = second.waited_for
    assert len("<|im_start|>") < 480 <= shared
    assert not wait.ready()
    work = go_on(talk, steps, work, until=shared)
    assert wait.ready()
    with pytest.raises(StopIteration):
        waiting.send(None)
    match = talk.store.match(talk.model.fingerprint, second.tokens, talk.model.layout)
    assert shared == match.resume
    assert go_on(talk, steps, work) is None


@pytest.mark.parametrize("prompt", ["something else altogether " * 20, SHARED[:40]])
def test_little_in_common_is_not_waited_for(talk, prompt):
    """A request that shares less than `min_shared_tokens` goes on at once."""
    _, waiting = begin(talk, SHARED)
    assert [] == list(waiting)
    second, waiting = begin(talk, prompt)
    assert [] == list(waiting)
    assert 0 == second.waited_for


def test_a_request_that_ended_is_not_waited_for(talk):
    """When the first ends, for whatever reason, the second goes on with what there is."""
    first, waiting = begin(talk, SHARED + "one")
    assert [] == list(waiting)
    _, waiting = begin(talk, SHARED + "two")
    wait = next(waiting)
    first.ended = True
    assert wait.ready()
    with pytest.raises(StopIteration):
        waiting.send(None)


def test_what_is_stored_is_not_waited_for(talk):
    """A prefix that can be found already makes nobody wait."""
    talk.ask(SHARED)
    _, waiting = begin(talk, SHARED + "one")
    assert [] == list(waiting)
    _, waiting = begin(talk, SHARED + "one")
    assert [] == list(waiting)


def test_without_a_store_nobody_waits():
    """Where nothing is stored, waiting would be in vain."""
    talk = Talk(shipped("default"), None)
    for _ in range(2):
        assert [] == list(begin(talk, SHARED)[1])
