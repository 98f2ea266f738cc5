"""The lanes: worker threads for the host and for disk, and the device thread."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from omlx.engine.device import DeviceThread
from omlx.errors import CancelledError
from omlx.pipeline.conductor import Done
from omlx.pipeline.stage import Lane, Steps
from omlx.pipeline.state import State


class WorkerLanes:
    """Meet `omlx.pipeline.conductor.Lanes` with two thread pools and the device thread."""

    def __init__(self, device: DeviceThread, *, workers: int = 2) -> None:
        self._device = device
        self._pools: dict[Lane, ThreadPoolExecutor] = {
            "host": ThreadPoolExecutor(workers, "omlx-host"),
            "io": ThreadPoolExecutor(workers, "omlx-io"),
        }

    def submit(self, lane: Lane, work: Callable[[], None]) -> None:
        """Call `work` on a worker thread of the lane, some time soon. Raises CancelledError once closed."""
        try:
            self._pools[lane].submit(work)
        except RuntimeError as error:  # the pool was shut down
            raise CancelledError("the server is stopping") from error

    def submit_steps(self, state: State, steps: Steps, done: Done) -> None:
        """Drive `steps` on the device thread, then call `done` with the error that ended it, or None."""
        self._device.submit_steps(state, steps, done)

    def close(self) -> None:
        """Wait for the pools' running work and end their threads."""
        for pool in self._pools.values():
            pool.shutdown(wait=True, cancel_futures=True)
