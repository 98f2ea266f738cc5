"""A pipeline: stages in order, as a TOML file lists them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from omlx.config.decode import construct, decode_fields, decode_table, missing_keys, suggestion, unknown_key
from omlx.config.document import Document, read_document
from omlx.config.lines import KeyPath
from omlx.config.problem import Problem, problems_error
from omlx.config.settings import Table
from omlx.pipeline.analysis import Placed, analyse
from omlx.pipeline.stage import Stage
from omlx.pipeline.third_party import StageImportError, third_party_stage
from omlx.registry import Registry

#: Tables that a pipeline file may have. `test` belongs to the pipeline's own tests.
TABLES = ["pipeline", "stage", "test"]


class PipelineInfo(Table, frozen=True):
    """`[pipeline]`: words about the file.

    Options:
        description: what the chain is for, in a few words.
    """

    description: str = ""


@dataclass(frozen=True)
class Pipeline:
    """A checked chain of stages."""

    name: str
    description: str
    stages: tuple[Stage, ...]

    def stage(self, kind: type[Stage]) -> Stage | None:
        """Return the first stage of a class, or None."""
        return next((stage for stage in self.stages if isinstance(stage, kind)), None)


@dataclass(frozen=True)
class Tuning:
    """Keys that a model sets on single stages of its pipeline, and where they stand."""

    tables: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    document: Document = field(default_factory=lambda: Document(Path("models.toml"), {}))
    at: KeyPath = ("stages",)


def load_pipeline(
    path: Path,
    registry: Registry[type[Stage]],
    tuning: Tuning | None = None,
    folders: Sequence[Path] = (),
) -> Pipeline:
    """Read, decode and analyse a pipeline file. Modules of stages may lie beside it or in `folders`.

    Raises ConfigError listing every problem: an unknown stage or key, a bad value, an order that cannot work.
    """
    document = read_document(path)
    pipeline, problems = decode_pipeline(document, registry, tuning or Tuning(), (path.parent, *folders))
    if pipeline is None:
        raise problems_error(problems)
    return pipeline


def decode_pipeline(
    document: Document, registry: Registry[type[Stage]], tuning: Tuning, folders: Sequence[Path] = ()
) -> tuple[Pipeline | None, list[Problem]]:
    """Return the pipeline, or None and all problems of the document and the tuning."""
    info, problems = decode_table(document, ("pipeline",), document.data.get("pipeline", {}), PipelineInfo)
    problems += [unknown_key(document, (), key, TABLES) for key in document.data if key not in TABLES]
    found = _find_stages(document, registry, folders, problems)
    placed = _decode_stages(document, found, tuning, problems)
    if found and len(placed) == len(document.data["stage"]):  # the order of half a chain says nothing
        problems += analyse(placed, [kind for _, kind in registry])
    if problems or info is None:
        return None, problems
    return Pipeline(document.path.stem, info.description, tuple(p.stage for p in placed)), []


def _find_stages(
    document: Document, registry: Registry[type[Stage]], folders: Sequence[Path], problems: list[Problem]
) -> dict[KeyPath, type[Stage]]:
    """Return the class of each `[[stage]]` table that names one; add a problem for each that does not."""
    tables = document.data.get("stage", [])
    if not isinstance(tables, list) or not tables:
        message = "a pipeline needs at least one [[stage]] table"
        hint = "begin with the chain of the pipeline 'default'"
        if isinstance(tables, dict):
            hint = "write [[stage]], in two brackets"
        problems.append(document.problem(("stage",), message, hint))
        return {}
    found: dict[KeyPath, type[Stage]] = {}
    for index, table in enumerate(tables):
        at = ("stage", index)
        kind = _stage_class(document, at, table, registry, folders)
        if isinstance(kind, Problem):
            problems.append(kind)
        else:
            found[at] = kind
    return found


def _stage_class(
    document: Document, at: KeyPath, table: object, registry: Registry[type[Stage]], folders: Sequence[Path]
) -> type[Stage] | Problem:
    use = table.get("use") if isinstance(table, dict) else None
    if not isinstance(use, str):
        options = ", ".join(registry.names())
        return document.problem(at, 'a [[stage]] table needs use = "NAME"', f"use one of: {options}")
    try:
        kind = registry.get(use) or third_party_stage(use, folders)
    except StageImportError as error:
        missing = "No module named" in str(error)
        hint = (
            f"put {use.partition(':')[0]}.py beside this file, or install it"
            if missing
            else "mend the module"
        )
        return document.value_problem((*at, "use"), f"stage {use!r} cannot be loaded: {error}", hint)
    return kind or document.value_problem(
        (*at, "use"), f"unknown stage {use!r}", suggestion(use, registry.names())
    )


def _decode_stages(
    document: Document, found: Mapping[KeyPath, type[Stage]], tuning: Tuning, problems: list[Problem]
) -> list[Placed]:
    """Return the stages that decode, tuned; add the problems of the others, and of unmet tuning."""
    placed: list[Placed] = []
    unused = dict(tuning.tables)
    for at, kind in found.items():
        table = document.data["stage"][at[1]]
        values, wrong = decode_fields(document, at, table, kind, ignore=frozenset({"use"}))
        extra = unused.pop(kind.name(), {})
        source = (tuning.document, (*tuning.at, kind.name()))
        tuned, also_wrong = decode_fields(*source, extra, kind)
        wrong += also_wrong + missing_keys(document, at, {**table, **extra}, kind)
        elsewhere = dict.fromkeys(tuned, source)
        stage, wrong = construct(document, at, kind, {**values, **tuned}, wrong, elsewhere)
        problems += wrong
        if stage is not None:
            placed.append(Placed(stage, document, at))
    names = [kind.name() for kind in found.values()]
    problems += [_untuned(document, tuning, name, names) for name in unused]
    return placed


def _untuned(document: Document, tuning: Tuning, name: str, names: list[str]) -> Problem:
    message = f"pipeline {document.path.stem!r} has no stage {name!r} to tune"
    return tuning.document.problem((*tuning.at, name), message, suggestion(name, names))
