"""How long the event loop was kept from its other work: a task that wakes all the time and looks at the clocks."""

import asyncio
import time

_EVERY_S = 0.001


class LagProbe:
    """Measure the longest time between two turns of the event loop that `run` runs on.

    Attributes:
        gap_s: by the wall clock: it counts whatever else the machine did, too.
        busy_s: by the loop's own CPU time: what the loop itself did in one go.
    """

    def __init__(self) -> None:
        self.gap_s = 0.0
        self.busy_s = 0.0

    def reset(self) -> None:
        """Forget what was measured. Safe on any thread."""
        self.gap_s = self.busy_s = 0.0

    async def run(self) -> None:
        """Measure until cancelled."""
        while True:
            began, worked = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_EVERY_S)
            self.gap_s = max(self.gap_s, time.perf_counter() - began - _EVERY_S)
            self.busy_s = max(self.busy_s, time.thread_time() - worked)
