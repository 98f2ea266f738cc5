"""A registry keeps one value a name and knows which name was meant."""

import pytest

from omlx.registry import Registry, nearest


def test_names_keep_the_order_in_which_they_came():
    """Names and entries come in the order of registration."""
    registry: Registry[int] = Registry("number")
    registry.add("two", 2)
    assert 1 == registry.register("one")(1)
    assert ["two", "one"] == registry.names()
    assert [("two", 2), ("one", 1)] == list(registry)


def test_a_name_is_taken_once():
    """A second value under a name is refused; the same value again is not a second one."""
    registry: Registry[object] = Registry("thing")
    value = object()
    registry.add("a", value)
    registry.add("a", value)
    with pytest.raises(ValueError, match="thing 'a' is registered twice"):
        registry.add("a", object())
    assert value is registry.get("a")


def test_an_unknown_name_is_none():
    """Absence in a lookup is None."""
    assert Registry("thing").get("a") is None


@pytest.mark.parametrize(
    ("name", "guess"),
    [("lookupp", "lookup"), ("fecth", "fetch"), ("Prefill", "prefill"), ("zzz", None), ("", None)],
)
def test_the_nearest_name_is_found_where_one_is_near(name, guess):
    """A slip of the finger finds the name that was meant; a strange word finds none."""
    assert guess == nearest(name, ["lookup", "fetch", "prefill"])
