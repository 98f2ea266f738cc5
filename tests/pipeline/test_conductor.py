"""The conductor carries a request from lane to lane and ends it exactly once."""

from collections.abc import Callable
from typing import Any, ClassVar

import pytest

from omlx.errors import CacheError, CancelledError, OmlxError, RequestError
from omlx.pipeline.conductor import Conductor, Lanes, device_steps, groups
from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Wait
from omlx.testing import fake_model, new_state

WORK = Wait(lambda: True)
SERVICES = Services(None)


class Log(list[str]):
    """What happened, in order; every stage writes here."""


class HostStage(Stage, frozen=True, tag="host"):
    """Writes its name; fails or cancels when told so."""

    label: str
    log: Any
    act: Callable[[State], None] = lambda _: None

    def run(self, state: State, services: Services) -> None:
        """Do it."""
        self.log.append(self.label)
        self.act(state)


class IoStage(HostStage, frozen=True, tag="io"):
    """The same on the lane of disks."""

    lane: ClassVar[Lane] = "io"


class OpenStage(Stage, frozen=True, tag="prefill"):
    """Asks for pieces of work, and counts the results; its sequence is there after the first."""

    assigns: ClassVar[tuple[str, ...]] = ("sequence",)
    lane: ClassVar[Lane] = "device"

    log: Any
    pieces: int = 2

    def run(self, state: State, services: Services) -> Steps:
        """Ask for it."""
        for number in range(self.pieces):
            result = yield WORK
            state.sequence = number  # type: ignore[assignment]
            self.log.append(f"prefill {number}: {result}")


class DecodeStage(OpenStage, frozen=True, tag="decode"):
    """Asks for one piece of work."""

    assigns: ClassVar[tuple[str, ...]] = ()

    def run(self, state: State, services: Services) -> Steps:
        """Ask for it."""
        self.log.append(f"decode: {(yield WORK)}")


class FollowStage(Stage, frozen=True, tag="follow"):
    """Follows the prefill, with a piece of work each time; takes an error as a miss."""

    lane: ClassVar[Lane] = "device"
    during: ClassVar[tuple[str, ...]] = ("prefill",)

    log: Any

    def run(self, state: State, services: Services) -> Steps:
        """Ask for it."""
        try:
            result = yield WORK
        except CacheError as error:
            result = error
        self.log.append(f"follow after {state.sequence}: {result}")


class TestLanes(Lanes):
    """Runs everything at once, where it is called, and writes down the lanes."""

    __test__ = False

    def __init__(self, log: Log, results: Callable[[int], Any] = lambda number: number) -> None:
        self.log = log
        self.results = results

    def submit(self, lane: Lane, work: Callable[[], None]) -> None:
        """Call it."""
        self.log.append(f"[{lane}]")
        work()

    def submit_steps(self, state: State, steps: Steps, done: Callable[[OmlxError | None], None]) -> None:
        """Drain them."""
        self.log.append("[device]")
        error = None
        try:
            drain(steps, self.results)
        except OmlxError as failure:
            error = failure
        done(error)


def drain(steps: Steps, results: Callable[[int], Any] = lambda number: number) -> None:
    """Answer each piece of work with `results(number)`; an exception is thrown in."""
    number, resume = 0, lambda: next(steps)
    while True:
        try:
            resume()
        except StopIteration:
            return
        value = results(number)
        number += 1
        resume = (
            (lambda value=value: steps.throw(value))
            if isinstance(value, Exception)
            else (lambda value=value: steps.send(value))
        )


@pytest.fixture
def log() -> Log:
    """Return an empty log."""
    return Log()


@pytest.fixture
def state(log: Log) -> State:
    """Return a fresh state that logs when it is announced."""
    state = new_state(fake_model(), "hello")
    state.announce = lambda _: log.append("announced")
    return state


def walk(stages: tuple[Stage, ...], state: State, lanes: Lanes) -> list[OmlxError | None]:
    """Walk a chain; return how it ended."""
    ends: list[OmlxError | None] = []
    Conductor(SERVICES, lanes).start(stages, state, ends.append)
    return ends


def test_neighbours_of_one_lane_go_together(log, state):
    """Stages run in order, one piece of work per run of a lane, and the end is told once."""
    stages = (
        HostStage(label="a", log=log),
        HostStage(label="b", log=log),
        IoStage(label="c", log=log),
        OpenStage(log=log, pieces=1),
        DecodeStage(log=log),
        HostStage(label="d", log=log),
    )
    assert ["host", "io", "device", "host"] == [group.lane for group in groups(stages)]
    assert [None] == walk(stages, state, TestLanes(log))
    expected = "[host] a b [io] c announced [device] prefill 0: 0|decode: 1|[host] d"
    assert expected == " ".join(log).replace("0: 0 decode: 1 ", "0: 0|decode: 1|")
    assert state.ended
    assert {"host", "io", "prefill", "decode"} == set(state.watch.seconds)


def test_an_empty_chain_ends(log, state):
    """A chain without stages has ended at once."""
    assert [None] == walk((), state, TestLanes(log))


