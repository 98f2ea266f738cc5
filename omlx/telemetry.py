"""Structured logs: one event a line, for people on a terminal, JSON elsewhere."""

import logging
import sys
import time
from typing import TextIO

import structlog


def configure_logging(*, json: bool | None = None, level: str = "info", stream: TextIO | None = None) -> None:
    """Send events to `stream` (standard error), as JSON unless that is a terminal or `json` is False."""
    out = stream or sys.stderr
    as_json = not out.isatty() if json is None else json
    renderer = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer(colors=out.isatty())
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
    )


class Stopwatch:
    """Add up wall-clock seconds by name; the parts of one request."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        """Add `seconds` to the part called `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def since(self, name: str, started: float) -> None:
        """Add the time since `started` (a `time.perf_counter()` reading)."""
        self.add(name, time.perf_counter() - started)
