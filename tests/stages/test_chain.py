"""The whole chain over a real store: what was computed once is not computed again, and nothing else changes.

Every run is held to the declarations of its stages, and the fake executor fails on KV of other tokens.
"""

import random
from pathlib import Path

import pytest

from omlx.errors import CacheError, CancelledError
from omlx.pipeline.work import Capture, Decode, Prefill, Work
from omlx.stages.prefill import PrefillStage
from omlx.testing import FakeExecutor, drive, fake_layout, fake_model, new_state
from omlx.text.chat import ChatPrompt, Message
from tests.stages.conftest import Talk, closed, open_store, shipped

LAYOUTS = {
    "full": fake_layout("kv"),
    "sliding": fake_layout("window", window=40),
    "mixed": fake_layout("kv", "window", window=40),
    "hybrid": fake_layout("kv", "state"),
    "all": fake_layout("kv", "window", "state", window=40),
}
TUNING = {"prefill": {"chunk_tokens": 64}, "writeback": {"block_tokens": 32, "state_every_tokens": 64}}
LONG = "".join(f"line {number}: the quick brown fox\n" for number in range(20))


@pytest.fixture(params=LAYOUTS)
def layout(request):
    """Return each layout in turn."""
    return LAYOUTS[request.param]


@pytest.fixture
def talk(store, layout) -> Talk:
    """Return a model of each layout behind the default pipeline."""
    return Talk(shipped("default", **TUNING), store, fake_model(layout=layout))


def cold_answer(talk: Talk, prompt, **options) -> str:
    """Return the answer of a plain server to a prompt."""
    return Talk(shipped("no_cache", prefill={"chunk_tokens": 64}), None, talk.model).ask(prompt, **options)[1]


def common(left, right) -> int:
    """Return how many tokens two states' prompts share."""
    pairs = zip(left.tokens, right.tokens, strict=False)
    return next((at for at, (a, b) in enumerate(pairs) if a != b), min(len(left.tokens), len(right.tokens)))


def test_a_repeated_prompt_computes_one_token(talk):
    """The second time all of the prompt but its last token is restored, and the answer is the same."""
    first, answer = talk.ask(LONG)
    assert len(first.tokens) - 1 == talk.executor.computed_tokens
    second, again = talk.ask(LONG)
    assert len(first.tokens) - 1 == talk.executor.computed_tokens
    assert len(second.tokens) - 1 == second.sequence.resumed == second.restored.hot_tokens
    assert cold_answer(talk, LONG) == answer == again
    assert 0 == second.written.blocks


@pytest.mark.parametrize("edit", ["tail", "middle", "cut", "longer"])
def test_a_changed_prompt_computes_the_change(talk, edit):
    """A prompt that shares a prefix resumes where the tokens part, or before that where layers ask for it."""
    other = {
        "tail": LONG[:-30] + "something else",
        "middle": LONG[:300] + "X" + LONG[301:],
        "cut": LONG[:400],
        "longer": LONG + "and one more line\n",
    }[edit]
    first, _ = talk.ask(LONG)
    second, answer = talk.ask(other)
    shared = common(first, second)
    resumed = second.sequence.resumed
    if any(group.kind == "state" for group in talk.model.layout.groups):
        assert shared - 64 <= resumed <= shared  # the last snapshot: chunks of 64 tokens
    else:
        assert shared == resumed
    assert len(first.tokens) - 1 + len(second.tokens) - 1 - resumed == talk.executor.computed_tokens
    assert cold_answer(talk, other) == answer


def test_a_conversation_resumes_after_its_last_answer(talk):
    """The next turn restores prompt and answer of the turn before, and writes its new tokens only."""
    messages = [Message("system", "be brief " * 20), Message("user", LONG[:200])]
    held = 0
    for turn in range(4):
        state, answer = talk.ask(ChatPrompt(tuple(messages)), max_tokens=50)
        assert held <= state.sequence.resumed
        assert cold_answer(talk, ChatPrompt(tuple(messages)), max_tokens=50) == answer
        new_tokens = len(state.tokens) + 49 - state.sequence.resumed
        kinds = [group.kind for group in talk.model.layout.groups]
        assert state.written.nbytes <= 16 * len(kinds) * (new_tokens + 1)
        held = len(state.tokens) + 49 - (64 if "state" in kinds else 0)
        messages += [Message("assistant", answer), Message("user", f"go on, {turn}")]


