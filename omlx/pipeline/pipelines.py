"""The pipeline of each configured model."""

from collections.abc import Iterable
from pathlib import Path

from omlx.config.document import Document, read_document
from omlx.config.paths import find_pipeline
from omlx.config.problem import Problem, ProblemsError, problems_error
from omlx.config.settings import Settings
from omlx.errors import ConfigError
from omlx.pipeline.pipeline import Pipeline, Tuning, decode_pipeline
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
    pipelines, problems = decode_pipelines(settings, base, registry, document)
    if problems:
        raise problems_error(problems)
    return pipelines


def decode_pipelines(
    settings: Settings, base: Path, registry: Registry[type[Stage]], document: Document | None = None
) -> tuple[dict[str, Pipeline], list[Problem]]:
    """Return the pipelines that are well by the name of their model, and all problems of the others."""
    source = document or Document(base / "models.toml", {})
    files = _Files(settings, base, source)
    pipelines: dict[str, Pipeline] = {}
    problems: list[Problem] = []
    for name, model in settings.models.items():
        found = files.of(name)
        if isinstance(found, Document):
            tuning = Tuning(model.stages, source, ("models", name, "stages"))
            pipeline, wrong = decode_pipeline(found, registry, tuning, (found.path.parent, base))
            pipelines |= {name: pipeline} if pipeline else {}
            problems += wrong
        else:
            problems += found
    return pipelines, problems


class _Files:
    """The pipeline file of each model, read once for all models that share it."""

    def __init__(self, settings: Settings, base: Path, source: Document) -> None:
        self._settings = settings
        self._base = base
        self._source = source
        self._read: dict[Path, Document | Iterable[Problem]] = {}

    def of(self, name: str) -> Document | Iterable[Problem]:
        """Return the file of a model's pipeline, or why there is none."""
        own = self._settings.models[name].pipeline
        try:
            path = find_pipeline(own or self._settings.defaults.pipeline, self._base)
        except ConfigError as error:
            at = ("models", name, "pipeline") if own else ("defaults", "pipeline")
            return [self._source.value_problem(at, error.message, error.hint)]
        if path not in self._read:
            try:
                self._read[path] = read_document(path)
            except ProblemsError as error:
                self._read[path] = error.problems
        return self._read[path]
