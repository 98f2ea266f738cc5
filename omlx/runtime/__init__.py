"""Runtime: the one composition root. Everything is made here, and handed to whoever needs it.

Settings ──▶ BlockStore ─┐
         ──▶ pipelines ──┼──▶ Conductor ◀── lanes: host, io (pools), device (one thread)
         ──▶ ModelPool ──┘
"""

from omlx.runtime.runtime import Runtime

__all__ = ["Runtime"]
