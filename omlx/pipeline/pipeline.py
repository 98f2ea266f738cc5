"""A pipeline: stages in order, as a TOML file lists them."""

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

from omlx.config.decode import decode_table
from omlx.config.document import Document, KeyPath, read_document
from omlx.config.problem import Problem, problems_error
from omlx.config.settings import Table
from omlx.pipeline.analysis import Placed, analyse
from omlx.pipeline.stage import Stage
from omlx.registry import Registry, nearest


class PipelineInfo(Table):
    """`[pipeline]`: words about the file."""

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


def load_pipeline(
    path: Path, registry: Registry[type[Stage]], tuning: Mapping[str, Mapping[str, Any]] | None = None
) -> Pipeline:
    """Read, decode and analyse a pipeline file. `tuning` overrides keys of single stages (`stages` of a model).

    Raises ConfigError listing every problem: an unknown stage or key, a bad value, an order that cannot work.
    """
    document = read_document(path)
    pipeline, problems = decode_pipeline(document, registry, tuning or {})
    if pipeline is None:
        raise problems_error(problems)
    return pipeline


def decode_pipeline(
    document: Document, registry: Registry[type[Stage]], tuning: Mapping[str, Mapping[str, Any]]
) -> tuple[Pipeline | None, list[Problem]]:
    """Return the pipeline, or None and all problems of the document."""
    info, problems = decode_table(document, ("pipeline",), document.data.get("pipeline", {}), PipelineInfo)
    problems += [
        document.problem((key,), f"unknown key {key!r}", "a pipeline file has [pipeline] and [[stage]] tables")
        for key in document.data
        if key not in {"pipeline", "stage", "test"}
    ]
    placed, found = _decode_stages(document, registry, tuning)
    problems += found
    if not problems:
        problems = analyse(placed)
    if problems or info is None:
        return None, problems
    return Pipeline(document.path.stem, info.description, tuple(p.stage for p in placed)), []


def _decode_stages(
    document: Document, registry: Registry[type[Stage]], tuning: Mapping[str, Mapping[str, Any]]
) -> tuple[list[Placed], list[Problem]]:
    tables = document.data.get("stage", [])
    if not isinstance(tables, list) or not tables:
        return [], [document.problem(("stage",), "a pipeline needs at least one [[stage]] table")]
    placed: list[Placed] = []
    problems: list[Problem] = []
    unused = dict(tuning)
    for index, table in enumerate(tables):
        at: KeyPath = ("stage", index)
        kind, found = _stage_class(document, at, table, registry)
        problems += found
        if kind is not None:
            merged = {**table, **unused.pop(kind.name(), {})}
            stage, found = decode_table(document, at, merged, kind, ignore=frozenset({"use"}))
            problems += found
            if stage is not None:
                placed.append(Placed(stage, document, at))
    problems += [
        document.problem((), f"a model tunes stage {name!r}, which this pipeline does not have") for name in unused
    ]
    return placed, problems


def _stage_class(
    document: Document, at: KeyPath, table: object, registry: Registry[type[Stage]]
) -> tuple[type[Stage] | None, list[Problem]]:
    use = table.get("use") if isinstance(table, dict) else None
    if not isinstance(use, str):
        return None, [document.problem(at, "a [[stage]] table needs use = NAME")]
    try:
        kind = registry.get(use) or _third_party(use)
    except (ImportError, AttributeError, TypeError) as error:
        return None, [document.problem((*at, "use"), f"stage {use!r} cannot be loaded: {error}")]
    if kind is not None:
        return kind, []
    guess = nearest(use, registry.names())
    hint = f"did you mean {guess!r}?" if guess else "use one of: " + ", ".join(registry.names())
    return None, [document.problem((*at, "use"), f"unknown stage {use!r}", hint)]


def _third_party(use: str) -> type[Stage] | None:
    """Return the stage named `module:Class`, or by an entry point of the group `omlx.stages`."""
    if ":" in use:
        module, _, attribute = use.partition(":")
        found = getattr(importlib.import_module(module), attribute)
    else:
        named = tuple(entry_points(group="omlx.stages", name=use))
        if not named:
            return None
        found = named[0].load()
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise TypeError(f"{use} is not a subclass of omlx.pipeline.stage.Stage")
    return found
