"""`omlx stages` documents each stage from its own class."""

import json
from pathlib import Path

import pytest

from omlx.cli import main
from omlx.config.reference import options_of, words_of
from omlx.stages import built_in_stages

REPOSITORY = Path(__file__).parents[2]
STAGES = dict(built_in_stages())


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


def test_all_are_listed(capsys):
    """Each built-in stage has a line with its lane and its first sentence, in the order of the chain."""
    assert 0 == main(["stages", "ls"])
    lines = capsys.readouterr().out.splitlines()
    assert list(STAGES) == [line.split()[0] for line in lines]
    assert [kind.lane for kind in STAGES.values()] == [line.split()[1] for line in lines]
    assert all(
        line.endswith(words_of(kind).summary) for line, kind in zip(lines, STAGES.values(), strict=True)
    )


@pytest.mark.parametrize("name", STAGES)
def test_every_option_has_a_meaning(name):
    """No stage that ships has an option that its docstring does not explain, or explains one it has not."""
    kind = STAGES[name]
    assert words_of(kind).summary
    assert [option.name for option in options_of(kind)] == list(words_of(kind).options)


@pytest.mark.parametrize("name", STAGES)
def test_the_source_is_where_it_is_said_to_be(name, capsys):
    """File and line lead to the class."""
    assert 0 == main(["stages", "show", name, "--json"])
    path, _, line = json.loads(capsys.readouterr().out)["source"].partition(":")
    assert f"class {STAGES[name].__name__}(" in (REPOSITORY / path).read_text().splitlines()[int(line) - 1]


def test_one_is_shown_with_its_options(capsys):
    """A page has the declaration, and each option with default, type, unit and meaning."""
    assert 0 == main(["stages", "show", "coalesce"])
    page = capsys.readouterr().out
    assert page.startswith("coalesce · lane device · omlx/stages/coalesce.py:")
    assert page.endswith("""\

requires  model, tokens
uses      sequence
assigns   waited_for

Options
  min_shared_tokens = 64              a whole number > 0, in tokens
      Fewer tokens than this are computed again rather than waited for.
""")


def test_a_stage_without_options_says_so(capsys):
    """Where there is nothing to set, the page says that."""
    assert 0 == main(["stages", "show", "fetch"])
    assert capsys.readouterr().out.endswith("\nNo options.\n")


def test_for_programs(capsys):
    """JSON has the same, whole."""
    assert 0 == main(["stages", "ls", "--json"])
    [prefill] = [doc for doc in json.loads(capsys.readouterr().out) if doc["use"] == "prefill"]
    assert (["segments", "restored", "plan"], "device") == (prefill["uses"], prefill["lane"])
    assert {
        "name": "kv_bits",
        "type": "one of 2, 4, 8",
        "unit": "bits",
        "required": False,
        "default": None,
        "meaning": prefill["options"][2]["meaning"],
    } == prefill["options"][2]


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("prefil", "did you mean 'prefill'?"),
        ("zzz", "use one of: normalize, "),
        ("no.module:Stage", "cannot be loaded"),
    ],
)
def test_a_wrong_name_is_wrong_usage(capsys, name, told):
    """An unknown stage gets the nearest name, or all of them, or the reason: exit code 2."""
    assert 2 == main(["stages", "show", name])
    assert told in capsys.readouterr().err
