"""A request's stages in time, and those who listen."""

import time

from omlx.pipeline.timeline import Listeners, StageEvent, Timeline
from omlx.text.delta import Usage
from omlx.types import RequestId


def _timeline(listeners: Listeners | None = None) -> Timeline:
    return Timeline(RequestId("r"), "m", listeners)


def test_a_stage_is_one_span_however_many_steps_it_has():
    """Steps of a stage add up; its span goes from the first to the last; seconds are those of the stopwatch."""
    watch = _timeline()
    for _ in range(2):
        started = time.perf_counter()
        time.sleep(0.002)
        watch.since("prefill", started)
        time.sleep(0.002)
    [span] = watch.spans()
    assert "prefill" == span.stage
    assert 0 < span.busy_s < span.ended_s - span.began_s <= watch.total_s()
    assert abs(watch.seconds["prefill"] - span.busy_s) < 1e-5


def test_spans_are_in_the_order_of_time():
    """Stages are listed by when they began, not by when they first ended a step."""
    watch = _timeline()
    early = time.perf_counter()
    time.sleep(0.002)
    late = time.perf_counter()
    watch.since("second", late)
    watch.since("first", early)
    assert ["first", "second"] == [span.stage for span in watch.spans()]


def test_listeners_hear_everything_until_they_leave():
    """Who is added hears of each event with its place in time; who has left hears no more."""
    listeners, heard = Listeners(), []
    assert not listeners
    deaf = listeners.add(heard.append)
    watch = _timeline(listeners)
    watch.began("lookup")
    watch.since("lookup", time.perf_counter())
    watch.ended("lookup")
    watch.say("finished", usage=Usage(3))
    deaf()
    deaf()
    watch.say("failed", error="too late")
    assert [("arrived", None), ("began", "lookup"), ("ended", "lookup"), ("finished", None)] == [
        (event.event, event.stage) for event in heard
    ]
    assert 3 == heard[-1].usage.prompt_tokens
    assert [event.at_s for event in heard] == sorted(event.at_s for event in heard)
    assert not listeners


def test_one_listener_does_not_remove_another():
    """Two listeners come and go by themselves."""
    listeners, left, right = Listeners(), [], []
    gone = listeners.add(left.append)
    listeners.add(right.append)
    gone()
    listeners.tell(StageEvent(RequestId("r"), "m", "arrived", 0.0))
    assert (0, 1) == (len(left), len(right))
