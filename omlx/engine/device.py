"""The device thread: the one thread that owns MLX.

    inbox ──▶ tasks ──plan_round──▶ one decode step for all that decode, ──▶ send each generator its result ─┐
                ▲                   then a slice of prefill                                                 │
                └────────────────────────────── the next piece it asks for ◀────────────────────────────────┘

Captures are run at once, as part of the step they belong to.
"""

import queue
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Protocol, TypeVar

import mlx.core as mx
import structlog

from omlx.engine.scheduler import Demand, Pending, plan_round
from omlx.errors import OmlxError
from omlx.pipeline.conductor import Done, internal_error
from omlx.pipeline.stage import Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Capture, Decode, Decoded, Prefill, Wait, Work

T = TypeVar("T")

log = structlog.get_logger()

#: How often waiting tasks are looked at while nothing else is to be computed.
WAIT_POLL_S = 0.002


class Runs(Protocol):
    """Carries out work: `omlx.engine.executor.Executor`, or the fake in `omlx.testing`."""

    def run(self, work: Work) -> Any:
        """Return the result of any work but `Decode`."""
        ...

    def decode(self, works: Sequence[Decode]) -> Sequence[Decoded | None]:
        """Run one step for all; return what became of each, None for one whose token comes with the next step."""
        ...

    def forget(self, sequence: Any) -> None:
        """Hold nothing of a sequence any more: its request has ended."""
        ...

    def num_rows(self) -> int:
        """Return how many sequences the batches hold. Asked from any thread."""
        ...


@dataclass
class Task:
    """A generator of work and the piece it waits for."""

    state: State
    steps: Steps
    done: Done
    work: Work | None = None
    served: int = 0

    @property
    def demand(self) -> Demand:
        """Return which queue the waiting piece belongs to."""
        return "decode" if isinstance(self.work, Decode) else "prefill"

    @property
    def tokens(self) -> int:
        """Return the size of the waiting piece: the tokens of a prompt that it runs."""
        return self.work.end - self.work.sequence.offset if isinstance(self.work, Prefill) else 0


@dataclass
class _Call:
    """A function to be run on the device thread."""

    function: Callable[[], Any]
    future: "Future[Any]" = field(default_factory=Future)


