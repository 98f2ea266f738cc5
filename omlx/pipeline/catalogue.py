"""The stages that can be used, and what each says of itself."""

import inspect
from collections.abc import Iterator, Sequence
from importlib.metadata import entry_points
from pathlib import Path

import msgspec

from omlx.config.document import read_document
from omlx.config.paths import pipeline_folders
from omlx.config.reference import Option, options_of, words_of
from omlx.errors import ConfigError
from omlx.pipeline.stage import Lane, Stage
from omlx.pipeline.third_party import GROUP, StageImportError, third_party_stage
from omlx.registry import Registry


class StageDoc(msgspec.Struct, frozen=True):
    """What a stage says of itself. `use` is what a pipeline file writes; `source` is `file:line`."""

    use: str
    name: str
    summary: str
    more: str
    lane: Lane
    requires: tuple[str, ...]
    uses: tuple[str, ...]
    assigns: tuple[str, ...]
    after: tuple[str, ...]
    during: tuple[str, ...]
    options: tuple[Option, ...]
    source: str


def stage_doc(use: str, kind: type[Stage]) -> StageDoc:
    """Return what a stage says of itself, by its docstring, its keys and its declaration."""
    words = words_of(kind)
    return StageDoc(
        use=use,
        name=kind.name(),
        summary=words.summary,
        more=words.more,
        lane=kind.lane,
        requires=kind.requires,
        uses=kind.uses,
        assigns=kind.assigns,
        after=kind.after,
        during=kind.during,
        options=options_of(kind),
        source=_source(kind),
    )


def known_stages(registry: Registry[type[Stage]], base: Path) -> dict[str, type[Stage]]:
    """Return all stages by what `use` takes: built in, of entry points, and named by the pipelines of `base`.

    What cannot be loaded is left out; checking tells why. Runs the code of the modules.
    """
    found = dict(registry)
    for point in entry_points(group=GROUP):
        _add(found, point.name, ())
    for folder in pipeline_folders(base)[:1]:
        for path in sorted(folder.glob("*.toml")):
            for use in named_stages(path):
                _add(found, use, (folder, base))
    return found


def named_stages(path: Path) -> Iterator[str]:
    """Yield what the `[[stage]]` tables of a pipeline file use; nothing for a file that cannot be read."""
    try:
        tables = read_document(path).data.get("stage", [])
    except ConfigError:
        return
    for table in tables if isinstance(tables, list) else []:
        if isinstance(table, dict) and isinstance(use := table.get("use"), str):
            yield use


def _add(found: dict[str, type[Stage]], use: str, folders: Sequence[Path]) -> None:
    try:
        kind = found.get(use) or third_party_stage(use, folders)
    except StageImportError:
        return
    if kind is not None:
        found[use] = kind


def _source(kind: type) -> str:
    """Return the file and line of a class: from its top package on, where it lies in one."""
    path, line = Path(inspect.getsourcefile(kind) or "?"), inspect.getsourcelines(kind)[1]
    parts = kind.__module__.split(".")
    inside = path.parts[-len(parts) :] if len(parts) > 1 else path.parts[-1:]
    return f"{'/'.join(inside)}:{line}"
