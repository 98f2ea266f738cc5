"""`omlx check` says everything that is wrong, to people and to programs, and loads nothing."""

import json
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from omlx.cli import main
from omlx.config.settings import ServerSettings
from omlx.server.serve import HttpServer
from omlx.testing.backend import ScriptedBackend
from tests.tiny import TEMPLATES, make_tokenizer

REPOSITORY = Path(__file__).parents[2]
BROKEN = Path(__file__).parent / "broken"


@pytest.fixture
def said(tmp_path, monkeypatch, capsys):
    """Return a function that writes a models.toml, checks it, and returns the exit code and what is printed."""
    monkeypatch.chdir(tmp_path)

    def check(text: str, *arguments: str) -> tuple[int, str]:
        (tmp_path / "models.toml").write_text(textwrap.dedent(text))
        return main(["check", *arguments]), capsys.readouterr().out

    return check


def test_what_ships_has_no_problems_and_its_tests_pass(monkeypatch, capsys):
    """The shipped models.toml and pipelines are well, and every shipped pipeline carries tests, which pass."""
    monkeypatch.chdir(REPOSITORY)
    assert 0 == main(["check", "--tests", "--no-env", "--json"])
    told = json.loads(capsys.readouterr().out)
    shipped = {f"pipelines/{path.name}" for path in (REPOSITORY / "pipelines").glob("*.toml")}
    assert {"models.toml", *shipped} == set(told["files"])
    assert shipped == {test["file"] for test in told["tests"]}
    assert all(test["passed"] for test in told["tests"])


def test_problems_for_programs(said):
    """JSON has each problem with its file, line, columns, message, hint and line of text."""
    code, told = said('[cache]\nhott = "1GiB"\n', "--json")
    found = json.loads(told)
    assert (1, 1, False) == (code, found["version"], found["ok"])
    assert [
        {
            "file": "models.toml",
            "line": 2,
            "column": 1,
            "end_column": 5,
            "message": "unknown key 'hott' in [cache]",
            "hint": "did you mean 'hot'?",
            "excerpt": 'hott = "1GiB"',
            "details": [],
        }
    ] == found["problems"]


def test_problems_for_github(said):
    """Each problem is one annotation; what would end a field or a line is escaped."""
    code, told = said('[cache]\n"h,o:t%" = 1\n', "--format", "github")
    assert 1 == code
    assert "::error file=models.toml,line=2,col=1,endColumn=9::unknown key 'h,o:t%25' in [cache]; " in told
    assert 1 == told.count("::error")


def test_a_files_name_is_escaped_for_github(tmp_path, monkeypatch, capsys):
    """What would end the field of an annotation is escaped in a file's name."""
    monkeypatch.chdir(tmp_path)
    Path("a,b:c.toml").write_text("[cache]\nhott = 1\n")
    assert 1 == main(["check", "a,b:c.toml", "--format", "github"])
    assert capsys.readouterr().out.startswith("::error file=a%2Cb%3Ac.toml,line=2,")


def test_a_file_that_is_not_there_is_wrong_usage(tmp_path, monkeypatch, capsys):
    """Naming a file that does not exist is the caller's mistake: exit code 2."""
    monkeypatch.chdir(tmp_path)
    assert 2 == main(["check", "nothing.toml"])
    assert "there is no file nothing.toml" in capsys.readouterr().err


def test_several_broken_files_are_told_together(monkeypatch, capsys):
    """One run tells the problems of all files, models and pipelines, in the order of their names."""
    monkeypatch.chdir(BROKEN)
    assert 1 == main(["check", "unmet_requires.toml", "bad_unit.toml", "--no-env"])
    told = capsys.readouterr().out
    assert told.index("bad_unit.toml:3:14:") < told.index("unmet_requires.toml:6:7:")
    assert told.endswith("3 problems in 2 of 2 files\n")


def test_a_problem_of_one_model_does_not_hide_those_of_another(said):
    """A model that cannot be read leaves the pipelines of the others to be checked."""
    _, told = said("""\
        [models.broken]
        [models.well]
        path = "owner/well"
        pipeline = "defualt"
        """)
    assert "models.toml:1:9: [models.broken] needs the key 'path'" in told
    assert "models.toml:4:12: there is no pipeline 'defualt'" in told


def test_the_problems_of_a_shared_pipeline_are_told_once(said, tmp_path):
    """A pipeline that two models share, and that is also checked by itself, is told once."""
    (tmp_path / "pipelines").mkdir()
    (tmp_path / "pipelines" / "mine.toml").write_text('[[stage]]\nuse = "tokenise"\n')
    models = '[models.a]\npath = "o/a"\npipeline = "mine"\n[models.b]\npath = "o/b"\npipeline = "mine"\n'
    code, told = said(models, "--no-env")
    assert 1 == code
    assert 1 == told.count("unknown stage 'tokenise'")
    assert "pipelines/mine.toml:2:7: " in told


def test_an_override_is_checked_like_a_line(said):
    """A bad `--set` is a problem that names the override."""
    code, told = said("", "--no-env", "--set", "cache.hto=1GiB")
    assert 1 == code
    assert "--set cache.hto=1GiB: unknown key 'hto' in [cache]\n        did you mean 'hot'?" in told


