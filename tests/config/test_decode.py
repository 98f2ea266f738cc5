"""A table becomes a value, or its problems in TOML's words."""

from pathlib import Path

import msgspec
import pytest

from omlx.config.decode import decode_table, suggestion, table_name
from omlx.config.document import parse_document
from omlx.config.settings import Table


class Fussy(Table, frozen=True):
    """A table with a rule over two keys."""

    low: int
    high: int = 10

    def __post_init__(self) -> None:
        if self.low > self.high:
            raise ValueError("low must not be above high")


def _decode(text: str) -> tuple[Fussy | None, list[str]]:
    document = parse_document(Path("x.toml"), text)
    value, problems = decode_table(document, (), document.data, Fussy)
    return value, [str(problem) for problem in problems]


def test_a_table_becomes_a_value():
    """Keys that are left out have their defaults."""
    assert (Fussy(low=3), []) == _decode("low = 3")


@pytest.mark.parametrize(
    ("text", "problems"),
    [
        ("low = 11", ["x.toml:1: the file: low must not be above high"]),
        ("low = 'a'", ["x.toml:1: low: expected a whole number, got text"]),
        ("low = 1.5", ["x.toml:1: low: expected a whole number, got a number"]),
        ("low = {}", ["x.toml:1: low: expected a whole number, got a table"]),
        (
            "\nhihg = 1",
            [
                "x.toml:2: unknown key 'hihg' in the file; did you mean 'high'?",
                "x.toml:1: the file needs the key 'low'",
            ],
        ),
    ],
)
def test_a_problem_is_said_in_the_words_of_toml(text, problems):
    """Types are named as TOML names them, and what the class itself refuses is a problem like others."""
    assert (None, problems) == (_decode(text)[0], sorted(_decode(text)[1], reverse=True))


def test_a_value_does_not_change():
    """Tables are frozen."""
    with pytest.raises(AttributeError):
        Fussy(low=1).low = 2
    assert msgspec.structs.replace(Fussy(low=1), low=2) == Fussy(low=2)


@pytest.mark.parametrize(
    ("at", "name"),
    [
        ((), "the file"),
        (("cache",), "[cache]"),
        (("models", "a"), "[models.a]"),
        (("stage", 1), "[[stage]] 2"),
    ],
)
def test_a_table_is_named_as_in_the_file(at, name):
    """A problem names a table as the file spells it."""
    assert name == table_name(at)


@pytest.mark.parametrize(
    ("options", "hint"),
    [(["hot"], "did you mean 'hot'?"), (["xyz", "abc"], "use one of: xyz, abc"), ([], "leave it out")],
)
def test_a_wrong_name_gets_the_nearest_or_all(options, hint):
    """A hint names one option when one is near, else every option."""
    assert hint == suggestion("hott", options)