def test_other_conversations_share_the_system_prompt(talk):
    """Two conversations with one system prompt share exactly its segment, also where layers keep a state."""
    system = Message("system", "you are a careful assistant " * 8)
    first, _ = talk.ask(ChatPrompt((system, Message("user", "one " + LONG))))
    second, _ = talk.ask(ChatPrompt((system, Message("user", "two " + LONG))))
    [segment] = [segment for segment in first.segments if segment.role == "system"]
    assert segment.end <= second.sequence.resumed <= common(first, second)


def test_a_new_process_finds_what_was_stored(directory, layout):
    """After a restart all of a repeated prompt comes from disk, and the answer is the same."""
    answers, states = [], []
    for _ in range(2):
        store = open_store(directory)
        state, answer = Talk(shipped("default", **TUNING), store, fake_model(layout=layout)).ask(LONG)
        closed(store)
        answers.append(answer)
        states.append(state)
    assert answers[0] == answers[1]
    assert len(states[1].tokens) - 1 == states[1].restored.cold_tokens
    assert 0 == states[1].restored.hot_tokens


def test_blocks_are_stored_while_they_are_computed(talk):
    """After each chunk of the prompt, and during the answer, what was computed so far can be found."""
    found: list[tuple[str, int]] = []

    def watch(work: Work) -> None:
        if isinstance(work, Prefill | Decode):
            tokens = work.sequence.tokens[: work.sequence.offset]
            match = talk.store.match(talk.model.fingerprint, tokens, talk.model.layout, len(tokens))
            found.append((type(work).__name__, len(tokens) - match.stored))

    state, _ = talk.ask(LONG, watch, max_tokens=100)
    assert {0} == {behind for kind, behind in found if kind == "Prefill"}
    assert max(behind for _, behind in found) <= 33
    whole = state.sequence.tokens[: state.sequence.offset]
    assert len(whole) == talk.store.match(talk.model.fingerprint, whole, talk.model.layout, len(whole)).stored


@pytest.mark.parametrize(("kind", "after"), [(Prefill, 4), (Decode, 1), (Decode, 10)])
def test_a_cancelled_request_keeps_what_it_computed(talk, kind, after):
    """A client that leaves in the middle loses nothing that was computed until then."""
    state, seen, sequences = new_state(talk.model, LONG, max_tokens=50), 0, []

    def leave(work: Work) -> None:
        nonlocal seen
        seen += isinstance(work, kind)
        if seen == after and not sequences:
            sequences.append(work.sequence)
            state.cancelled = True

    with pytest.raises(CancelledError):
        drive(talk.stages, state, talk.services, talk.executor, leave)
    computed = sequences[0].offset
    assert computed > 0
    again, _ = talk.ask(LONG, max_tokens=50)
    assert min(computed, len(again.tokens) - 1) == again.sequence.resumed


