"""The pipeline of each configured model."""

from pathlib import Path

from omlx.config.document import Document
from omlx.config.paths import find_pipeline
from omlx.config.settings import Settings
from omlx.errors import ConfigError
from omlx.pipeline.pipeline import Pipeline, Tuning, load_pipeline
from omlx.pipeline.stage import Stage
from omlx.registry import Registry


def load_pipelines(
    settings: Settings, base: Path, registry: Registry[type[Stage]], document: Document | None = None
) -> dict[str, Pipeline]:
    """Return the pipeline of each model, with the model's tuning applied.

    `base` is the folder of `models.toml`: its `pipelines/` comes first, and modules of stages may lie in it.
    With the `document` of the settings, problems name its lines. Raises ConfigError listing the problems of
    all models.
    """
    source = document or Document(base / "models.toml", {})
    pipelines: dict[str, Pipeline] = {}
    problems: list[str] = []
    for name in settings.models:
        try:
            pipelines[name] = _load(name, settings, base, registry, source)
        except ConfigError as error:
            problems += str(error).splitlines()
    if problems:
        raise ConfigError("\n".join(dict.fromkeys(problems)))
    return pipelines


def _load(
    name: str, settings: Settings, base: Path, registry: Registry[type[Stage]], source: Document
) -> Pipeline:
    model = settings.models[name]
    wanted = model.pipeline or settings.defaults.pipeline
    try:
        path = find_pipeline(wanted, base)
    except ConfigError as error:
        at = ("models", name, "pipeline") if model.pipeline else ("defaults", "pipeline")
        raise ConfigError(str(source.problem(at, error.message, error.hint))) from error
    tuning = Tuning(model.stages, source, ("models", name, "stages"))
    return load_pipeline(path, registry, tuning, (base,))
