"""Configuration files are found where a person would put them."""

from pathlib import Path

import pytest

from omlx.config.paths import find_models_file, find_pipeline, pipeline_names
from omlx.errors import ConfigError


def test_a_pipeline_beside_the_models_comes_first(tmp_path):
    """A file in `pipelines/` beside models.toml takes the place of one that ships under the same name."""
    shipped = find_pipeline("default", tmp_path)
    (tmp_path / "pipelines").mkdir()
    own = tmp_path / "pipelines" / "default.toml"
    own.touch()
    assert own == find_pipeline("default", tmp_path) != shipped
    assert find_pipeline("no_cache", tmp_path).is_file()


def test_a_pipeline_may_be_a_file(tmp_path):
    """A name that ends in .toml is a file, relative to the folder of models.toml, or absolute."""
    own = tmp_path / "mine.toml"
    own.touch()
    assert own == find_pipeline("mine.toml", tmp_path)
    assert own == find_pipeline(str(own), Path("elsewhere"))
    with pytest.raises(ConfigError, match=r"pipeline file .*yours.toml does not exist"):
        find_pipeline("yours.toml", tmp_path)


@pytest.mark.parametrize(
    ("name", "hint"),
    [("defualt", "did you mean 'default'"), ("zzz", "use one of: default, no_cache, ram_only")],
)
def test_a_pipeline_that_is_not_there_gets_the_options(tmp_path, name, hint):
    """An unknown pipeline is refused with the nearest name, else with all of them."""
    with pytest.raises(ConfigError) as caught:
        find_pipeline(name, tmp_path)
    assert f"there is no pipeline {name!r}; {hint}" in str(caught.value)
    assert {"default", "no_cache", "ram_only"} <= set(pipeline_names(tmp_path))


def test_the_models_file_is_the_one_given_or_the_one_here(tmp_path, monkeypatch):
    """Without a name the file in the current folder is used, or none; one that is named must exist."""
    monkeypatch.chdir(tmp_path)
    assert find_models_file(None) is None
    Path("models.toml").touch()
    assert Path("models.toml") == find_models_file(None)
    with pytest.raises(ConfigError, match=r"other\.toml does not exist; name an existing models\.toml"):
        find_models_file("other.toml")
