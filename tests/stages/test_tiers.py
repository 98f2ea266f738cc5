"""Switching the cache off, or restricting it, does what it says, whether the answer is streamed or not."""

from pathlib import Path

import pytest

from omlx.pipeline.usage import usage
from tests.stages.conftest import Talk, closed, open_store, shipped

PROMPT = "remember this " * 40


def files(directory: Path) -> list[Path]:
    """Return the block files."""
    return list(directory.rglob("*.safetensors")) if directory.exists() else []


@pytest.mark.parametrize(
    ("pipeline", "hot", "cold"),
    [("no_cache", True, True), ("ram_only", True, False), ("default", False, True), ("default", True, True)],
    ids=["off", "hot only", "cold only", "both"],
)
def test_each_switch_does_what_it_says(directory, pipeline, hot, cold):
    """Off reuses and writes nothing; hot reuses and writes no file; cold and both do both."""
    store = open_store(directory if cold else None, hot_bytes=1024**2 if hot else None)
    talk = Talk(shipped(pipeline), store)
    first, _ = talk.ask(PROMPT)
    store.flush(30)
    second, _ = talk.ask(PROMPT)
    cached = len(second.tokens) - 1 if pipeline != "no_cache" else 0
    assert (0, cached) == (usage(first).cached_tokens, usage(second).cached_tokens)
    assert (pipeline == "default") == bool(files(directory))
    assert (cached if hot else 0) == usage(second).hot_tokens
    assert usage(second).prompt_tokens == usage(second).cached_tokens + usage(second).prefilled_tokens
    closed(store)


def test_no_store_is_no_cache(directory):
    """Without a store the default chain is a plain server; nothing fails and nothing is made."""
    talk = Talk(shipped("default"), None)
    answers = {talk.ask(PROMPT)[1] for _ in range(2)}
    assert {Talk(shipped("no_cache"), None).ask(PROMPT)[1]} == answers
    assert 2 * (len(talk.state.tokens) - 1) == talk.executor.computed_tokens
    assert not directory.exists()


def test_a_ram_only_model_beside_others_writes_no_file(store, directory):
    """A pipeline that names the hot tier alone leaves the disk alone, though other models use it."""
    talk = Talk(shipped("ram_only"), store)
    talk.ask(PROMPT)
    assert store.flush(30)
    assert [] == files(directory)
    assert len(talk.state.tokens) - 1 == talk.ask(PROMPT)[0].sequence.resumed


def test_a_lookup_of_one_tier_does_not_see_the_other(directory):
    """A pipeline that looks in RAM alone computes what is on disk alone."""
    store = open_store(directory)
    Talk(shipped("default"), store).ask(PROMPT)
    closed(store)
    store = open_store(directory)
    assert 0 == Talk(shipped("ram_only"), store).ask(PROMPT)[0].sequence.resumed
    assert 0 < Talk(shipped("default"), store).ask(PROMPT)[0].sequence.resumed
    closed(store)


def test_a_restore_goes_no_further_than_its_lookup(directory):
    """What lies on disk beyond a match in RAM alone is not restored after all."""
    store = open_store(directory)
    Talk(shipped("default"), store).ask(PROMPT)
    closed(store)
    store = open_store(directory)
    talk = Talk(shipped("ram_only"), store)
    first, _ = talk.ask(PROMPT[:200])
    second, _ = talk.ask(PROMPT)
    assert second.match.resume == second.sequence.resumed < len(first.tokens)
    closed(store)