def test_an_override_of_nothing_is_wrong_usage(tmp_path, monkeypatch):
    """A `--set` without a models.toml to apply it to is not ignored."""
    monkeypatch.chdir(tmp_path)
    assert 2 == main(["check", "--set", "cache.hot=1GiB"])


@pytest.mark.parametrize("table", ['hot = "9999TiB"', 'cold = "9999TiB"'])
def test_a_limit_that_the_machine_cannot_keep_is_a_problem(said, table):
    """A limit over RAM or over the free space is told with both numbers; `--no-env` does not ask."""
    code, told = said(f"[server]\nport = 0\n[cache]\n{table}\n")
    key = table.partition(" ")[0]
    assert 1 == code
    assert f"models.toml:4:{8 if key == 'cold' else 7}: {key}: 9999.0 TiB, but " in told
    assert 0 == said(f"[cache]\n{table}\n", "--no-env")[0]


def test_more_memory_than_there_is_is_a_problem(said):
    """A budget over RAM is told with both numbers."""
    code, told = said('[server]\nport = 0\nmemory = "9999TiB"\n')
    assert 1 == code
    assert "models.toml:3:10: memory: 9999.0 TiB, but this machine has " in told


def test_a_default_limit_is_no_problem(said, monkeypatch):
    """What the file does not state adapts to a full disk, and is not told; what it states is."""
    full = shutil.disk_usage("/")._replace(free=1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    assert 0 == said('[server]\nport = 0\n[cache]\ndirectory = "blocks"\n')[0]
    assert 1 == said('[server]\nport = 0\n[cache]\ndirectory = "blocks"\ncold = "1MiB"\n')[0]


def test_what_the_cache_holds_already_is_room_too(said, tmp_path, monkeypatch):
    """On a disk that the cache itself has filled, its limit is no problem."""
    full = shutil.disk_usage("/")._replace(free=1024)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: full)
    (tmp_path / "blocks" / "a").mkdir(parents=True)
    (tmp_path / "blocks" / "a" / "x.omlx.safetensors").write_bytes(bytes(1024**2))
    assert 0 == said('[server]\nport = 0\n[cache]\ndirectory = "blocks"\ncold = "1MiB"\n')[0]


def test_a_port_that_another_program_holds_is_a_problem(said):
    """A taken port is told at its line; `--no-env` does not ask."""
    with subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import socket; s = socket.create_server(('127.0.0.1', 0)); print(s.getsockname()[1], flush=True); input()",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as other:
        port = other.stdout.readline().strip()
        code, told = said(f"[server]\nport = {port}\n")
        without = said(f"[server]\nport = {port}\n", "--no-env")[0]
        other.communicate("\n")
    assert (1, 0) == (code, without)
    assert f"models.toml:2:8: port {port} is taken by another program" in told


def test_a_running_omlx_on_its_own_port_is_no_problem(said):
    """Checking beside a running server does not complain about that server."""
    import threading

    server = HttpServer(ScriptedBackend(["fake"]), ServerSettings(port=0), grace_s=0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        assert 0 == said(f"[server]\nport = {server.url.rpartition(':')[2]}\n")[0]
    finally:
        server.stop()
        thread.join(10)


def test_an_address_that_cannot_be_is_a_problem(said):
    """A host that this machine does not have is told with the system's words."""
    code, told = said('[server]\nhost = "192.0.2.1"\nport = 8321\n')
    assert 1 == code
    assert "192.0.2.1:8321 cannot be listened on: " in told


@pytest.mark.parametrize(
    "verb", [["check", "--no-env", "--tests"], ["graph"], ["stages", "ls"], ["schema", "models"]]
)
def test_nothing_heavy_is_loaded(verb):
    """What is read before anything loads imports neither MLX nor transformers nor the server."""
    code = f"""
        import sys
        from omlx.cli import main
        assert main({verb!r}) == 0
        print(*(name for name in ("mlx", "mlx_lm", "transformers", "litestar", "torch") if name in sys.modules))
    """
    command = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=REPOSITORY, check=True)
    assert "" == done.stdout.splitlines()[-1]


def test_c6_a_template_that_loses_the_prompt_is_named(tmp_path, monkeypatch, capsys):
    """C6: without weights, a template that words the head by what stands at the end is a problem of its model."""
    (tmp_path / "good").mkdir()
    (tmp_path / "bad").mkdir()
    good = make_tokenizer(tmp_path / "good", TEMPLATES["chatml"])
    counts = "{{ messages | length }}{% for m in messages %}{{ m.content }}{% endfor %}"
    bad = make_tokenizer(tmp_path / "bad", counts)
    file = tmp_path / "models.toml"
    file.write_text(f'[models.good]\npath = "{good}"\n[models.bad]\npath = "{bad}"\n')
    monkeypatch.chdir(tmp_path)
    assert 1 == main(["check", str(file), "--no-env", "--templates"])
    told = capsys.readouterr().out
    assert "models.toml:4:8: its chat template renders the last" in told
    assert "1 problem in 1 of 1 file" in told
