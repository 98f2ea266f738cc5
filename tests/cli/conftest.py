"""The command sets up logging for its own process; in a test's process that is undone."""

from collections.abc import Iterator

import pytest
import structlog


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Forget the stream of a test that is over."""
    yield
    structlog.reset_defaults()