class DeviceThread:
    """Own the device: interleave the work of all tasks, and run functions such as loading a model.

    Args:
        executor: carries out the work; used on this thread only.
    """

    def __init__(self, executor: Runs) -> None:
        self._executor = executor
        self._inbox: queue.SimpleQueue[Task | _Call | None] = queue.SimpleQueue()
        self._tasks: dict[int, Task] = {}
        self._numbers = count()
        self._round = 0
        self._thread = threading.Thread(target=self._run, name="omlx-device", daemon=True)
        self._lost = False
        self._lock = threading.Lock()  # between the last look into the inbox and what still arrives

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def alive(self) -> bool:
        """Tell whether the thread runs."""
        return self._thread.is_alive()

    def num_rows(self) -> int:
        """Return how many sequences the batches hold."""
        return self._executor.num_rows()

    def submit_steps(self, state: State, steps: Steps, done: Done) -> None:
        """Drive a generator of work to its end, then call `done`."""
        self._put(Task(state, steps, done))

    def call(self, function: Callable[[], T]) -> "Future[T]":
        """Run a function on this thread, between two rounds."""
        item = _Call(function)
        self._put(item)
        return item.future

    def close(self, timeout_s: float = 10.0) -> None:
        """Give up the tasks and end the thread. Cancel requests first."""
        self._inbox.put(None)
        self._thread.join(timeout_s)

    def _put(self, item: Task | _Call) -> None:
        with self._lock:
            if not self._lost:
                self._inbox.put(item)
                return
        _refuse(item)

    def _run(self) -> None:
        try:
            self._loop()
        except BaseException:
            log.critical("the device thread has ended", exc_info=True)
            self._lose()
            raise
        finally:
            # mlx 0.32: the streams of a thread that has ended abort the process at its exit, six times in ten
            mx.clear_streams()

    def _lose(self) -> None:
        """Fail all that waits for the thread, now and from now on: nothing may hang on a thread that is gone."""
        with self._lock:
            self._lost = True
        waiting: list[Task | _Call] = list(self._tasks.values())
        self._tasks.clear()
        while not self._inbox.empty():
            item = self._inbox.get()
            waiting += [item] if item is not None else []
        for item in waiting:
            _refuse(item)

    def _loop(self) -> None:
        while self._receive():
            self._round += 1
            self._wake()
            pending = [
                Pending(n, task.demand, task.served, task.tokens)
                for n, task in self._tasks.items()
                if not isinstance(task.work, Wait)
            ]
            planned = plan_round(pending)
            self._decode([number for number in planned if self._tasks[number].demand == "decode"])
            for number in planned:
                if number in self._tasks and self._tasks[number].served < self._round:
                    self._serve(number)

    def _wake(self) -> None:
        """Go on with the tasks whose waiting is over, or whose client has left."""
        for number, task in list(self._tasks.items()):
            if isinstance(task.work, Wait) and (task.state.cancelled or task.work.ready()):
                self._resume(number, task, None)

    def _receive(self) -> bool:
        """Take in what has arrived, waiting when there is nothing to do. Return False to end."""
        while True:
            try:
                item = self._inbox.get(block=self._idle(), timeout=WAIT_POLL_S if self._tasks else None)
            except queue.Empty:
                return True
            if item is None:
                return False
            if isinstance(item, _Call):
                self._call(item)
            else:
                number = next(self._numbers)
                self._tasks[number] = item
                item.served = self._round
                self._resume(number, item, None)

    def _idle(self) -> bool:
        """Tell whether there is nothing to compute: no task, or all of them wait for something."""
        return all(isinstance(task.work, Wait) for task in self._tasks.values())

    @staticmethod
    def _call(item: _Call) -> None:
        if not item.future.set_running_or_notify_cancel():
            return
        try:
            item.future.set_result(item.function())
        except Exception as error:  # noqa: BLE001 - handed to whoever waits for the result
            item.future.set_exception(error)
        except BaseException as error:
            item.future.set_exception(error)
            raise

    def _decode(self, numbers: list[int]) -> None:
        """Run one step for all tasks that decode, and hand out the tokens that are known."""
        tasks = {number: self._tasks[number] for number in numbers}
        for task in tasks.values():
            task.served = self._round
        results = self._decoded([task.work for task in tasks.values() if isinstance(task.work, Decode)])
        for (number, task), result in zip(tasks.items(), results, strict=True):
            if result is not None:
                self._resume(number, task, result.token, result.error)
                self._capture(number, task)

    def _decoded(self, works: list[Decode]) -> Sequence[Decoded | None]:
        try:
            return self._executor.decode(works) if works else []
        except Exception as error:  # noqa: BLE001 - the boundary of the device loop
            return [Decoded(error=error)] * len(works)

    def _serve(self, number: int) -> None:
        """Run the piece a task waits for, and the captures that follow it."""
        task = self._tasks[number]
        task.served = self._round
        self._run_piece(number, task)
        self._capture(number, task)

    def _capture(self, number: int, task: Task) -> None:
        while number in self._tasks and isinstance(task.work, Capture):
            self._run_piece(number, task)

    def _run_piece(self, number: int, task: Task) -> None:
        assert task.work is not None  # a task in the table always waits for a piece
        try:
            result = self._executor.run(task.work)
        except Exception as error:  # noqa: BLE001 - the boundary of the device loop: one request fails, others go on
            self._resume(number, task, None, error)
        else:
            self._resume(number, task, result)

    def _resume(self, number: int, task: Task, result: Any, error: Exception | None = None) -> None:
        """Give a task its result (or the error of its piece) and learn what it wants next."""
        try:
            task.work = task.steps.throw(error) if error else task.steps.send(result)
        except StopIteration:
            self._end(number, None)
        except OmlxError as failure:
            self._end(number, failure)
        except Exception as failure:  # the boundary of the device loop
            log.exception("request failed on the device", request=task.state.request.id)
            self._end(number, internal_error(failure))

    def _end(self, number: int, error: OmlxError | None) -> None:
        task = self._tasks.pop(number)
        if task.state.sequence is not None:
            self._executor.forget(task.state.sequence)
        task.done(error)


def _refuse(item: Task | _Call) -> None:
    """Fail what nobody will run."""
    error = OmlxError(
        "the device thread has ended", hint="the server has to be started again; its log says why"
    )
    if isinstance(item, Task):
        item.done(error)
    elif item.future.set_running_or_notify_cancel():
        item.future.set_exception(error)
