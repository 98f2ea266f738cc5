"""A value that a key does not take is told how to be written."""

from typing import Annotated

import msgspec
import pytest

from omlx.config.repair import repair
from omlx.units import ByteSize, Duration

SHARE = Annotated[float, msgspec.Meta(gt=0, le=1)]


@pytest.mark.parametrize(
    ("value", "kind", "default", "hint"),
    [
        ("8321", int, 1, "write 8321"),
        (" Yes", bool, False, "write true"),
        ("off", bool | None, None, "write false"),
        (1, bool, False, "write true"),
        (7.0, int, 1, "write 7"),
        (3, str, "x", 'write "3"'),
        ("small", tuple[str, ...], (), 'write ["small"]'),
        (1.5, SHARE, 0.5, "leave it out for the default, 0.5"),
        ("12XB", ByteSize, ByteSize(1024**3), None),
        ("soon", Duration, Duration(5.0), None),
        (float("nan"), int, 3, "leave it out for the default, 3"),
        ("many", int, None, None),
        ({"a": 1}, int, None, None),
    ],
)
def test_a_value_is_told_how_to_be_written(value, kind, default, hint):
    """A slip of spelling is spelt right, another value gets the default, and without one nothing is guessed."""
    assert hint == repair(value, (), kind, default)


def test_an_element_is_told_by_itself():
    """Of a list only the element at fault is spelt."""
    assert 'write "3"' == repair(["a", 3], (1,), tuple[str, ...], ())
    assert None is repair([{"a": 3}], (0, "a"), tuple[dict[str, str], ...], ())
