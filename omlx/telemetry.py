"""Structured logs: one event a line, for people on a terminal, JSON elsewhere."""

import logging
import sys
import time
from typing import TextIO

import structlog
from structlog.typing import Processor

LEVELS = ("debug", "info", "warning", "error", "critical")


def configure_logging(*, json: bool | None = None, level: str = "info", stream: TextIO | None = None) -> None:
    """Send events to `stream` (standard error), as JSON unless that is a terminal or `json` is False.

    Raises ValueError that lists the levels for one that is none.
    """
    if level.lower() not in LEVELS:
        raise ValueError(f"there is no log level {level!r}; use one of: {', '.join(LEVELS)}")
    out = stream or sys.stderr
    as_json = not out.isatty() if json is None else json
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *(_json_lines() if as_json else _console_lines(colors=out.isatty())),
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(out),
    )


def _json_lines() -> list[Processor]:
    return [structlog.processors.format_exc_info, structlog.processors.JSONRenderer(default=str)]


def _console_lines(*, colors: bool) -> list[Processor]:
    # plain tracebacks: the default prints the values of local variables too, and those hold prompts
    return [
        structlog.dev.ConsoleRenderer(colors=colors, exception_formatter=structlog.dev.plain_traceback),
    ]


class Stopwatch:
    """Add up wall-clock seconds by name; the parts of one request.

    `began` and `ended` say when a part begins and when it is over; they do nothing here, see
    `omlx.pipeline.timeline.Timeline`.
    """

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}

    def add(self, name: str, seconds: float) -> None:
        """Add `seconds` to the part called `name`."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def since(self, name: str, started: float) -> None:
        """Add the time since `started` (a `time.perf_counter()` reading)."""
        self.add(name, time.perf_counter() - started)

    def began(self, name: str) -> None:
        """Take note that a part begins."""

    def ended(self, name: str) -> None:
        """Take note that a part is over."""
