"""A table becomes a value, or its problems in TOML's words."""

from pathlib import Path
from typing import Literal

import msgspec
import pytest

from omlx.config.decode import decode_table, suggestion, table_name
from omlx.config.document import parse_document
from omlx.config.problem import FieldError
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


class Picky(Table, frozen=True):
    """A table that blames one of its keys."""

    colour: Literal["red", "green"] = "red"
    sizes: tuple[int, ...] = ()
    parts: tuple[Fussy, ...] = ()

    def __post_init__(self) -> None:
        if len(self.sizes) > 2:
            raise FieldError("sizes", "too many", "drop one")


@pytest.mark.parametrize(
    ("text", "told", "column"),
    [
        ("sizes = [1, 2, 3]", "1: sizes: too many; drop one", 9),
        ('sizes = [1,\n  "x"]', "2: sizes: expected a whole number, got text (at [1])", 3),
        ('colour = "gren"', "1: colour: cannot be 'gren'; did you mean 'green'?", 10),
        ("[[parts]]\nlow = 1\n[[parts]]\nlow = 'x'", "4: low: expected a whole number, got text", 7),
        ("[[parts]]\nlow = 1\nhihg = 2", "3: unknown key 'hihg' in [[parts]] 1; did you mean 'high'?", 1),
        ("[[parts]]\nlow = 11", "1: [[parts]] 1: low must not be above high", 3),
        ("parts = [3]", "1: [[parts]] 1 must be a table", 10),
    ],
)
def test_a_problem_is_told_at_the_key_element_or_table_that_has_it(text, told, column):
    """Blame goes to the value of a key, to one element, or to one table of an array, with its column."""
    document = parse_document(Path("x.toml"), text)
    _, [problem] = decode_table(document, (), document.data, Picky)
    assert (f"x.toml:{told}", column) == (str(problem), problem.column)
