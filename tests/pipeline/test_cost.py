"""Plans from measured rates: what is clearly faster is done, and no bad measurement decides for ever."""

import pytest

from omlx.pipeline.cost import CostBook, Rates, make_plan
from omlx.prefix.hasher import Chain
from omlx.prefix.match import Match, Step, plan_match
from omlx.types import as_tokens
from tests.sequences import FULL, MODEL

TOKENS = 4096
#: Restoring is ten times slower than computing, and costs seconds.
SLOW = Rates(prefill=4096.0, restore=FULL.record_bytes("kv", TOKENS) / 10)


def match() -> Match:
    """Return a match of a whole prompt in one block, in RAM."""
    block = Chain(MODEL).cut(as_tokens(range(TOKENS)))
    return plan_match(MODEL, [Step(block, TOKENS)], FULL, lambda _: {"kv": "hot"}, TOKENS - 1)


def book(rates: Rates) -> CostBook:
    """Return a book that has measured these rates, at full weight."""
    made = CostBook(None)
    made.know(MODEL, FULL)
    made.observe(MODEL, "prefill", rates.prefill, 1.0)
    made.observe(MODEL, "restore", 10 * rates.restore, 10.0)
    return made


def decision(rates: Rates, **options: bool) -> str:
    """Return what is decided for the match."""
    return make_plan(TOKENS, match(), FULL, rates, 16, **options).decision


@pytest.mark.parametrize(
    ("rates", "expected"),
    [
        (Rates(), "restore"),
        (Rates(prefill=4096.0), "restore"),
        (SLOW, "compute"),
        (Rates(prefill=4096.0, restore=SLOW.restore * 9), "restore"),
    ],
    ids=["nothing measured", "restoring never measured", "ten times slower", "slower, but not clearly"],
)
def test_a_match_is_computed_only_where_that_is_clearly_faster(rates, expected):
    """Without rates, or where little is to be gained, what is stored is restored."""
    assert expected == decision(rates)


def test_reuse_is_restored_whatever_was_measured():
    """With `prefer_reuse` the rates are told, and decide nothing."""
    plan = make_plan(TOKENS, match(), FULL, SLOW, 16, prefer_reuse=True)
    assert ("restore", TOKENS - 1) == (plan.decision, plan.resume)
    assert plan.restore_s > plan.cold_run_s


def test_a_bad_measurement_is_doubted_until_restoring_is_tried_again():
    """Passed over again and again, restoring is tried within a hundred prompts; measured anew, it is believed."""
    costs, passed = book(SLOW), 0
    while decision(costs.rates(MODEL)) == "compute":
        costs.pass_over(MODEL)
        passed += 1
    assert 50 <= passed <= 100
    costs.observe(MODEL, "restore", 10 * SLOW.restore, 10.0)
    assert "compute" == decision(costs.rates(MODEL))


def test_a_dry_run_doubts_nothing():
    """A book at rest tells what the running one does, and takes nothing in."""
    costs = book(SLOW)
    costs.pass_over(MODEL)
    rest, before = costs.at_rest(), costs.rates(MODEL)
    rest.pass_over(MODEL)
    assert before == rest.rates(MODEL) == costs.rates(MODEL)
