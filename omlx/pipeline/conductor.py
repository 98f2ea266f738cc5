"""Walk a request down its chain, one lane after the other.

    host ──▶ host ──▶ device ─ ─ ─ ─ ─ ─ ─ ─▶ host
    tokenize lookup   prefill decode writeback  ...
                      └ one generator of work ┘

Neighbouring stages of one lane run as one piece. Those of the device lane are joined into a single generator,
with the stages that follow `during` others run after each of their steps.
"""

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import structlog

from omlx.errors import CancelledError, OmlxError
from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import State

Done = Callable[[OmlxError | None], None]

log = structlog.get_logger()


class Lanes(Protocol):
    """Run work on the host and io lanes; run a generator of device work."""

    def submit(self, lane: Lane, work: Callable[[], None]) -> None:
        """Call `work` on a worker thread of the lane, some time soon."""
        ...

    def submit_steps(self, state: State, steps: Steps, done: Done) -> None:
        """Drive `steps` on the device thread, then call `done` with the error that ended it, or None."""
        ...


@dataclass(frozen=True)
class Group:
    """Neighbouring stages of one lane."""

    lane: Lane
    stages: tuple[Stage, ...]


def groups(stages: tuple[Stage, ...]) -> list[Group]:
    """Return the chain cut where the lane changes."""
    return [Group(lane, tuple(part)) for lane, part in groupby(stages, key=lambda stage: stage.lane)]


class Conductor:
    """Start requests down a chain and carry them from lane to lane. Holds no state between requests."""

    def __init__(self, services: Services, lanes: Lanes) -> None:
        self._services = services
        self._lanes = lanes

    def start(self, stages: tuple[Stage, ...], state: State, done: Done) -> None:
        """Run the chain on the state; call `done` once, from some thread, when it has ended."""

        def end(error: OmlxError | None) -> None:
            state.ended = True
            done(error)

        self._advance(iter(groups(stages)), state, end)

    def _advance(self, rest: Iterator[Group], state: State, done: Done) -> None:
        group = next(rest, None)
        if group is None:
            done(None)
        elif group.lane == "device":
            if any("sequence" in stage.assigns for stage in group.stages):
                state.announce(state)
            steps = device_steps(group.stages, state, self._services)
            self._lanes.submit_steps(state, steps, self._then(rest, state, done))
        else:
            self._lanes.submit(group.lane, lambda: self._run_group(group, rest, state, done))

    def _then(self, rest: Iterator[Group], state: State, done: Done) -> Done:
        return lambda error: done(error) if error else self._advance(rest, state, done)

    def _run_group(self, group: Group, rest: Iterator[Group], state: State, done: Done) -> None:
        try:
            for stage in group.stages:
                state.check_cancelled()
                started = time.perf_counter()
                stage.run(state, self._services)
                state.watch.since(stage.name(), started)
        except OmlxError as error:
            done(error)
        except Exception as error:  # the boundary of the host and io lanes
            log.exception("stage failed", request=state.request.id, lane=group.lane)
            done(internal_error(error))
        else:
            self._advance(rest, state, done)


def internal_error(error: BaseException) -> OmlxError:
    """Return the error a client sees for a fault of ours; the log has the traceback."""
    wrapped = OmlxError(f"internal error: {type(error).__name__}", hint="the server's log has the details")
    wrapped.__cause__ = error
    return wrapped


def device_steps(stages: tuple[Stage, ...], state: State, services: Services) -> Steps:
    """Join device stages into one generator of work.

    A stage that runs `during` others is run after each of their steps, and in its own place. When the request is
    cancelled it is run once more, so that what was computed is kept.
    """
    try:
        for stage in stages:
            followers = [s for s in stages if stage.name() in s.during]
            yield from _stage_steps(stage, followers, state, services)
    except CancelledError:
        state.cancelled = True
        if state.sequence is not None:
            for stage in stages:
                if stage.during:
                    yield from _timed(stage, state, services)
        raise


def _stage_steps(stage: Stage, followers: list[Stage], state: State, services: Services) -> Steps:
    """Run a stage; after each of its steps run its followers."""
    steps = _timed(stage, state, services)
    result: Any = None
    while True:
        state.check_cancelled()
        try:
            work = steps.send(result)
        except StopIteration:
            return
        if result is not None or state.sequence is not None:
            for follower in followers:
                yield from _timed(follower, state, services)
        result = yield work


def _timed(stage: Stage, state: State, services: Services) -> Steps:
    """Run a device stage, adding the time until each result came to the stage's seconds."""
    steps = stage.run(state, services)
    if steps is None:
        return
    result: Any = None
    started = time.perf_counter()
    try:
        while True:
            work = steps.send(result)
            result = yield work
            state.watch.since(stage.name(), started)
            started = time.perf_counter()
    except StopIteration:
        state.watch.since(stage.name(), started)
