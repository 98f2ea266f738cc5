"""drive: walk a request down its chain on the calling thread, to the end."""

from collections.abc import Callable, Iterable
from typing import Any, Protocol

from omlx.errors import OmlxError
from omlx.pipeline.conductor import Conductor, Done, internal_error
from omlx.pipeline.model import Model
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Wait, Work
from omlx.testing.guarded import guarded
from omlx.text.chat import ChatPrompt, Message, Prompt
from omlx.text.delta import AnswerDelta, TextDelta
from omlx.types import RequestId

#: Sees each piece of work before it is run.
Watch = Callable[[Work], None]


class Runs(Protocol):
    """Carries out work: a `FakeExecutor`, or the engine's own."""

    def run(self, work: Work) -> Any:
        """Return the work's result."""
        ...


class InlineLanes:
    """Meets `omlx.pipeline.conductor.Lanes` by running everything at once, where it is called."""

    def __init__(self, executor: Runs, watch: Watch | None = None) -> None:
        self._executor = executor
        self._watch = watch

    def submit(self, lane: Lane, work: Callable[[], None]) -> None:  # noqa: ARG002 - every lane is the caller's
        """Call `work`."""
        work()

    def submit_steps(self, state: State, steps: Steps, done: Done) -> None:  # noqa: ARG002 - the lanes' signature
        """Drive `steps` to their end, then call `done`."""
        try:
            self._drive(steps)
        except OmlxError as error:
            done(error)
        except Exception as error:  # noqa: BLE001 - as the device loop does; `drive` raises it again
            done(internal_error(error))
        else:
            done(None)

    def _drive(self, steps: Steps) -> None:
        work = next(steps, None)
        while work is not None:
            try:
                result = self._run(work)
            except Exception as error:  # noqa: BLE001 - handed to the stage that asked
                work = _after(steps.throw, error)
            else:
                work = _after(steps.send, result)

    def _run(self, work: Work) -> Any:
        if self._watch:
            self._watch(work)
        if isinstance(work, Wait):
            if not work.ready():
                raise AssertionError("waits for another request, but there is none on this thread")
            return None
        return self._executor.run(work)


def _after(go_on: Callable[[Any], Work], value: object) -> Work | None:
    """Give a generator a result or an error; return its next piece of work, None at its end."""
    try:
        return go_on(value)
    except StopIteration:
        return None


def drive(
    stages: Iterable[Stage], state: State, services: Services, executor: Runs, watch: Watch | None = None
) -> State:
    """Run the chain on the state, each stage held to its declaration; return the state.

    Raises the error that ended the request; for a fault of a stage or the executor the fault itself.
    """
    ends: list[OmlxError | None] = []
    conductor = Conductor(services, InlineLanes(executor, watch))
    conductor.start(tuple(guarded(stage) for stage in stages), state, ends.append)
    [error] = ends
    if error is not None:
        raise error.__cause__ or error
    return state


def new_state(
    model: Model, prompt: Prompt | str, *, sink: list[AnswerDelta] | None = None, **options: Any
) -> State:
    """Return a fresh state for a prompt; plain text is one user message. `options` are those of a Request.

    What the client is sent goes to `sink`.
    """
    asked = ChatPrompt((Message("user", prompt),)) if isinstance(prompt, str) else prompt
    request = Request(id=RequestId("request-1"), model=model.name, prompt=asked, **options)
    return State(request, model, (sink if sink is not None else []).append, lambda _: None)


def text_of(deltas: Iterable[AnswerDelta]) -> str:
    """Return the visible text of an answer."""
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta))
