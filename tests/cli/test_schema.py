"""The JSON Schemas that editors use are those of the code, and say yes and no as the checks do."""

import json
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from omlx.cli import main
from omlx.cli.checking import sorted_files
from omlx.cli.schema import schemas
from tests.cli.json_schema import valid

REPOSITORY = Path(__file__).parents[2]
PIPELINES = REPOSITORY / "pipelines"
EVERY_STEP = REPOSITORY / "tests" / "pipeline" / "data" / "every_step.toml"
BROKEN = Path(__file__).parent / "broken"
MADE = schemas(None)


@pytest.mark.parametrize("name", MADE)
def test_the_file_is_that_of_the_code(name):
    """The schema beside the pipelines is up to date; `tools/pipeline_schema.py` writes it."""
    assert MADE[name] == (PIPELINES / name).read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "path", [REPOSITORY / "models.toml", *PIPELINES.glob("*.toml")], ids=lambda path: path.name
)
def test_what_ships_names_its_schema_and_fits_it(path):
    """The first line names a schema file that is there, and the file is valid by it."""
    word, _, named = path.read_text().partition("\n")[0].partition(" ")
    assert "#:schema" == word
    assert valid(tomllib.loads(path.read_text()), json.loads((path.parent / named).read_text()))


def test_every_step_fits():
    """The file that shows each kind of step is valid."""
    assert valid(tomllib.loads(EVERY_STEP.read_text()), json.loads(MADE["pipeline.schema.json"]))


@pytest.mark.parametrize(
    "name",
    "unknown_table unknown_key wrong_type out_of_range bad_unit bad_element missing_key bad_tuning "  # noqa: SIM905
    "unknown_stage stage_without_use unknown_option option_value no_stages bad_tests".split(),
)
def test_an_editor_underlines_what_is_broken(name):
    """A slip in a key, a type, a range, a unit or a stage's name is refused by the schema too."""
    models, _ = sorted_files([BROKEN / f"{name}.toml"])
    schema = json.loads(MADE["models.schema.json" if models else "pipeline.schema.json"])
    assert not valid(tomllib.loads((BROKEN / f"{name}.toml").read_text()), schema)


def test_every_key_says_what_it_means():
    """Each key of each table has a description."""
    for text in MADE.values():
        for name, table in json.loads(text)["definitions"].items():
            dumb = [key for key, inner in table["properties"].items() if not inner.get("description")]
            assert (name, []) == (name, dumb)


def test_a_size_takes_what_the_checks_take():
    """Units are texts or numbers, as in TOML."""
    schema = json.loads(MADE["models.schema.json"])
    for size, well in {
        "4GiB": True,
        "1.5 GB": True,
        4096: True,
        "4XB": False,
        "-1GiB": False,
        0: False,
    }.items():
        assert well == valid({"cache": {"hot": size}}, schema), size


def test_the_command_prints_and_writes(tmp_path, monkeypatch, capsys):
    """One schema is printed, or both are written; anything else is wrong usage."""
    monkeypatch.chdir(tmp_path)
    assert 0 == main(["schema", "pipeline", "--built-in"])
    assert MADE["pipeline.schema.json"] == capsys.readouterr().out
    assert 0 == main(["schema", "--built-in", "--write", str(tmp_path)])
    assert MADE == {path.name: path.read_text() for path in tmp_path.glob("*.json")}
    assert 2 == main(["schema"])


def test_the_tool_is_the_command():
    """`tools/pipeline_schema.py` has no logic of its own."""
    tool = subprocess.run(
        [sys.executable, str(REPOSITORY / "tools" / "pipeline_schema.py"), "--help"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert "omlx schema --write FOLDER" in tool.stdout
