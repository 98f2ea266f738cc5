"""dry_run: walk a request down its chain as far as that changes nothing.

The stages are the real ones, on a real state, so a dry run cannot drift from a run: what is decided before the
first byte is read is decided here by the same code. Stages of the disk and the device are passed over; what comes
after the first stage that opens a sequence, too, and whatever requires what was not assigned.
"""

from collections.abc import Sequence

from omlx.pipeline.model import Model
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services, Stage, grid_of
from omlx.pipeline.state import INITIAL_FIELDS, State


def dry_state(request: Request, model: Model) -> State:
    """Return a state whose request nobody waits for."""
    return State(request, model, emit=lambda _: None, announce=lambda _: None)


def dry_run(stages: Sequence[Stage], state: State, services: Services) -> None:
    """Run the host's stages before the sequence is opened. Raises what they refuse the request with."""
    assigned = set(INITIAL_FIELDS)
    state.grid = grid_of(stages)
    for stage in stages:
        if "sequence" in stage.assigns:
            return
        if stage.lane == "host" and assigned.issuperset(stage.requires):
            stage.run(state, services)
            assigned.update(stage.assigns)
