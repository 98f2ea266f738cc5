"""What a table may say is told by its own class."""

from typing import Annotated, Any, Literal

import msgspec
import pytest

from omlx.config.reference import Option, options_of, plain, type_words, words_of
from omlx.config.settings import (
    CacheSettings,
    Defaults,
    ModelSettings,
    PositiveInt,
    ServerSettings,
    Settings,
    Table,
)
from omlx.units import ByteSize, Duration


class Kettle(Table, frozen=True):
    """Boil water. It is hot.

    More about it,
    on two lines.

    Options:
        volume: how much fits,
            to the brim.
        fast_s: how long it takes.
    """

    volume: ByteSize
    fast_s: float | None = None
    lid: bool = True


def test_a_docstring_is_taken_apart():
    """The first paragraph, what follows, and the meaning of each key, over line ends."""
    words = words_of(Kettle)
    assert "Boil water. It is hot." == words.summary
    assert "More about it,\non two lines." == words.more
    assert {"volume": "how much fits, to the brim.", "fast_s": "how long it takes."} == words.options


def test_each_key_is_told_with_type_unit_and_default():
    """A key that must be given has no default; one that is not explained has no meaning."""
    assert (
        Option("volume", 'a size such as "4GiB"', "bytes", True, None, "how much fits, to the brim."),
        Option("fast_s", "a number", "seconds", False, None, "how long it takes."),
        Option("lid", "true or false", None, False, True, ""),
    ) == options_of(Kettle)


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (str, "text"),
        (PositiveInt, "a whole number > 0"),
        (PositiveInt | None, "a whole number > 0"),
        (Annotated[float, msgspec.Meta(ge=0, le=1)], "a number >= 0 and <= 1"),
        (Annotated[int, msgspec.Meta(ge=0, le=0)], "0"),
        (Literal["b", "a"], "one of a, b"),
        (tuple[Literal["b", "a"], ...], "a list of a, b"),
        (int | Literal["all"], "a whole number or one of all"),
        (dict[str, Any], "a table"),
        (Kettle, "a table"),
        (Duration | None, 'a duration such as "30s"'),
        (Any, "anything"),
    ],
)
def test_a_type_is_said_in_words(kind, words):
    """Types and bounds are said as a person would."""
    assert words == type_words(kind)


def test_units_are_plain_numbers():
    """A size is a whole number of bytes, a duration a number of seconds."""
    assert [4096, 1.5] == plain([ByteSize(4096), Duration(1.5)])
    assert isinstance(plain(ByteSize(4096)), int)


@pytest.mark.parametrize("kind", [Settings, ServerSettings, CacheSettings, Defaults, ModelSettings])
def test_every_setting_has_a_meaning(kind):
    """No key of models.toml goes unexplained."""
    assert [field.name for field in msgspec.structs.fields(kind)] == list(words_of(kind).options)
