"""Every configured model gets its pipeline, or all problems of all models are shown."""

from pathlib import Path

import pytest

from omlx.config.load import load_config
from omlx.errors import ConfigError
from omlx.pipeline.pipelines import load_pipelines
from omlx.stages import built_in_stages
from omlx.stages.prefill import PrefillStage


def write(tmp_path: Path, text: str) -> Path:
    """Write a models.toml."""
    path = tmp_path / "models.toml"
    path.write_text(text)
    return path


def test_each_model_has_its_own_tuned_pipeline(tmp_path):
    """Models that share a pipeline are tuned each for itself; a file beside models.toml may be one's own."""
    (tmp_path / "mine.toml").write_text('[[stage]]\nuse = "tokenize"\n[[stage]]\nuse = "prefill"\n')
    config = load_config(
        write(
            tmp_path,
            """\
[defaults]
pipeline = "no_cache"
[models.a]
path = "o/a"
stages.prefill.chunk_tokens = 64
[models.b]
path = "o/b"
[models.c]
path = "o/c"
pipeline = "mine.toml"
""",
        )
    )
    pipelines = load_pipelines(config.settings, config.base, built_in_stages(), config.document)
    assert {"a": "no_cache", "b": "no_cache", "c": "mine"} == {name: p.name for name, p in pipelines.items()}
    assert PrefillStage(chunk_tokens=64) == pipelines["a"].stage(PrefillStage)
    assert PrefillStage() == pipelines["b"].stage(PrefillStage)


def test_the_problems_of_all_models_come_together(tmp_path):
    """A missing pipeline and bad tuning are named with their lines in models.toml, for every model."""
    config = load_config(
        write(
            tmp_path,
            """\
[defaults]
pipeline = "defualt"
[models.a]
path = "o/a"
[models.b]
path = "o/b"
pipeline = "no_cash"
[models.c]
path = "o/c"
pipeline = "no_cache"
stages.lookup.tiers = ["hot"]
""",
        )
    )
    with pytest.raises(ConfigError) as caught:
        load_pipelines(config.settings, config.base, built_in_stages(), config.document)
    assert """\
models.toml:2: there is no pipeline 'defualt'; did you mean 'default'?
models.toml:7: there is no pipeline 'no_cash'; did you mean 'no_cache'?
models.toml:11: pipeline 'no_cache' has no stage 'lookup' to tune; use one of: tokenize, prefill, decode\
""" == str(caught.value).replace(f"{tmp_path}/", "")
