"""An index: each case that is answered is named by a test."""

import ast
import re
from pathlib import Path

import pytest

CASES = [
    *(f"A{number}" for number in (1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12)),
    *("B11", "C5", "C6", "C7", "C10", "C11", "C12", "C13", "C14", "C16"),
    *("F1", "F2", "F3", "F4", "F5", "F7", "F8", "F9", "F11"),
    *("G1", "G2", "G4", "G5", "G6", "H1", "I1", "I3", "I4"),
]


def named() -> set[str]:
    """Return the cases that begin the docstring of a test: `A8: ...`, or `I1, A8: ...`."""
    found: set[str] = set()
    for path in Path(__file__).parent.parent.rglob("test_*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"):
                head, colon, _ = (ast.get_docstring(node) or "").partition(":")
                found.update(re.findall(r"\b[A-I]\d+", head) if colon else ())
    return found


@pytest.mark.parametrize("case", CASES)
def test_a_test_is_named_for_each_case(case):
    """Whoever looks for a case finds the promise that answers it."""
    assert case in named()
