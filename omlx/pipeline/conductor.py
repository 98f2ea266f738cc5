"""Walk a request down its chain, one lane after the other.

    host ──▶ host ──▶ device ─ ─ ─ ─ ─ ─ ─ ─▶ host
    tokenize lookup   prefill decode writeback  ...
                      └ one generator of work ┘

Neighbouring stages of one lane run as one piece. Those of the device lane are joined into a single generator,
with the stages that follow `during` others run after each of their steps.
"""

import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Protocol

import structlog

from omlx.errors import CancelledError, OmlxError
from omlx.pipeline.stage import Lane, Services, Stage, Steps, grid_of
from omlx.pipeline.state import State
from omlx.pipeline.work import Work

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


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of a piece of work, or the error with which it failed."""

    result: Any = None
    error: Exception | None = None


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
        state.grid = grid_of(stages)
        _Walk(self._services, self._lanes, iter(groups(stages)), state, done).advance()


@dataclass
class _Walk:
    """One request on its way. Mutable: the groups that are left."""

    services: Services
    lanes: Lanes
    rest: Iterator[Group]
    state: State
    done: Done

    def advance(self, error: OmlxError | None = None) -> None:
        """Go on with the next group; end when there is none, or with the error of the last."""
        group = next(self.rest, None) if error is None else None
        if group is None:
            self._end(error)
            return
        try:
            self._submit(group)
        except OmlxError as failure:
            self._end(failure)
        except Exception as failure:  # the boundary to whoever takes the work: a closed lane, a client's sink
            log.exception("request cannot go on", request=self.state.request.id, lane=group.lane)
            self._end(internal_error(failure))

    def _end(self, error: OmlxError | None) -> None:
        self.state.ended = True
        state = self.state
        if error is None and state.tokens is not None:
            self.services.costs.walked(state.model.fingerprint, len(state.tokens), state.watch.seconds)
        self.done(error)

    def _submit(self, group: Group) -> None:
        if group.lane != "device":
            self.lanes.submit(group.lane, lambda: self._run(group))
            return
        if any("sequence" in stage.assigns for stage in group.stages):
            self.state.announce(self.state)
        steps = device_steps(group.stages, self.state, self.services)
        self.lanes.submit_steps(self.state, steps, self.advance)

    def _run(self, group: Group) -> None:
        """Run a group of the host or io lane, on a thread of that lane."""
        try:
            for stage in group.stages:
                self.state.check_cancelled()
                self.state.watch.began(stage.name())
                started = time.perf_counter()
                stage.run(self.state, self.services)
                self.state.watch.since(stage.name(), started)
                self.state.watch.ended(stage.name())
        except OmlxError as error:
            self.advance(error)
        except Exception as error:  # the boundary of the host and io lanes
            log.exception("stage failed", request=self.state.request.id, lane=group.lane)
            self.advance(internal_error(error))
        else:
            self.advance()


def internal_error(error: BaseException) -> OmlxError:
    """Return the error a client sees for a fault of ours; the log has the traceback."""
    wrapped = OmlxError(f"internal error: {type(error).__name__}", hint="the server's log has the details")
    wrapped.__cause__ = error
    return wrapped


def device_steps(stages: tuple[Stage, ...], state: State, services: Services) -> Steps:
    """Join device stages into one generator of work.

    A stage that runs `during` others is run after each of their steps, and in its own place. When the request
    is cancelled it is run once more, so that what was computed is kept. A piece that fails raises in the
    stage that asked for it.
    """
    try:
        for stage in stages:
            followers = [other for other in stages if stage.name() in other.during]
            yield from _followed(stage, followers, state, services)
    except CancelledError:
        state.cancelled = True
        if state.sequence is not None:
            for stage in stages:
                if stage.during:
                    yield from _timed(stage, state, services)
        raise


def _followed(stage: Stage, followers: list[Stage], state: State, services: Services) -> Steps:
    """Run a stage; after each of its steps, the last included, run its followers."""
    steps = _timed(stage, state, services)
    outcome: Outcome | None = None
    state.watch.began(stage.name())
    while True:
        state.check_cancelled()
        work = _resume(steps, outcome)
        if outcome is not None:
            for follower in followers:
                yield from _timed(follower, state, services)
        if work is None:
            state.watch.ended(stage.name())
            return
        outcome = yield from _outcome(work)


def _timed(stage: Stage, state: State, services: Services) -> Steps:
    """Run a device stage, adding the time until each result came to the stage's seconds."""
    steps = stage.run(state, services)
    outcome: Outcome | None = None
    while steps is not None:
        started = time.perf_counter()
        work = _resume(steps, outcome)
        if work is not None:
            outcome = yield from _outcome(work)
        state.watch.since(stage.name(), started)
        if work is None:
            return


def _resume(steps: Steps, outcome: Outcome | None) -> Work | None:
    """Give a generator the outcome of its last piece; return the next piece, or None when it has ended."""
    try:
        if outcome is None:
            return next(steps)
        return steps.throw(outcome.error) if outcome.error is not None else steps.send(outcome.result)
    except StopIteration:
        return None


def _outcome(work: Work) -> Generator[Work, Any, Outcome]:
    """Yield one piece of work; return how it went."""
    try:
        return Outcome((yield work))
    except Exception as error:  # noqa: BLE001 - handed on to the stage that asked for the piece
        return Outcome(error=error)
