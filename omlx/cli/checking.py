"""Everything that can be said about configuration files before anything loads."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from omlx.config.document import Document, read_document
from omlx.config.load import MODELS_TABLES, readable_settings
from omlx.config.machine import machine_problems, missing_folders
from omlx.config.overrides import apply_overrides
from omlx.config.paths import pipeline_folders
from omlx.config.problem import Problem, ProblemsError, in_order
from omlx.config.settings import Settings
from omlx.errors import UsageError
from omlx.pipeline.pipeline import TABLES, Tuning, decode_pipeline
from omlx.pipeline.pipelines import decode_pipelines
from omlx.pipeline.stage import Stage
from omlx.registry import Registry, nearest
from omlx.testing.rehearsal import ReadRequest, Rehearsed, rehearse
from omlx.testing.scenario import decode_tests


@dataclass(frozen=True)
class Wanted:
    """What is to be checked, and how far.

    Attributes:
        models: the files with models.
        pipelines: the files with a chain.
        overrides: values from the command line, over those of `models`.
        machine: ask this machine too: folders, room, port.
        read: reads requests, to walk the tests of pipelines; None leaves them alone.
        templates: render two turns with the chat template of each model.
    """

    models: Sequence[Path]
    pipelines: Sequence[Path]
    overrides: tuple[str, ...] = ()
    machine: bool = True
    read: ReadRequest | None = None
    templates: bool = False


@dataclass
class Checked:
    """What was found. Mutable: filled as files are read."""

    problems: list[Problem] = field(default_factory=list)
    tests: list[Rehearsed] = field(default_factory=list)


def found_files(models: Path | None) -> tuple[list[Path], list[Path]]:
    """Return the models file, if there is one, and the pipelines beside it: all that is found."""
    base = models.parent if models else Path()
    pipelines = sorted(path for folder in pipeline_folders(base)[:1] for path in folder.glob("*.toml"))
    return ([models] if models else []), pipelines


def sorted_files(files: Iterable[Path]) -> tuple[list[Path], list[Path]]:
    """Return which files have models and which have a chain, by the tables they have. Raises UsageError."""
    models: list[Path] = []
    pipelines: list[Path] = []
    for path in files:
        if not path.is_file():
            raise UsageError(
                f"there is no file {path}", hint="name TOML files, or none to check all that are found"
            )
        (pipelines if _has_chain(path) else models).append(path)
    return models, pipelines


def check(wanted: Wanted, registry: Registry[type[Stage]]) -> tuple[tuple[Problem, ...], list[Rehearsed]]:
    """Return all problems of all files, sorted by place, and the tests that were walked."""
    checked = Checked()
    for path in wanted.models:
        _check_models(path, wanted, registry, checked)
    bases = [path.parent for path in wanted.models]
    for path in wanted.pipelines:
        _check_pipeline(path, (path.parent, *bases), wanted, registry, checked)
    return in_order(checked.problems), checked.tests


def _check_models(path: Path, wanted: Wanted, registry: Registry[type[Stage]], checked: Checked) -> None:
    """Check a models file, and the pipelines that its models tune."""
    document = _read(path, checked)
    if document is None:
        return
    document = apply_overrides(document, wanted.overrides)
    settings, problems = readable_settings(document)
    if wanted.machine:
        problems += _machine(document, settings, well=not problems)
    problems += decode_pipelines(settings, path.parent, registry, document)[1]
    if wanted.templates:
        from omlx.cli.templates import template_problems  # noqa: PLC0415 - text and models: 80 ms

        problems += template_problems(document, settings)
    checked.problems += problems


def _machine(document: Document, settings: Settings, *, well: bool) -> list[Problem]:
    """Ask the machine; of settings that could not be read, only for the folders."""
    return machine_problems(document, settings) if well else missing_folders(document, settings.models)


def _check_pipeline(
    path: Path, folders: Sequence[Path], wanted: Wanted, registry: Registry[type[Stage]], checked: Checked
) -> None:
    """Check a pipeline file by itself, its tests too; walk them when that is wanted."""
    document = _read(path, checked)
    if document is None:
        return
    pipeline, problems = decode_pipeline(document, registry, Tuning(), folders)
    tests, wrong = decode_tests(document)
    checked.problems += problems + wrong
    if pipeline is None or wrong or wanted.read is None:
        return
    for number, test in enumerate(tests):
        done = rehearse(document, number, test, pipeline.stages, wanted.read)
        checked.tests.append(done)
        checked.problems += done.problems


def _read(path: Path, checked: Checked) -> Document | None:
    try:
        return read_document(path)
    except ProblemsError as error:
        checked.problems += error.problems
        return None


def _has_chain(path: Path) -> bool:
    """Tell a pipeline file from one with models: by its tables, misspelt or not; without any, by its folder."""
    try:
        tables = {nearest(name, [*TABLES, *MODELS_TABLES]) for name in read_document(path).data}
    except ProblemsError:
        tables = set()
    return bool(tables & set(TABLES)) or (not tables and path.parent.name == "pipelines")
