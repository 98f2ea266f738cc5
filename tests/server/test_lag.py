"""The event loop is kept by nothing for long, and it is known when it was."""

import asyncio
import gc
import sys
import time

from omlx.server.lag import LagProbe
from omlx.server.serve import SWITCH_S


def test_what_keeps_the_loop_is_measured():
    """The probe tells how long the loop was kept, and how much of that it worked itself."""

    async def keep() -> LagProbe:
        probe = LagProbe()
        probing = asyncio.create_task(probe.run())
        await asyncio.sleep(0.005)
        probe.reset()
        time.sleep(0.05)  # noqa: ASYNC251 - what must not happen
        await asyncio.sleep(0.005)
        probing.cancel()
        return probe

    probe = asyncio.run(keep())
    assert probe.gap_s >= 0.045
    assert probe.busy_s < probe.gap_s


def test_a_serving_process_is_responsive(serve):
    """While it serves, threads hand the interpreter over sooner and the collector leaves imported modules alone."""
    before, frozen = sys.getswitchinterval(), gc.get_freeze_count()
    served = serve()
    assert 200 == served.http.get("/health").status_code
    assert SWITCH_S == round(sys.getswitchinterval(), 6)
    assert gc.get_freeze_count() > frozen + 1000
    served.server.stop()
    served.until(lambda: sys.getswitchinterval() == before)