def test_a_lost_file_is_a_shorter_match(directory, layout):
    """When files vanish, what is left is used and the rest computed again; the answer does not change."""
    store = open_store(directory)
    talk = Talk(shipped("default", **TUNING), store, fake_model(layout=layout))
    _, answer = talk.ask(LONG)
    closed(store)
    files = sorted(directory.rglob("*.safetensors"))
    assert len(files) > 8
    for path in random.Random(3).sample(files, len(files) // 3):
        path.unlink()
    store = open_store(directory)
    second, again = Talk(shipped("default", **TUNING), store, fake_model(layout=layout)).ask(LONG)
    assert answer == again
    if layout.kinds() == ("kv",):  # sliding layers need the last records only
        assert second.sequence.resumed < len(second.tokens) - 1
    third, _ = Talk(shipped("default", **TUNING), store, fake_model(layout=layout)).ask(LONG)
    assert len(third.tokens) - 1 == third.sequence.resumed
    store.close()


def test_a_capture_that_fails_stops_the_writing_only(store):
    """When KV cannot be captured the request is answered all the same, and nothing more is tried for it."""

    class Broken(FakeExecutor):
        def run(self, work: Work):
            if isinstance(work, Capture):
                self.ran["tried"] += 1
                raise CacheError("gone")
            return super().run(work)

    talk = Talk(shipped("default", **TUNING), store)
    talk.executor = Broken(talk.model)
    state, answer = talk.ask(LONG)
    assert cold_answer(talk, LONG) == answer
    assert state.written.stopped
    assert 1 == talk.executor.ran["tried"]
    assert 0 == store.stats().index_blocks


def test_two_models_share_nothing(store):
    """The same tokens under another model's identity are not found."""
    stages = shipped("default", **TUNING)
    Talk(stages, store, fake_model("one")).ask(LONG)
    other, _ = Talk(stages, store, fake_model("two")).ask(LONG)
    assert 0 == other.sequence.resumed


def test_a_model_that_cannot_be_cached_is_answered(store):
    """A model whose caches cannot be stored runs through the default chain like through a plain one."""
    talk = Talk(shipped("default", **TUNING), store, fake_model(cached=False))
    assert [cold_answer(talk, LONG)] * 2 == [talk.ask(LONG)[1] for _ in range(2)]
    assert 0 == store.stats().index_blocks


def test_exact_resumes_at_grid_points_alone(talk):
    """With `exact` a resume is a chunk end of a cold run, so all shapes from there on are the same."""
    exact = tuple(
        PrefillStage(chunk_tokens=64, exact=True) if isinstance(s, PrefillStage) else s for s in talk.stages
    )
    first, _ = talk.ask(LONG)
    careful = Talk(exact, talk.store, talk.model)
    second, answer = careful.ask(LONG[:300] + "X" + LONG[301:])
    cuts = {0, *(segment.end for segment in second.segments)}
    resumed = second.sequence.resumed
    assert resumed % 64 == 0 or resumed in cuts
    assert cold_answer(talk, LONG[:300] + "X" + LONG[301:]) == answer
    third, _ = careful.ask(LONG)
    resumed_again = third.sequence.resumed
    assert resumed_again % 64 == 0 or resumed_again in {segment.end for segment in third.segments}
    if talk.model.layout.kinds() == ("kv",):
        assert common(first, second) // 64 * 64 == resumed


def test_a_short_match_is_not_worth_restoring(store):
    """A match below `min_reuse_tokens` counts as none."""
    talk = Talk(shipped("default", lookup={"min_reuse_tokens": 200}), store)
    talk.ask("a" * 150 + "b" * 300)
    state, _ = talk.ask("a" * 150 + "c" * 300)
    assert (None, 0) == (state.match, state.sequence.resumed)


@pytest.mark.parametrize("seed", range(6))
def test_the_cache_never_changes_an_answer(tmp_path: Path, layout, seed):
    """Over random edits, evictions and restarts, every answer is that of a cold run."""
    rng = random.Random(seed)
    model = fake_model(layout=layout)
    stages = shipped(
        "default",
        prefill={"chunk_tokens": rng.choice([16, 64])},
        writeback={"block_tokens": rng.choice([8, 32])},
    )
    prompts = [LONG[: rng.randrange(50, 500)]]
    store = open_store(tmp_path / "blocks", hot_bytes=rng.choice([4_000, 40_000]))
    reused = 0
    for _ in range(14):
        base = rng.choice(prompts)
        at = rng.randrange(len(base))
        prompt = rng.choice(
            [base, base[:at] + "ab"[rng.randrange(2)] + base[at + 1 :], base[: at + 1], base + " more"]
        )
        prompts.append(prompt)
        talk = Talk(stages, store, model)
        state, answer = talk.ask(prompt, max_tokens=rng.randrange(1, 40))
        assert Talk(shipped("no_cache"), None, model).ask(prompt, max_tokens=40)[1].startswith(answer)
        reused += state.sequence.resumed
        if rng.random() < 0.2:
            closed(store)
            store = open_store(tmp_path / "blocks", hot_bytes=4_000)
    assert reused > 0
    closed(store)
