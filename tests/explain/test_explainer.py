"""Why a prompt is reused or not, and that asking changes nothing."""

import msgspec
import pytest

from omlx.explain.difference import SHOWN_TOKENS, difference
from omlx.explain.event import log_fields
from omlx.pipeline.explanation import Explanation
from omlx.prefix.hasher import PrefixHasher, block_name
from omlx.store.rows import scan
from omlx.testing import fake_layout, fake_model
from omlx.text.chat import ChatPrompt, Message, TextPrompt, TokenPrompt
from tests.explain.conftest import Bench, chat, disk_explainer, pipeline
from tests.stages.conftest import closed, open_store

LONG = "The index keeps each block, the writer follows the queue, and every worker reads its own file. " * 12


def test_c19_a_changed_word_is_found_and_named(bench):
    """C19: the record names matched tokens, place, part of the prompt and cause, with both sides' text if asked for."""
    before = chat(LONG + "alpha" + LONG, "yes", "and then?")
    after = chat(LONG + "omega" + LONG, "yes", "and then?")
    bench.ask(before)
    found = bench.explain(after, show_text=True)
    place = found.difference
    text = bench.talk.model.tokenizer.render(after)
    assert text.index("omega") == place.char
    assert ("message 1 (user)", "user") == (place.segment, place.role)
    assert "history_edited" == place.cause.name
    assert place.ours.startswith("omega")
    assert place.theirs.startswith("alpha")
    assert SHOWN_TOKENS == len(place.ours) == len(place.theirs)
    assert place.token == found.plan.matched_tokens == found.plan.resume
    fields = log_fields(found)
    assert (place.token, "message 1 (user)", "history_edited") == (
        fields["differs_at"],
        fields["segment"],
        fields["difference"],
    )


def test_text_is_hidden_unless_asked_for(bench):
    """Nothing of either prompt is in an explanation, or in its log line, by default."""
    bench.ask(chat(LONG + "alpha secret", "yes"))
    found = bench.explain(chat(LONG + "omega secret", "yes"))
    assert (None, None) == (found.difference.ours, found.difference.theirs)
    said = msgspec.json.encode(found).decode() + repr(log_fields(found))
    assert [] == [word for word in ("secret", "alpha", "omega", "writer") if word in said]


def test_asking_changes_nothing(directory):
    """A dry run leaves rows, uses, counters and measured rates as they were, through a server or on the files."""
    store = open_store(directory)
    bench = Bench(store)
    bench.ask(chat(LONG))
    assert store.flush(10)
    costs, model = bench.talk.services.costs, bench.talk.model
    costs.know(model.fingerprint, model.layout)
    rates = costs.rates(model.fingerprint)
    rows = [raw for raw, _ in scan(directory)]
    views, stats = store.views(), store.stats()
    for _ in range(2):
        bench.explain(chat(LONG + "more"))
        disk_explainer(directory, bench).dry(bench.request(chat(LONG + "more")), bench.talk.model)
    assert rows == [raw for raw, _ in scan(directory)]
    assert (views, stats) == (store.views(), store.stats())
    assert rates == costs.rates(model.fingerprint)
    closed(store)


def test_a_prompt_that_goes_on_parts_from_nothing(bench):
    """A conversation that continues a stored one has no difference and no cause."""
    bench.ask(chat(LONG))
    answer = bench.talk.ask(chat(LONG), max_tokens=1)[1]
    found = bench.explain(chat(LONG, answer, "go on"))
    assert (None, None) == (found.difference, found.cause)
    assert found.plan.resume > len(LONG)


def test_the_files_tell_what_the_server_told_after_a_restart(directory):
    """Without a server the cold tier gives the same plan, all of it from disk."""
    store = open_store(directory)
    bench = Bench(store)
    bench.ask(chat(LONG))
    live = bench.explain(chat(LONG + "more"))
    closed(store)
    files = disk_explainer(directory, bench).dry(bench.request(chat(LONG + "more")), bench.talk.model)
    assert live.plan.resume == files.plan.resume == files.plan.cold_tokens == live.plan.hot_tokens
    assert live.segments == files.segments
    assert {"cold", "miss"} == {block.where for block in files.blocks}


def _whole(found: Explanation) -> None:
    """Segments and blocks cover the prompt without a gap."""
    for parts in (found.segments, found.blocks):
        edges = [0, *(part.end for part in parts)]
        assert edges == [*(part.start for part in parts), found.prompt_tokens]


