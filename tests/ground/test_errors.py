"""Every error tells a client its status and a person what to do."""

import pytest

from omlx import errors
from omlx.errors import ContextLengthError, OmlxError, UnknownModelError


def _tree(kind: type) -> list[type]:
    return [kind, *(below for sub in kind.__subclasses__() for below in _tree(sub))]


def test_the_tree_in_the_docstring_names_every_error():
    """The tree drawn at the top of the module shows each class of it."""
    own = [kind for kind in _tree(OmlxError) if kind.__module__ == errors.__name__]
    assert [] == [kind.__name__ for kind in own if kind.__name__ not in (errors.__doc__ or "")]
    assert len(own) >= 11


def test_a_hint_follows_the_message():
    """An error reads as what is wrong, then what to do instead."""
    assert "no such thing; take another" == str(OmlxError("no such thing", hint="take another"))
    assert "no such thing" == str(OmlxError("no such thing"))


@pytest.mark.parametrize(
    ("error", "code", "words"),
    [
        (ContextLengthError(9000, 8192), "context_length_exceeded", ["9000", "8192"]),
        (UnknownModelError("gpt", ["a", "b"]), "model_not_found", ["'gpt'", "a, b"]),
    ],
)
def test_clients_find_the_code_they_act_on(error, code, words):
    """An error that clients act upon carries its code, its field and the numbers or names."""
    assert code == error.code
    assert error.param is not None
    assert [] == [word for word in words if word not in str(error)]
