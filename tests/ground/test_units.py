"""Sizes and durations read as a person writes them, or are refused with the allowed form."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from omlx.units import decode_unit, format_size, parse_duration, parse_size


@pytest.mark.parametrize(
    ("text", "num_bytes"),
    [
        ("4GiB", 4 * 1024**3),
        ("4 GiB", 4 * 1024**3),
        ("1.5KiB", 1536),
        ("40GB", 40 * 1000**3),
        ("2TiB", 2 * 1024**4),
        ("512", 512),
        ("512B", 512),
        (4096, 4096),
        (1.5e9, 1_500_000_000),
    ],
)
def test_a_size_is_read_as_bytes(text, num_bytes):
    """A size may have a unit of 1000s or 1024s, a fraction, a space, or be a plain number."""
    assert num_bytes == parse_size(text)


@pytest.mark.parametrize(
    ("text", "seconds"), [("250ms", 0.25), ("30s", 30), ("5m", 300), ("2h", 7200), ("1d", 86400), (2.5, 2.5)]
)
def test_a_duration_is_read_as_seconds(text, seconds):
    """A duration may have a unit from milliseconds to days, or be a plain number of seconds."""
    assert seconds == parse_duration(text)


BAD = [
    "",
    " ",
    "0",
    0,
    -1,
    "-1",
    "12XB",
    "4gib",
    "GiB",
    "1,5GiB",
    "1e3",
    "0B",
    "nan",
    "inf",
    True,
    None,
    [1],
    {},
]


@pytest.mark.parametrize("value", [*BAD, "0.1B", float("nan"), float("inf"), "9" * 400, "5m"])
def test_a_bad_size_is_refused_with_the_allowed_form(value):
    """What is no size above zero raises ValueError that shows how one is written."""
    with pytest.raises(ValueError, match=r'a size above zero such as "512MiB" or "4GiB"'):
        parse_size(value)


@pytest.mark.parametrize("value", [*BAD, float("nan"), float("inf"), "4GiB"])
def test_a_bad_duration_is_refused_with_the_allowed_form(value):
    """What is no duration above zero raises ValueError that shows how one is written."""
    with pytest.raises(ValueError, match=r'a duration above zero such as "500ms", "30s" or "5m"'):
        parse_duration(value)


def test_an_unknown_unit_type_is_a_fault_of_ours():
    """The hook for msgspec converts the unit types and nothing else."""
    with pytest.raises(NotImplementedError, match="complex"):
        decode_unit(complex, "1")


@pytest.mark.parametrize(
    ("num_bytes", "text"),
    [
        (0, "0 B"),
        (1023, "1023 B"),
        (1024, "1.0 KiB"),
        (3 * 1024**3 // 2, "1.5 GiB"),
        (2 * 1024**4, "2.0 TiB"),
    ],
)
def test_bytes_are_shown_as_a_person_reads_them(num_bytes, text):
    """A number of bytes is shown in the largest unit of which it has one."""
    assert text == format_size(num_bytes)


@given(st.integers(1, 10**15))
def test_a_whole_number_of_bytes_survives_being_written(num_bytes):
    """What is written as bytes is read back exactly."""
    assert num_bytes == parse_size(f"{num_bytes}B") == parse_size(num_bytes)