def test_the_prompt_is_announced_once(log, state):
    """Of several device groups only the one that begins the sequence announces the request."""
    stages = (
        FollowStage(log=log),
        HostStage(label="a", log=log),
        OpenStage(log=log),
        HostStage(label="b", log=log),
        DecodeStage(log=log),
    )
    walk(stages, state, TestLanes(log))
    assert 1 == log.count("announced")
    assert log.index("a") < log.index("announced") < log.index("prefill 0: 0")


@pytest.mark.parametrize("kind", [HostStage, IoStage])
@pytest.mark.parametrize("error", [RequestError("no"), ZeroDivisionError("oops")])
def test_an_error_on_a_worker_lane_ends_the_request(log, state, kind, error):
    """The client's error passes unchanged, a fault of ours as an internal error; no later stage runs."""

    def fail(_: State) -> None:
        raise error

    [end] = walk((kind(label="a", log=log, act=fail), HostStage(label="b", log=log)), state, TestLanes(log))
    assert "b" not in log
    assert state.ended
    if isinstance(error, OmlxError):
        assert error is end
    else:
        assert "internal error: ZeroDivisionError; the server's log has the details" == str(end)
        assert error is end.__cause__


def test_an_error_on_the_device_lane_ends_the_request(log, state):
    """An error of a piece of work that its stage does not take ends the request; no later stage runs."""
    error = RequestError("no")
    stages = (OpenStage(log=log), HostStage(label="b", log=log))
    assert [error] == walk(stages, state, TestLanes(log, lambda _: error))
    assert "b" not in log


def test_a_closed_lane_ends_the_request(log, state):
    """When a lane or the client's side cannot take the request any more, it ends all the same."""

    class Closed(TestLanes):
        def submit(self, lane: Lane, work: Callable[[], None]) -> None:
            raise RuntimeError("cannot schedule new futures after shutdown")

    [end] = walk((HostStage(label="a", log=log),), state, Closed(log))
    assert "internal error: RuntimeError" in str(end)

    def fail(_: State) -> None:
        raise CancelledError("gone")

    state.announce = fail
    [end] = walk((OpenStage(log=log),), state, TestLanes(log))
    assert isinstance(end, CancelledError)


def test_a_cancelled_request_runs_no_further_stage(log, state):
    """Between two stages of a worker lane a client that has left is noticed."""

    def leave(state: State) -> None:
        state.cancelled = True

    stages = (HostStage(label="a", log=log, act=leave), HostStage(label="b", log=log), OpenStage(log=log))
    [end] = walk(stages, state, TestLanes(log))
    assert isinstance(end, CancelledError)
    assert ["[host]", "a"] == log


def test_a_follower_runs_after_each_step_and_in_its_place(log, state):
    """After every step, the last included, the follower sees what the step did; then it has its own turn."""
    drain(
        device_steps(
            (OpenStage(log=log, pieces=2), DecodeStage(log=log), FollowStage(log=log)), state, SERVICES
        )
    )
    assert [
        "prefill 0: 0",
        "follow after 0: 1",
        "prefill 1: 2",
        "follow after 1: 3",
        "decode: 4",
        "follow after 1: 5",
    ] == log


def test_a_cancelled_prefill_runs_its_follower_once_more(log, state):
    """Cancelled in the middle, the step that ran is still followed, and then nothing else runs."""

    def results(number: int) -> int:
        state.cancelled = number == 2
        return number

    steps = device_steps(
        (OpenStage(log=log, pieces=9), DecodeStage(log=log), FollowStage(log=log)), state, SERVICES
    )
    with pytest.raises(CancelledError):
        drain(steps, results)
    assert ["prefill 0: 0", "follow after 0: 1", "follow after 0: 3"] == log


def test_cancelled_before_there_is_a_sequence_nothing_follows(log, state):
    """A request that is cancelled before its sequence exists has nothing to keep."""
    state.cancelled = True
    with pytest.raises(CancelledError):
        drain(device_steps((OpenStage(log=log), FollowStage(log=log)), state, SERVICES))
    assert [] == log


def test_a_failed_piece_is_raised_in_the_stage_that_asked(log, state):
    """A follower may take the failure of its own piece as a miss, and the prefill goes on."""

    def results(number: int) -> Any:
        return CacheError("gone") if number == 1 else number

    drain(device_steps((OpenStage(log=log, pieces=2), FollowStage(log=log)), state, SERVICES), results)
    assert [
        "prefill 0: 0",
        "follow after 0: gone",
        "prefill 1: 2",
        "follow after 1: 3",
        "follow after 1: 4",
    ] == log


def test_a_device_stage_may_have_nothing_to_do(log, state):
    """A device stage that is no generator, or yields nothing, is passed over."""

    class Idle(Stage, frozen=True, tag="idle"):
        lane: ClassVar[Lane] = "device"

        def run(self, state: State, services: Services) -> None:
            log.append("idle")

    drain(device_steps((Idle(), OpenStage(log=log, pieces=0), Idle()), state, SERVICES))
    assert ["idle", "idle"] == log