@pytest.mark.parametrize("kinds", [("kv",), ("kv", "window"), ("kv", "state"), ("state",)], ids="-".join)
@pytest.mark.parametrize(
    "prompt", [chat(LONG, "yes", "on"), TextPrompt(LONG), TokenPrompt(tuple(range(300)))]
)
def test_the_dry_run_tells_what_the_run_then_does(store, kinds, prompt):
    """Tokens by tier, tokens computed, and the very blocks that are stored of the prompt are as foretold."""
    bench = Bench(store, options={"model": fake_model(layout=fake_layout(*kinds))})
    for _ in range(2):
        found = bench.explain(prompt)
        _whole(found)
        before = bench.talk.executor.computed_tokens
        state = bench.ask(prompt)
        assert found.plan.resume == state.sequence.resumed
        assert (found.plan.hot_tokens, found.plan.cold_tokens) == (
            state.restored.hot_tokens,
            state.restored.cold_tokens,
        )
        # the last token of a prompt is run by the first decode step
        computed = bench.talk.executor.computed_tokens - before
        assert found.prompt_tokens - 1 - found.plan.resume == computed
        assert [] == _not_written(store, state, found)
        written = (state.written.blocks, state.written.nbytes)
        assert written == (
            _with_answer(found, bench.talk.model.layout, kinds) if found.plan.resume == 0 else (0, 0)
        )


def _with_answer(found, layout, kinds) -> tuple[int, int]:
    """Return the blocks and bytes of a prompt with those of an answer of one token: its block, and its state."""
    state_bytes = layout.record_bytes("state", 1) if "state" in kinds else 0
    return found.writes.blocks + 1, found.writes.nbytes + layout.token_bytes() + state_bytes


def _not_written(store, state, found) -> list[tuple[int, int]]:
    """Return the blocks that were foretold and are not stored: each is named by its tokens and its start."""
    names = {block.name for block in store.look(lambda index: list(index.blocks()))}
    missing = []
    for block in [block for block in found.blocks if block.where == "miss"][: found.writes.blocks]:
        hasher = PrefixHasher(state.model.fingerprint)
        hasher.update(state.tokens[: block.end])
        if block_name(hasher.digest(), block.start) not in names:
            missing.append((block.start, block.end))
    return missing


def test_nothing_stored_another_prompt_another_model(bench):
    """A miss from the first token on says whether anything is stored, and whether another model has it."""
    assert "nothing_stored" == bench.explain(TextPrompt(LONG)).cause.name
    bench.ask(TextPrompt(LONG))
    assert "new_prompt" == bench.explain(TextPrompt("0" + LONG)).cause.name
    other = Bench(bench.store, options={"model": fake_model("other")})
    assert "other_model" == other.explain(TextPrompt(LONG)).cause.name


def test_what_is_stored_but_not_used_has_a_cause(store):
    """Too short, slower than computing, no snapshot so far on, or evicted: each is told apart."""
    bench = Bench(store, pipeline(lookup={"min_reuse_tokens": 9999}))
    bench.ask(chat(LONG))
    assert "too_short" == bench.explain(chat(LONG)).cause.name
    slow = Bench(store)
    costs, identity = slow.talk.services.costs, slow.talk.model.fingerprint
    costs.know(identity, slow.talk.model.layout)
    for rate, work, seconds in (("prefill", 1e6, 1.0), ("restore", 1e6, 1e4), ("fetch", 1e6, 1e4)):
        costs.observe(identity, rate, work, seconds)
    assert "slower" == slow.explain(chat(LONG)).cause.name
    hybrid = Bench(store, options={"model": fake_model("hybrid", layout=fake_layout("kv", "state"))})
    hybrid.ask(TextPrompt(LONG))
    found = hybrid.explain(TextPrompt(LONG[:700] + "another end"))
    assert "no_snapshot" == found.cause.name
    assert {"lost", "miss"} <= {block.where for block in found.blocks}


def test_lost_records_are_told_from_a_new_prompt(directory):
    """A prompt whose tokens are known while a record of it is gone is said to be evicted, and keeps what is before."""
    store = open_store(directory, hot_bytes=None)
    bench = Bench(store, pipeline(lookup={"tiers": ["cold"]}, writeback={"tiers": ["cold"]}))
    bench.ask(TextPrompt(LONG))
    assert store.flush(10)
    second = [raw for raw, row in scan(directory) if raw.filename and row.kind == "kv"][1]
    (directory / second.filename).unlink()
    store.load(
        store.match(bench.talk.model.fingerprint, _tokens(bench), bench.talk.model.layout),
        bench.talk.model.layout,
    )
    found = bench.explain(TextPrompt(LONG))
    assert ("evicted", 256) == (found.cause.name, found.plan.resume)
    assert "lost" in {block.where for block in found.blocks}
    store.close()


