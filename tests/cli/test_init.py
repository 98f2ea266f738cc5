"""`omlx init` writes a models.toml for what is on the machine, and never over what is there."""

import json
import tomllib
from pathlib import Path

import pytest

from omlx.cli import main
from omlx.config.load import load_settings


def make(
    folder: Path, architecture: str = "LlamaForCausalLM", *, template: bool = True, **config: object
) -> Path:
    """Make what looks like a model's folder."""
    folder.mkdir(parents=True)
    values = {
        "model_type": "llama",
        "architectures": [architecture],
        "max_position_embeddings": 4096,
        **config,
    }
    (folder / "config.json").write_text(json.dumps(values))
    (folder / "model.safetensors").write_bytes(bytes(2048))
    if template:
        (folder / "chat_template.jinja").write_text("{{ messages }}")
    return folder


@pytest.fixture
def home(tmp_path, monkeypatch) -> Path:
    """Stand in an empty folder on a machine without models."""
    for name in ("HF_HUB_CACHE", "HF_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path


def written() -> dict:
    """Return what the file says."""
    return tomllib.loads(Path("models.toml").read_text())


def test_models_are_found_wherever_they_are(home, capsys):
    """Folders, the hub's cache and prepared models are offered; names are unique, weights are needed."""
    make(home / "models" / "owner" / "Qwen3.5-4bit", quantization={"bits": 4})
    make(home / "models" / "same", template=False)
    make(home / "models" / "encoder", "BertModel")
    (make(home / "models" / "empty") / "model.safetensors").unlink()
    hub = home / ".cache" / "huggingface" / "hub" / "models--owner--same"
    make(hub / "snapshots" / "main_is", quantization={"bits": 8})
    make(hub / "snapshots" / "later")
    (hub / "refs").mkdir()
    (hub / "refs" / "main").write_text("main_is")
    make(home / ".cache" / "omlx" / "models" / "smollm2-135m-instruct-float32")
    assert 0 == main(["init", "~/models"])
    assert {
        "qwen3.5-4bit": {"path": "~/models/owner/Qwen3.5-4bit"},
        "same": {"path": "~/models/same"},
        "same-2": {"path": "owner/same"},
        "smollm2-135m-instruct": {"path": "smollm2-135m-instruct"},
    } == written()["models"]
    text = Path("models.toml").read_text()
    assert '# llama, 4-bit, 2.0 KiB, window of 4096 tokens\n[models."qwen3.5-4bit"]\n' in text
    assert "# llama, 8-bit, 2.0 KiB, window of 4096 tokens\n[models.same-2]\n" in text
    assert 1 == text.count("# It has no chat template")
    assert "models.toml has 4 models:" in capsys.readouterr().out


def test_the_default_model_can_converse(home):
    """Requests that name no model go to one with a chat template, where there is one."""
    make(home / "models" / "a_base", template=False)
    make(home / "models" / "chat")
    assert 0 == main(["init", str(home / "models")])
    assert "chat" == written()["defaults"]["model"]


def test_without_models_the_small_one_is_named(home):
    """On a machine without models the file offers the one that is fetched on first use."""
    assert 0 == main(["init"])
    assert ["smollm2-135m-instruct"] == list(written()["models"])
    assert "fetched on first use (88.6 MiB)" in Path("models.toml").read_text()


def test_the_result_passes_the_checks(home, capsys):
    """What is written has no problems on this machine, and loads."""
    make(home / "models" / 'od"d name')
    assert 0 == main(["init", str(home / "models")])
    assert 0 == main(["check"])
    assert load_settings(Path("models.toml")).models


def test_nothing_is_replaced_without_being_asked_to(home, capsys):
    """A file that is there stays as it is, unless `--force` says otherwise."""
    Path("models.toml").write_text("# mine\n")
    assert 2 == main(["init"])
    assert "models.toml is there already; use --force" in capsys.readouterr().err
    assert "# mine\n" == Path("models.toml").read_text()
    assert 0 == main(["init", "--force"])
    assert "smollm2" in Path("models.toml").read_text()


def test_a_folder_that_is_not_there_is_wrong_usage(home, capsys):
    """A slip in a folder's name is told, and nothing is written."""
    assert 2 == main(["init", "nowhere"])
    assert not Path("models.toml").exists()
