"""`omlx graph` draws a chain so that it can be read at a glance."""

from collections.abc import Callable
from pathlib import Path
from typing import ClassVar

import pytest

from omlx.cli import main
from omlx.cli.canvas import ASCII, Canvas
from omlx.cli.drawing import WIDTH, draw
from omlx.cli.mermaid import mermaid
from omlx.pipeline.pipeline import Pipeline
from omlx.pipeline.stage import Lane, Stage

REPOSITORY = Path(__file__).parents[2]

NO_CACHE = """\
no_cache · No cache

host            io              device
┌───────────┐    ┆               ┆
│ tokenize  │    ┆               ┆              requires  request, model
│           │    ┆               ┆              uses      prompt
│           │    ┆               ┆              assigns   text, starts, tokens
└┬──────────┘    ┆               ┆
 └───────────────────────────────┐
 ┆               ┆              ┌┴──────────┐
 ┆               ┆              │ prefill   │   requires  request, model, tokens
 ┆               ┆              │           │   uses      segments, restored, plan
 ┆               ┆              │           │   assigns   sequence, keep_until
 ┆               ┆              ├───────────┤
 ┆               ┆              │ decode    │   requires  request, model, tokens, sequence
 ┆               ┆              │           │   uses      prompt
 ┆               ┆              │           │   assigns   answer
 ┆               ┆              └───────────┘
"""


class AVeryLongNameIndeedStage(Stage, frozen=True, tag="a_very_long_name_for_a_stage_indeed"):
    """Reads more than fits a line."""

    requires: ClassVar[tuple[str, ...]] = tuple(f"a_field_with_number_{number}" for number in range(6))
    assigns: ClassVar[tuple[str, ...]] = ("sequence",)
    lane: ClassVar[Lane] = "device"


class FirstFollower(Stage, frozen=True, tag="first"):
    """Runs during the long one."""

    lane: ClassVar[Lane] = "device"
    during: ClassVar[tuple[str, ...]] = ("a_very_long_name_for_a_stage_indeed",)


class SecondFollower(FirstFollower, frozen=True, tag="second"):
    """Runs during both."""

    during: ClassVar[tuple[str, ...]] = ("a_very_long_name_for_a_stage_indeed", "first", "nobody")


LONG = Pipeline("long", "", (AVeryLongNameIndeedStage(), FirstFollower(), SecondFollower()))


@pytest.fixture
def drawn(monkeypatch, capsys) -> Callable[..., str]:
    """Return a function that draws a shipped pipeline."""
    monkeypatch.chdir(REPOSITORY)

    def draw(*arguments: str) -> str:
        assert 0 == main(["graph", *arguments])
        return capsys.readouterr().out

    return draw


def test_a_chain_is_drawn_in_lanes(drawn):
    """Each stage is a box in the column of its lane, with what it reads and assigns beside it."""
    assert NO_CACHE == drawn("no_cache")


def test_what_runs_during_others_is_drawn_back_to_them(drawn):
    """From the follower a line leads to an arrow at each stage that it runs during."""
    lines = drawn("default").splitlines()
    marked = {line.split("│")[1].strip(): line for line in lines if "◀" in line}
    assert ["prefill", "decode"] == list(marked)
    [follower] = [line for line in lines if "├─┘" in line]
    assert "writeback" in follower
    assert 1 == len({line.index(end) for line, end in zip([*marked.values(), follower], "┐┤┘", strict=True)})


@pytest.mark.parametrize("name", [path.stem for path in (REPOSITORY / "pipelines").glob("*.toml")])
def test_a_drawing_fits_a_terminal(drawn, name):
    """No line of a shipped pipeline's drawing is longer than 100 characters."""
    assert WIDTH >= max(map(len, drawn(name).splitlines()))


def test_long_names_and_many_fields_fit_too():
    """Names are cut and lists of fields wrapped; two followers have a line each."""
    drawing = draw(LONG)
    assert WIDTH >= max(map(len, drawing.splitlines()))
    assert "a_very_lon…" in drawing
    assert all(f"a_field_with_number_{number}" in drawing for number in range(6))
    assert "│ a_very_lon… │◀┬──┐ " in drawing
    assert "│ first       ├◀┴──┤ " in drawing
    assert "│ second      ├────┘ " in drawing


def test_a_terminal_without_line_characters_gets_ascii():
    """The same drawing exists in ASCII alone."""
    assert draw(LONG).translate(ASCII).isascii()


def test_lines_that_meet_become_corners_and_crossings():
    """A canvas draws what lines make where they meet."""
    canvas = Canvas()
    canvas.box(0, 0, 2, 4)
    canvas.across(1, 0, 4)
    canvas.down(2, 0, 2)
    assert "┌─┬─┐\n├─┼─┤\n└─┴─┘" == canvas.render()


def test_mermaid_has_every_stage_in_its_lane(drawn):
    """The flowchart has a box a stage with its lane, an arrow a step, and dotted ones for what runs during."""
    chart = drawn("--format", "mermaid").splitlines()
    assert "flowchart TD" == chart[0]
    assert '    stage_lookup["<b>lookup</b> · host<br/>requires model, tokens"]:::host' in chart
    assert '    stage_lookup -->|"match, plan"| stage_fetch' in chart
    assert ["prefill", "decode"] == [
        line.split()[0].removeprefix("stage_") for line in chart if "-.->" in line
    ]


def test_mermaid_leaves_out_what_is_not_there():
    """A follower of a stage that the chain does not have gets no arrow to it."""
    assert "nobody" not in mermaid(LONG)


def test_a_pipeline_with_problems_is_not_drawn(tmp_path, monkeypatch, capsys):
    """Its problems are told instead, with their places."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "bad.toml").write_text('[[stage]]\nuse = "prefil"\n')
    assert 1 == main(["graph", "bad.toml"])
    assert "bad.toml:2:7: unknown stage 'prefil'" in capsys.readouterr().err