def _tokens(bench):
    return bench.talk.model.tokenizer.encode(LONG).tokens


@pytest.mark.parametrize(
    ("name", "tuning"),
    [
        ("default", {}),
        ("ram_only", {}),
        ("default", {"prefill": {"exact": True, "chunk_tokens": 64}}),
        ("default", {"prefill": {"chunk_tokens": 32}}),
        ("default", {"lookup": {"tiers": ["hot"]}}),
        ("no_cache", {}),
    ],
)
def test_c17_every_chain_reuses_or_says_that_it_does_not(store, name, tuning):
    """C17: asked twice, each variant of the chain reuses the prompt, or says that nothing is looked up."""
    bench = Bench(store, pipeline(name, **tuning))
    bench.ask(chat(LONG))
    found = bench.explain(chat(LONG))
    if found.cause is not None:
        assert ("no_cache", "no_cache") == (name, found.cause.name)
        return
    assert bench.ask(chat(LONG)).sequence.resumed > len(LONG) / 2


def test_c18_a_hit_is_work_not_done(bench):
    """C18: what a plan says is restored is not computed: the counter of tokens that were run agrees."""
    bench.ask(chat(LONG))
    found = bench.explain(chat(LONG + "more"))
    before = bench.talk.executor.computed_tokens
    bench.ask(chat(LONG + "more"))
    assert found.plan.resume > 0
    computed = bench.talk.executor.computed_tokens - before
    assert found.prompt_tokens - 1 - found.plan.resume == computed


def _clocked(time: str, *said: str) -> ChatPrompt:
    """Return a prompt of twenty blocks with a clock at 30 percent of it."""
    text = (LONG * 5)[: 256 * 20]
    at = len(text) * 3 // 10
    return chat("What is next?", *said, system=f"{text[:at]}\nNow: {time}\n{text[at:]}")


@pytest.mark.parametrize(
    ("volatile", "reused"),
    [
        ([], (0.28, 0.32)),
        ([{"pattern": r"^Now: .*$"}], (0.95, 1)),
        ([{"pattern": r"^Now: .*$", "replace": "Now: see below", "move": True}], (0.95, 1)),
    ],
    ids=["off", "replaced", "moved"],
)
def test_c8_a_pattern_keeps_what_stands_behind_a_clock(store, volatile, reused):
    """C8: what stands before a clock is reused, and with an opt-in pattern what stands behind it too."""
    bench = Bench(store, pipeline(normalize={"volatile": volatile}))
    bench.ask(_clocked("10:59:07"))
    found = bench.explain(_clocked("11:00:12"))
    least, most = reused
    assert least <= found.plan.resume / found.prompt_tokens <= most
    if not volatile:
        assert "clock" == found.difference.cause.name
    assert bool(volatile) == ("volatile" in [rewrite.rule for rewrite in found.rewrites])
    assert found.plan.resume == bench.ask(_clocked("11:00:12")).sequence.resumed


def test_the_nearest_stored_prompt_is_the_longest_of_equals(bench):
    """Where several stored prompts agree equally far, the loss is told against the one that goes on longest."""
    for rest in ("short", "long " + LONG, "brief"):
        bench.ask(TextPrompt(f"{LONG}: {rest}"))
    found = bench.explain(TextPrompt(f"{LONG}: and {LONG}"), show_text=True)
    assert found.difference.theirs.startswith("long The index")
    assert len("long ") + len(LONG) - 1 <= found.difference.lost_tokens <= len("and ") + len(LONG)


def test_a_place_at_a_boundary_belongs_to_what_begins_there(bench):
    """A difference in the first token of a segment is in that segment, not in the one before."""
    state = bench.ask(chat("one", "two", "three"))
    for segment in state.segments:
        other = (state.tokens[segment.start :] + 1) % 97
        assert segment.label == difference(state, segment.start, other).segment


def test_tools_are_told_apart_by_name(bench):
    """A difference in a schema names the tool that it belongs to."""

    def prompt(words: str) -> ChatPrompt:
        tools = [
            {
                "type": "function",
                "function": {"name": name, "description": words if name == "read" else "as ever"},
            }
            for name in ("list", "read", "write")
        ]
        return ChatPrompt((Message("user", LONG),), tools=tuple(tools))

    bench.ask(prompt("Read a file."))
    found = bench.explain(prompt("Read one file.")).difference
    assert ("tools", "read", "tool_edited") == (found.role, found.tool, found.cause.name)
