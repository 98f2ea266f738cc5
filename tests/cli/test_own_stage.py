"""A stage in a file of one's own takes part in everything that a built-in one does: the one that the README shows."""

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from omlx.cli import main
from tests.serving import serving, settings_for

README = Path(__file__).parents[2] / "README.md"
MESSAGES = [{"role": "user", "content": "hello there"}]


@pytest.fixture
def project(
    tmp_path: Path, model_folders: dict[str, Path], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Path]:
    """Stand in a folder with the README's stage, its pipeline and a models.toml; the module is forgotten afterwards."""
    shown = re.findall(
        r"<!-- file: (\S+) -->\n```\w+\n(.*?)^```", README.read_text(), re.DOTALL | re.MULTILINE
    )
    assert ["pipelines/budget.py", "pipelines/chat.toml"] == [name for name, _ in shown]
    (tmp_path / "pipelines").mkdir()
    for name, text in shown:
        (tmp_path / name).write_text(text)
    (tmp_path / "models.toml").write_text(f"""\
[cache]
directory = "{tmp_path}/blocks"
[server]
port = 0
[models.tiny]
path = "{model_folders["llama"]}"
pipeline = "chat"
[models.tiny.stages.budget]
most_tokens = 60
""")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.modules.pop("budget", None)


def printed(capsys: pytest.CaptureFixture[str], *arguments: str, code: int = 0) -> str:
    """Return what the command prints."""
    assert code == main(arguments)
    return capsys.readouterr().out


def test_it_is_checked_with_its_options_and_tests(project, capsys):
    """Its keys, its declaration and the tests of its pipeline are checked like any other's."""
    assert "no problems found in 2 files; 1 of 1 test passed" in printed(capsys, "check", "--tests")
    chain = project / "pipelines" / "chat.toml"
    chain.write_text(chain.read_text().replace("most_tokens = 100", "most_tokns = 100"))
    told = printed(capsys, "check", "--no-env", code=1)
    assert "pipelines/chat.toml:12:1: unknown key 'most_tokns' in [[stage]] 3" in told
    assert "did you mean 'most_tokens'?" in told


def test_it_is_drawn(project, capsys):
    """It stands in the drawing with what it reads and assigns."""
    drawing = printed(capsys, "graph", "chat")
    assert "│ budget    │" in drawing
    assert "assigns   left_tokens" in drawing
    assert "<b>budget</b> · host<br/>requires tokens" in printed(
        capsys, "graph", "chat", "--format", "mermaid"
    )


def test_it_is_documented(project, capsys):
    """It is listed where a pipeline here uses it, and shown with its options, units and source."""
    assert "budget:Budget  host    Refuse a prompt that is longer than the budget." in printed(
        capsys, "stages", "ls"
    )
    shown = printed(capsys, "stages", "show", "budget:Budget")
    assert "budget:Budget · lane host · budget.py:11" in shown
    assert "  most_tokens = 8192                  a whole number > 0, in tokens\n" in shown
    assert "      The longest prompt that is taken.\n" in shown


def test_it_is_in_the_schema(project, capsys):
    """An editor completes its keys in the pipeline, and in the tuning of a model."""
    chain = json.loads(printed(capsys, "schema", "pipeline"))["definitions"]["stage_budget_Budget"]
    assert {
        "const": "budget:Budget",
        "description": "Refuse a prompt that is longer than the budget.",
    } == chain["properties"]["use"]
    assert 8192 == chain["properties"]["most_tokens"]["default"]
    models = json.loads(printed(capsys, "schema", "models"))["definitions"]
    assert "budget" in models["ModelSettings"]["properties"]["stages"]["properties"]


def test_its_values_are_shown_with_their_source(project, capsys):
    """The value that a model tunes is shown as the model's."""
    told = printed(capsys, "check", "--effective")
    assert "stages.budget.most_tokens = 60" in told
    [line] = [line for line in told.splitlines() if "most_tokens" in line]
    assert line.endswith("# model, models.toml:9")


def test_it_is_traced(project, capsys):
    """A dry run walks it: it is in the chain, and what it refuses is refused."""
    body = project / "request.json"
    body.write_text(json.dumps({"model": "tiny", "messages": MESSAGES}))
    traced = json.loads(printed(capsys, "trace", str(body), "--offline", "--json"))
    assert "budget" in [stage["name"] for stage in traced["stages"]]
    body.write_text(json.dumps({"model": "tiny", "messages": [{"role": "user", "content": "hello " * 100}]}))
    assert 1 == main(["trace", str(body), "--offline"])
    assert "over the budget" in capsys.readouterr().err


def test_it_answers_over_http(project, model_folders):
    """A real request walks it: within the budget there is an answer, over it a 400 in its words."""
    settings = settings_for(
        model_folders["llama"], project / "blocks", pipeline="chat", stages={"budget": {"most_tokens": 60}}
    )
    with serving(settings, project) as server:
        assert server.chat(MESSAGES)["choices"][0]["message"]["content"] is not None
        over = [{"role": "user", "content": "hello " * 100}]
        refused = server.http.post("/v1/chat/completions", json={"messages": over})
    assert 400 == refused.status_code
    assert "over the budget; start a new conversation" in refused.json()["error"]["message"]
