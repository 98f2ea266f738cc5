"""Twenty-odd broken files, each with the words that `omlx check` has for it.

A file says on its first line which lines are wrong; the words lie beside it (`OMLX_WRITE_SNAPSHOTS=1` writes them).
"""

import os
import re
from pathlib import Path

import pytest

from omlx.cli import main
from omlx.cli.checking import sorted_files

BROKEN = Path(__file__).parent / "broken"
NAMES = sorted(path.stem for path in BROKEN.glob("*.toml"))


def words(name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *more: str) -> str:
    """Return what the command prints about a broken file; only some of them ask this machine."""
    monkeypatch.chdir(BROKEN)
    asked = [] if name.startswith("machine") else ["--no-env"]
    assert 1 == main(["check", f"{name}.toml", *asked, *more])
    return capsys.readouterr().out


def lines_said(name: str) -> list[int]:
    """Return the lines that the file itself says are wrong."""
    head = (BROKEN / f"{name}.toml").read_text().partition("\n")[0]
    return [int(number) for number in head.removeprefix("# lines: ").split(", ")]


@pytest.mark.parametrize("name", NAMES)
def test_a_broken_file_is_told_in_these_words(name, capsys, monkeypatch):
    """Each problem has its place, its line with a caret, what is wrong, and what to do instead."""
    found, snapshot = words(name, capsys, monkeypatch), BROKEN / f"{name}.txt"
    if os.environ.get("OMLX_WRITE_SNAPSHOTS"):
        snapshot.write_text(found)
    assert snapshot.read_text() == found


@pytest.mark.parametrize("name", NAMES)
def test_each_problem_has_the_right_line(name, capsys, monkeypatch):
    """The lines that are named are the lines that are wrong: all of them, and no other."""
    found = re.findall(rf"^{name}\.toml:(\d+):\d+: ", words(name, capsys, monkeypatch), re.MULTILINE)
    assert lines_said(name) == list(dict.fromkeys(int(number) for number in found))


def test_h8_bad_configuration_refuses_to_start(capsys, monkeypatch):
    """H8: `omlx serve` ends before anything loads, with the same words and an exit code."""
    monkeypatch.chdir(BROKEN)
    models, _ = sorted_files(BROKEN / f"{name}.toml" for name in NAMES)
    assert len(models) >= 12
    for name in (path.stem for path in models):
        assert 1 == main(["serve", "--models", f"{name}.toml"])
        told = capsys.readouterr().err.split()
        asked = [] if name.startswith("machine") else ["--no-env"]
        assert 1 == main(["check", f"{name}.toml", *asked])
        *problems, _ = capsys.readouterr().out.split("\n\n")
        assert told == " ".join(problems).split()
