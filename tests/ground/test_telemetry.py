"""Logs are one event a line, and never show what a person wrote."""

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from omlx.telemetry import Stopwatch, configure_logging


@pytest.fixture(autouse=True)
def _restore_logging() -> Iterator[None]:
    yield
    structlog.reset_defaults()


def _fail_with_a_prompt() -> None:
    prompt = "my secret prompt"
    raise ValueError(f"{len(prompt)} characters")


@pytest.mark.parametrize("as_json", [True, False])
def test_a_traceback_shows_no_local_values(as_json):
    """An error is logged with its traceback but without the values of variables: they hold prompts."""
    out = io.StringIO()
    configure_logging(json=as_json, stream=out)
    try:
        _fail_with_a_prompt()
    except ValueError:
        structlog.get_logger().exception("it failed")
    assert "_fail_with_a_prompt" in out.getvalue()
    assert "16 characters" in out.getvalue()
    assert out.getvalue().count("my secret prompt") == 0


def test_what_is_no_terminal_gets_json():
    """Into a file or a pipe each event is one line of JSON with level and time."""
    out = io.StringIO()
    configure_logging(stream=out)
    structlog.get_logger().info("model loaded", model="coder")
    [line] = out.getvalue().splitlines()
    event = json.loads(line)
    assert ("model loaded", "coder", "info") == (event["event"], event["model"], event["level"])
    assert event["timestamp"].endswith("Z")


def test_events_below_the_level_are_not_shown():
    """The level cuts off what is less important."""
    out = io.StringIO()
    configure_logging(level="WARNING", stream=out)
    structlog.get_logger().info("small talk")
    structlog.get_logger().warning("heed this")
    assert "small talk" not in out.getvalue()
    assert "heed this" in out.getvalue()


def test_an_unknown_level_is_refused_with_the_levels():
    """A level that does not exist is an error that lists those that do."""
    with pytest.raises(ValueError, match="use one of: debug, info, warning, error, critical"):
        configure_logging(level="loud")


def test_a_stopwatch_adds_up_by_name():
    """Seconds of one part are added; parts are kept apart."""
    watch = Stopwatch()
    watch.add("prefill", 1.5)
    watch.add("prefill", 0.5)
    watch.add("decode", 1.0)
    assert {"prefill": 2.0, "decode": 1.0} == watch.seconds
