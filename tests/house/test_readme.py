"""The README tells the truth: what it shows can be run."""

import re
from pathlib import Path

import pytest

from omlx.cli import VERBS
from omlx.config.decode import decode_fields
from omlx.config.document import parse_document
from omlx.config.load import decode_settings
from omlx.stages import built_in_stages

REPOSITORY = Path(__file__).resolve().parents[2]
README = (REPOSITORY / "README.md").read_text(encoding="utf-8")


def blocks(language: str) -> list[str]:
    """Return the fenced blocks of a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", README, re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("block", [block for block in blocks("toml") if "[[stage]]" not in block])
def test_every_toml_block_is_valid_settings(block):
    """A `models.toml` shown in the README passes the checks."""
    settings, problems = decode_settings(parse_document(Path("README.md"), block))
    assert [] == [str(problem) for problem in problems]
    assert settings is not None


@pytest.mark.parametrize("block", [block for block in blocks("toml") if "[[stage]]" in block])
def test_every_stage_shown_takes_what_it_is_given(block):
    """A pipeline shown in the README, or a part of one, has keys and values that its stages take."""
    document = parse_document(Path("README.md"), block)
    for at, table in enumerate(document.data["stage"]):
        kind = built_in_stages().get(table["use"])
        if kind is not None:
            found = decode_fields(document, ("stage", at), table, kind, ignore=frozenset({"use"}))
            assert [] == [str(problem) for problem in found[1]]


def test_every_command_shown_exists():
    """Each `omlx VERB` of the README is a verb of the command."""
    shown = set(re.findall(r"(?:^|[/ `])omlx ([a-z]+)\b", "\n".join(blocks("sh"))))
    assert shown
    assert shown <= set(VERBS)


def test_the_two_commands_stand_where_ci_looks_for_them():
    """CI runs the README's own test command; the markers it looks for are there, once each."""
    assert 1 == README.count("<!-- demo command -->")
    assert 1 == README.count("<!-- test command -->")
