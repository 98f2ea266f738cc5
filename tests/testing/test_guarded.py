"""A guarded state holds a stage to what it declares."""

from typing import ClassVar

import pytest

from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import State
from omlx.pipeline.work import Wait
from omlx.testing import GuardedState, UndeclaredAccessError, drive, fake_model, guarded, new_state

SERVICES = Services(None)


class Honest(Stage, frozen=True, tag="honest"):
    """Does what it declares."""

    requires: ClassVar[tuple[str, ...]] = ("request",)
    uses: ClassVar[tuple[str, ...]] = ("prompt",)
    assigns: ClassVar[tuple[str, ...]] = ("text", "volume")

    factor: int = 2

    def run(self, state: State, services: Services) -> None:
        """Read and assign declared fields and the tools of the trade."""
        state.check_cancelled()
        state.text = str(state.request.id) + str(state.prompt)
        state.volume = len(state.text) * self.factor
        state.watch.add("honest", 1.0)


class Peeking(Honest, frozen=True, tag="peeking"):
    """Reads what it does not declare."""

    uses: ClassVar[tuple[str, ...]] = ()


class Meddling(Honest, frozen=True, tag="meddling"):
    """Assigns what it does not declare."""

    assigns: ClassVar[tuple[str, ...]] = ("text",)


class PeekingOnDevice(Stage, frozen=True, tag="peeking-on-device"):
    """Reads what it does not declare, after its first piece of work."""

    lane: ClassVar[Lane] = "device"

    def run(self, state: State, services: Services) -> Steps:
        """Ask for a piece of work, then peek."""
        yield Wait(lambda: True)
        len(state.tokens)


def test_declared_fields_go_through():
    """Declared reads and writes reach the real state, of fields of other names too."""
    state = new_state(fake_model(), "x")
    guarded(Honest(factor=3)).run(state, SERVICES)
    assert ("request-1None", 39) == (state.text, state.volume)
    assert {"honest": 1.0} == state.watch.seconds


@pytest.mark.parametrize(
    ("stage", "words"),
    [
        (Peeking(), "stage 'peeking' reads 'prompt'; declare it in `requires` or `uses`"),
        (Meddling(), "stage 'meddling' assigns 'volume'; declare it in `assigns`"),
        (PeekingOnDevice(), "stage 'peeking-on-device' reads 'tokens'"),
    ],
)
def test_undeclared_access_is_raised(stage, words):
    """A read or write that is not declared fails loudly, on a worker lane and on the device lane."""
    with pytest.raises(UndeclaredAccessError, match=words):
        drive([stage], new_state(fake_model(), "x"), SERVICES, None)


def test_a_guarded_stage_is_the_stage():
    """The stage in the guard keeps name, declaration and values."""
    stage = guarded(Honest(factor=7))
    assert isinstance(stage, Honest)
    assert ("honest", 7, Honest.assigns) == (stage.name(), stage.factor, stage.assigns)


def test_a_requirement_may_not_be_assigned():
    """To require a field is to read it."""
    state = GuardedState(new_state(fake_model(), "x"), Honest)
    with pytest.raises(UndeclaredAccessError):
        state.request = None
