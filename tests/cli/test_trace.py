"""`omlx trace` and `omlx tap`, as a person runs them."""

import gzip
import json

import msgspec
import pytest
import structlog

from omlx.cli import main
from omlx.pipeline.explanation import Explanation
from tests.house.test_house import loaded_by
from tests.serving import serving, settings_for
from tests.tiny_models import make_model

MESSAGES = [
    {"role": "system", "content": "You help with code."},
    {"role": "user", "content": "What is this? " * 30},
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return a tiny model's folder."""
    return make_model(tmp_path_factory.mktemp("model") / "tiny", "llama")


@pytest.fixture(autouse=True)
def _own_log():
    """A command sends its log to the standard error of its test, which is closed when the test is over."""
    yield
    structlog.reset_defaults()


@pytest.fixture
def workplace(tmp_path, folder, monkeypatch):
    """Go to a folder with a models.toml, a request and another one; nobody serves there."""
    (tmp_path / "models.toml").write_text(
        f'[server]\nport = 1\n[cache]\ndirectory = "{tmp_path}/cache"\n[models.tiny]\npath = "{folder}"\n'
    )
    later = [*MESSAGES[:1], {"role": "user", "content": "What is this? " * 29 + "And what is that?"}]
    for name, messages in (("one", MESSAGES), ("other", later)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"model": "gpt-x", "messages": messages}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def run(capsys, *words: str) -> str:
    """Return what a command that goes well prints."""
    assert 0 == main(["trace", *words])
    return capsys.readouterr().out


def test_a_request_is_traced_without_a_server(workplace, capsys):
    """The model of the body need not be known here: the default model's chain is traced, by the files."""
    out = run(capsys, "one.json")
    assert "to model 'tiny', pipeline 'default'" in out
    assert "no server was asked" in out
    assert [] == [path.name for path in workplace.iterdir() if path.name == "cache"]


def test_json_is_the_documented_object(workplace, capsys):
    """--json prints one Explanation."""
    found = msgspec.json.decode(run(capsys, "one.json", "--json"), type=Explanation)
    assert ("disk", "no_layout") == (found.source, found.cause.name)
    assert ["system", "message 1 (user)", "generation prompt"] == [
        segment.label for segment in found.segments
    ]


def test_two_requests_are_compared(workplace, capsys):
    """--against names the first difference; text is shown only when asked for."""
    told = run(capsys, "other.json", "--against", "one.json")
    assert "PARTS  from one.json at token 253 of 270: message 1 (user)" in told
    assert "[another_question]" in told
    assert "text: hidden" in told
    shown = run(capsys, "other.json", "--against", "one.json", "--show-text")
    assert "here:  'And what is that?" in shown
    assert "there: 'What is this?" in shown


def test_a_session_is_read_from_lines(workplace, capsys):
    """A file with one request a line, packed or not, is followed turn by turn."""
    lines = b"\n".join(
        json.dumps(
            {"path": "/v1/chat/completions", "body": json.loads((workplace / name).read_text())}
        ).encode()
        for name in ("one.json", "other.json", "one.json")
    )
    (workplace / "session.jsonl").write_bytes(lines)
    (workplace / "session.jsonl.gz").write_bytes(gzip.compress(lines))
    out = run(capsys, "session.jsonl")
    assert out == run(capsys, "session.jsonl.gz")
    assert "continues turn 1" in out
    assert 3 == len(json.loads(run(capsys, "session.jsonl", "--format", "json"))["turns"])


def test_a_page_is_written_to_a_file(workplace, capsys):
    """--format html --out FILE writes one page and says so."""
    out = run(capsys, "one.json", "--format", "html", "--out", "trace.html")
    assert "written to trace.html\n" == out
    assert (workplace / "trace.html").read_text().startswith("<!doctype html>")


@pytest.mark.parametrize(
    ("words", "complaint"),
    [
        ([], "there is nothing to trace"),
        (["nothing.json"], "cannot be read"),
        (["models.toml"], "neither one JSON object nor one a line"),
        (["one.json", "--url", "ftp://x"], "is no address of a server"),
        (["--live", "last"], "no server answers"),
    ],
)
def test_wrong_usage_is_said_in_a_line(workplace, capsys, words, complaint):
    """What cannot be traced is said on standard error, with exit code 2."""
    assert 2 == main(["trace", *words])
    assert complaint in capsys.readouterr().err


@pytest.mark.parametrize(
    ("body", "path", "complaint"),
    [
        ({"messages": []}, None, "messages"),
        ({"messages": MESSAGES}, "/v1/nothing", "is no path of a request"),
        ({"input": [{"type": "image"}]}, None, "input[0].type"),
    ],
)
def test_a_bad_request_names_what_is_wrong(workplace, capsys, body, path, complaint):
    """What the server would refuse, the trace refuses with the same words, with exit code 1."""
    (workplace / "bad.json").write_text(json.dumps(body))
    assert 1 == main(["trace", "bad.json", *(["--path", path] if path else [])])
    assert complaint in capsys.readouterr().err


def test_two_requests_are_compared_in_full(workplace, capsys):
    """`--against` says how much is shared, where the two part, why, and what mends it."""
    edited = [{**MESSAGES[0], "content": "Other words. " + MESSAGES[0]["content"]}, *MESSAGES[1:]]
    (workplace / "other.json").write_text(json.dumps({"messages": edited}))
    told = run(capsys, "one.json", "--against", "other.json")
    assert "stand in other.json too" in told
    assert "PARTS  from other.json at token" in told
    assert "mend: " in told
    assert "nothing parts them" in run(capsys, "one.json", "--against", "one.json")


def test_every_block_can_be_listed(workplace, capsys):
    """`--blocks` has a line for each block, with its tokens and where it is."""
    told = run(capsys, "one.json", "--blocks")
    assert "BLOCK " in told
    assert "  1              0" in told
    assert "BLOCK " not in run(capsys, "one.json")


def test_an_unknown_model_is_told_the_nearest(workplace, capsys):
    """What is neither configured nor a folder nor a hub name is refused with a name that is."""
    (workplace / "models.toml").write_text('[models.tiny]\npath = "."\naliases = ["small"]\n')
    assert 2 == main(["trace", "one.json", "--model", "smal"])
    assert "there is no model 'smal'; did you mean 'small'?" in capsys.readouterr().err


def test_a_running_server_is_asked(folder, tmp_path, monkeypatch, capsys):
    """Where the model is served, the server's index is used, and what it did is shown beside what was planned."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "one.json").write_text(json.dumps({"messages": MESSAGES, "max_tokens": 4}))
    with serving(settings_for(folder, tmp_path / "cache")) as server:
        port = server.url.rpartition(":")[2]
        text = (tmp_path / "models.toml").write_text
        text(
            f'[server]\nport = {port}\n[cache]\ndirectory = "{tmp_path}/cache"\n[models.tiny]\npath = "{folder}"\n'
        )
        server.post("/v1/chat/completions", {"messages": MESSAGES, "max_tokens": 4})
        asked = run(capsys, "one.json")
        assert "index of the running server" in asked
        assert "from RAM" in asked
        assert "no server was asked" in run(capsys, "one.json", "--offline")
        assert "tokens computed" in run(capsys, "--live", "last")
        assert "index of the running server" in run(
            capsys, "one.json", "--url", server.url, "--model", "tiny"
        )


def test_a_trace_loads_nothing_heavy():
    """What a trace needs before it tokenizes loads neither MLX nor the server nor transformers."""
    modules = "omlx.explain.explainer, omlx.explain.disk, omlx.explain.page, omlx.cli.trace, omlx.cli.tap"
    assert set() == loaded_by(f"import {modules}")
