"""The scheduler decides; these tests hold what it promises."""

from omlx.engine.scheduler import Pending, plan_round


def test_every_decoding_task_is_served_in_each_round():
    """No stream waits for a prefill: all decoding tasks come first, in order."""
    pending = [Pending(1, "decode", 5), Pending(2, "prefill", 0), Pending(3, "decode", 9)]
    assert [1, 3, 2] == plan_round(pending)


def test_prefills_take_turns():
    """Of several prefills the one that waited longest gets its piece; no round runs two."""
    served = {1: 0, 2: 0, 3: 0}
    order = []
    for number in range(1, 7):
        (chosen,) = plan_round(Pending(task, "prefill", last) for task, last in served.items())
        served[chosen] = number
        order.append(chosen)
    assert [1, 2, 3, 1, 2, 3] == order


def test_nothing_to_do_is_an_empty_plan():
    """An idle engine plans nothing."""
    assert [] == plan_round([])
