"""The scheduler decides; these tests hold what it promises."""

from omlx.engine.scheduler import Pending, may_share, plan_round


def test_every_decoding_task_is_served_in_each_round():
    """No stream waits for a prefill: all decoding tasks come first, in order."""
    pending = [Pending(1, "decode", 5), Pending(2, "prefill", 0), Pending(3, "decode", 9)]
    assert [1, 3, 2] == plan_round(pending)


def test_prefills_take_turns():
    """Of several prefills the one that waited longest gets its piece; no round runs two."""
    served = {1: 0, 2: 0, 3: 0}
    order = []
    for number in range(1, 7):
        (chosen,) = plan_round(Pending(task, "prefill", last, 512) for task, last in served.items())
        served[chosen] = number
        order.append(chosen)
    assert [1, 2, 3, 1, 2, 3] == order


def test_short_remainders_share_a_slice():
    """Pieces that together are no longer than a slice, or than the longest that waits, run in one round, in turn."""
    short = [Pending(1, "prefill", 3, 200), Pending(2, "prefill", 1, 200), Pending(3, "prefill", 2, 200)]
    assert [2, 3] == plan_round(short)
    pending = [Pending(1, "prefill", 3, 512), Pending(2, "prefill", 1, 10), Pending(3, "prefill", 2, 502)]
    assert [2, 3] == plan_round(pending)
    assert [2, 3, 1] == plan_round(
        [*pending[1:], Pending(1, "prefill", 3, 600), Pending(4, "prefill", 9, 1112)]
    )


def test_company_is_refused_where_padding_would_cost_more_than_it_saves():
    """A long sequence and a short one do not share a batch; those of similar length and short ones do."""
    assert may_share([], 100_000)
    assert may_share([1000, 900], 1200)
    assert may_share([10], 600)
    assert not may_share([50_000], 1000)


def test_a_sequence_that_has_run_nothing_is_alone():
    """Its caches have no shape yet: it neither joins nor is joined."""
    assert may_share([], 0)
    assert not may_share([10], 0)
    assert not may_share([0], 10)


def test_nothing_to_do_is_an_empty_plan():
    """An idle engine plans nothing."""
    assert [] == plan_round([])
