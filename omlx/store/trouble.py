"""Trouble: what the outside world can do to the cold tier, and how long it then keeps still."""

import errno
import sqlite3
import time
from collections.abc import Iterator

import diskcache
import structlog

_log = structlog.get_logger(__name__)

#: diskcache turns a BEGIN that failed, for whatever cause, into Timeout.
TROUBLE = (OSError, sqlite3.Error, diskcache.Timeout)

_FULL = {errno.ENOSPC, errno.EDQUOT}


class Suspension:
    """Remember why nothing is written, and when to try again. One log line per reason."""

    def __init__(self, retry_s: float) -> None:
        self._retry_s = retry_s
        self._last: str | None = None
        self._until = 0.0

    @property
    def reason(self) -> str | None:
        """Return why nothing is written now; None when it is, or may be tried again."""
        return self._last if time.monotonic() < self._until else None

    def begin(self, error: BaseException) -> None:
        """Keep still for a while because of `error`."""
        reason = words(error)
        if self._last != reason:
            _log.warning("cache writes suspended", reason=reason, retry_s=self._retry_s)
        self._last = reason
        self._until = time.monotonic() + self._retry_s

    def end(self) -> None:
        """Note that writing works."""
        if self._last is not None:
            _log.info("cache writes resumed", after=self._last)
        self._last = None
        self._until = 0.0


def is_full(error: BaseException) -> bool:
    """Return whether a full volume is behind an error."""
    return any(
        (isinstance(cause, OSError) and cause.errno in _FULL)
        or (isinstance(cause, sqlite3.Error) and "full" in str(cause))
        for cause in _causes(error)
    )


def words(error: BaseException) -> str:
    """Return the first cause of an error, in words."""
    cause = list(_causes(error))[-1]
    return f"{type(cause).__name__}: {cause}"


def _causes(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__context__
