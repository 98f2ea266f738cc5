"""`omlx check --effective` shows every value that a request would meet, and who says so."""

import json

import pytest

from omlx.cli import main

MODELS = """\
[defaults]
pipeline = "mine.toml"
[cache]
hot = "2GiB"
[models.coder]
path = "{folder}"
aliases = ["small"]
sampling = {{ top_p = 0.9 }}
stages.prefill.chunk_tokens = 256
"""
CHAIN = '[[stage]]\nuse = "tokenize"\n[[stage]]\nuse = "prefill"\nchunk_tokens = 64\nexact = true\n'


@pytest.fixture
def project(tmp_path, monkeypatch):
    """Stand in a folder with a model that has wishes of its own, a pipeline, and a models.toml."""
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "generation_config.json").write_text('{"temperature": 0.7, "top_p": 0.5}')
    (tmp_path / "mine.toml").write_text(CHAIN)
    (tmp_path / "models.toml").write_text(MODELS.format(folder=tmp_path / "model"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def values(capsys, *arguments: str) -> dict[str, dict]:
    """Return the values of the one model by key."""
    assert 0 == main(["check", "--effective", "--json", *arguments])
    return {value["key"]: value for value in json.loads(capsys.readouterr().out)["models"]["coder"]}


@pytest.mark.parametrize(
    ("key", "value", "source", "where"),
    [
        ("aliases", ["small"], "model", "models.toml:7"),
        ("pipeline", "mine.toml", "defaults", "models.toml:2"),
        ("sampling.top_p", 0.9, "model", "models.toml:8"),
        ("sampling.temperature", 0.7, "model folder", "model/generation_config.json"),
        ("sampling.top_k", None, "default", None),
        ("stages.prefill.chunk_tokens", 256, "model", "models.toml:9"),
        ("stages.prefill.exact", True, "pipeline file", "mine.toml:6"),
        ("stages.prefill.kv_bits", None, "default", None),
        ("trust_remote_code", False, "default", None),
    ],
)
def test_each_value_has_its_source(project, capsys, key, value, source, where):
    """Model over defaults, model over pipeline file, TOML over the model's folder, over the default."""
    found = values(capsys)[key]
    assert (value, source, where) == (found["value"], found["source"], found["where"])


def test_an_override_is_above_the_file(project, capsys):
    """A value from the command line names its `--set`."""
    override = "models.coder.stages.prefill.chunk_tokens=128"
    found = values(capsys, "--set", override)["stages.prefill.chunk_tokens"]
    assert (128, "--set", override) == (found["value"], found["source"], found["where"])


def test_without_a_wish_the_choice_is_greedy(project, capsys):
    """A temperature that nobody names is 0."""
    (project / "model" / "generation_config.json").unlink()
    found = values(capsys)["sampling.temperature"]
    assert (0.0, "default") == (found["value"], found["source"])


def test_for_people_it_is_toml_with_sources(project, capsys):
    """The text is TOML that could be pasted, with a comment a line that says where the value comes from."""
    assert 0 == main(["check", "--effective"])
    lines = capsys.readouterr().out.splitlines()
    assert 'hot = "2GiB"                        # models.toml, models.toml:4' in lines
    assert 'cold = "40GiB"                      # default' in lines
    assert "# What a request says itself is above all of these." == lines[-1]
    [chunk] = [line for line in lines if line.startswith("stages.prefill.chunk_tokens = 256 ")]
    assert chunk.endswith("# model, models.toml:9")


def test_a_named_file_is_the_one_that_is_shown(project, capsys):
    """With a file on the command line its values are shown, not those of ./models.toml."""
    (project / "other.toml").write_text('[cache]\nhot = "3GiB"\n')
    assert 0 == main(["check", "other.toml", "--effective"])
    assert "# models.toml, other.toml:2" in capsys.readouterr().out


def test_with_problems_those_are_shown(project, capsys):
    """Values that cannot be read are told as problems."""
    (project / "mine.toml").write_text(CHAIN.replace("exact", "exakt"))
    assert 1 == main(["check", "--effective"])
    assert "mine.toml:6:1: unknown key 'exakt'" in capsys.readouterr().out


ALIASES = """
[models.coder.aliases.thinker]
sampling = { temperature = 0.3 }
template_options = { enable_thinking = true }
"""


@pytest.mark.parametrize(
    ("key", "value", "source", "where"),
    [
        ("aliases", ["thinker"], "model", "models.toml:11"),
        ("aliases.thinker.sampling.temperature", 0.3, "alias", "models.toml:12"),
        ("aliases.thinker.sampling.top_p", 0.9, "model", "models.toml:7"),
        ("aliases.thinker.sampling.top_k", 5, "model folder", "model/generation_config.json"),
        ("aliases.thinker.template_options.enable_thinking", True, "alias", "models.toml:13"),
        ("aliases.thinker.template_options.level", 2, "model", "models.toml:9"),
        ("sampling.temperature", 0.7, "model folder", "model/generation_config.json"),
    ],
)
def test_what_an_alias_gets_has_its_source(project, capsys, key, value, source, where):
    """G6: an alias is above its model, which is above the model's folder; each value says whose it is."""
    models = MODELS.format(folder=project / "model").replace('aliases = ["small"]\n', "")
    (project / "models.toml").write_text(f"{models}template_options = {{ level = 2 }}\n{ALIASES}")
    (project / "model" / "generation_config.json").write_text(
        '{"temperature": 0.7, "top_p": 0.5, "top_k": 5}'
    )
    found = values(capsys)[key]
    assert (value, source, where) == (found["value"], found["source"], found["where"])
