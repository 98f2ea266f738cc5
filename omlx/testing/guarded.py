"""GuardedState: holds a stage to its declaration."""

import types
from typing import Any, cast

from omlx.pipeline.stage import Services, Stage, Steps
from omlx.pipeline.state import FREE_FIELDS, State


class UndeclaredAccessError(AssertionError):
    """A stage read or assigned a field of the state that its declaration does not name."""


class GuardedState:
    """Wraps a state for one stage: it reads what it `requires`, `uses` or `assigns`, and assigns the last."""

    def __init__(self, state: State, kind: type[Stage]) -> None:
        object.__setattr__(self, "_state", state)
        object.__setattr__(self, "_kind", kind)

    def __getattr__(self, name: str) -> Any:
        kind = self._kind
        if name not in FREE_FIELDS and name not in (*kind.requires, *kind.uses, *kind.assigns):
            raise UndeclaredAccessError(
                f"stage {kind.name()!r} reads {name!r}; declare it in `requires` or `uses`"
            )
        return getattr(self._state, name)

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._kind.assigns:
            raise UndeclaredAccessError(
                f"stage {self._kind.name()!r} assigns {name!r}; declare it in `assigns`"
            )
        setattr(self._state, name, value)


def guarded(stage: Stage) -> Stage:
    """Return the stage with its `run` given a guarded state."""
    kind = type(stage)

    def run(self: Stage, state: State, services: Services) -> Steps | None:
        return kind.run(self, _guard(state, kind), services)

    keywords = {"frozen": True, "tag": kind.name()}
    twin = types.new_class(f"Guarded{kind.__name__}", (kind,), keywords, lambda body: body.update(run=run))
    return cast("Stage", twin(**{name: getattr(stage, name) for name in stage.__struct_fields__}))


def _guard(state: State, kind: type[Stage]) -> State:
    """Return the state as a stage may use it: the same object each time, which lives as long as the state.

    Services may hold a state weakly; what they were given is the guard.
    """
    guards: dict[type[Stage], GuardedState] = vars(state).setdefault("_guards", {})
    return cast("State", guards.setdefault(kind, GuardedState(state, kind)))
