"""`omlx models` lists, fetches, removes, loads and unloads."""

import io
import json
from pathlib import Path

import pytest

from omlx.cli import main
from omlx.models.resolve import resolve_folder
from tests.serving import serving, settings_for
from tests.tiny_models import make_model

REVISION = "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def place(tmp_path, monkeypatch) -> Path:
    """Stand in an empty folder, with caches of its own, where no hub can be reached."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def fetched(place) -> Path:
    """Put a tiny model where the hub's client would have put it; return its repository's folder."""
    repository = place / "hub" / "models--owner--tiny"
    make_model(repository / "snapshots" / REVISION, "llama")
    (repository / "refs").mkdir()
    (repository / "refs" / "main").write_text(REVISION)
    return repository


def said(capsys, *arguments: str) -> object:
    """Return the JSON that `omlx models` prints."""
    assert 0 == main(["models", *arguments, "--json", "--url", "127.0.0.1:9"])
    return json.loads(capsys.readouterr().out)


def test_configured_and_found_models_are_listed(fetched, capsys):
    """`ls` shows what models.toml names, here or not, and what else is on this machine."""
    Path("models.toml").write_text(
        '[models.big]\npath = "owner/big"\naliases = ["gpt"]\nwindow_tokens = 99\n'
    )
    big, tiny = said(capsys, "ls")
    assert ("big", "owner/big", ["gpt"], None, 99, None) == tuple(big.values())
    assert (None, "owner/tiny", 65536) == (tiny["name"], tiny["path"], tiny["window_tokens"])
    assert tiny["bytes"] == sum(file.stat().st_size for file in fetched.rglob("*.safetensors"))
    assert 0 == main(["models", "ls"])
    assert "not here" in capsys.readouterr().out


def test_what_is_here_need_not_be_fetched(fetched, capsys):
    """`pull` of a model that is here says where it is, at the revision that is pinned; `path` may pin it as well."""
    folder = str(fetched / "snapshots" / REVISION)
    assert folder == said(capsys, "pull", "owner/tiny")["folder"]
    pinned = said(capsys, "pull", "owner/tiny", "--revision", REVISION)
    assert (f"owner/tiny@{REVISION}", folder) == (pinned["path"], pinned["folder"])
    assert folder == str(resolve_folder(f"owner/tiny@{REVISION}"))


@pytest.mark.parametrize("name", ["owner/nobody", f"owner/tiny@{REVISION[::-1]}"])
def test_offline_a_model_cannot_be_fetched(fetched, capsys, name):
    """`pull` without a connection fails with words that say so."""
    assert 1 == main(["models", "pull", name])
    assert f"model {name!r} is not on this machine and could not be downloaded" in capsys.readouterr().err


def test_a_fetched_model_is_removed(fetched, capsys):
    """`rm --yes` deletes all of a fetched model; then it is not there to be removed."""
    found = said(capsys, "rm", "owner/tiny", "--yes")
    assert not fetched.exists()
    assert found["bytes"] > 100_000
    assert 1 == main(["models", "rm", "owner/tiny", "--yes"])
    assert "'owner/tiny' is not on this machine" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "stays"), [("n\n", True), ("\n", True), ("yes\n", False)])
def test_rm_asks(fetched, monkeypatch, answer, stays):
    """A person is asked before anything is deleted; only yes means yes."""
    asked = io.StringIO(answer)
    monkeypatch.setattr(asked, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdin", asked)
    assert (1 if stays else 0) == main(["models", "rm", "owner/tiny"])
    assert stays == fetched.exists()


def test_rm_does_not_guess(fetched, capsys, monkeypatch):
    """Without a person to ask and without --yes nothing is deleted; a folder of the person's never is."""
    monkeypatch.setattr("sys.stdin", io.StringIO())
    assert 2 == main(["models", "rm", "owner/tiny"])
    assert 2 == main(["models", "rm", str(fetched), "--yes"])
    assert fetched.exists()
    assert "say --yes" in capsys.readouterr().err


def test_a_running_server_loads_and_unloads(place, capsys):
    """`load` and `unload` act on the server that runs, and `ls` shows it; what it refuses is said."""
    folder = make_model(place / "model", "llama")
    Path("models.toml").write_text(f'[models.tiny]\npath = "{folder}"\n')
    with serving(settings_for(folder, place / "blocks")) as server:

        def loaded() -> bool:
            capsys.readouterr()  # what the server has logged
            assert 0 == main(["models", "ls", "--json", "--url", server.url])
            return json.loads(capsys.readouterr().out)[0]["loaded"]

        assert not loaded()
        assert 0 == main(["models", "load", "tiny", "--url", server.url])
        assert "tiny is loaded\n" == capsys.readouterr().out
        assert loaded()
        assert 0 == main(["models", "unload", "tiny", "--url", server.url])
        assert "tiny is unloaded\n" == capsys.readouterr().out
        assert not loaded()
        assert 1 == main(["models", "load", "nobody", "--url", server.url])
        assert "404: model 'nobody' does not exist" in capsys.readouterr().err
    assert 1 == main(["models", "load", "tiny", "--url", server.url])
    assert "no server answers" in capsys.readouterr().err
