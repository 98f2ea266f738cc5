"""Read `models.toml`: validated Settings, or every problem at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omlx.config.decode import decode_table, suggestion, unknown_key
from omlx.config.document import Document, read_document
from omlx.config.overrides import apply_overrides
from omlx.config.problem import Problem, problems_error
from omlx.config.settings import CacheSettings, Defaults, ModelSettings, ServerSettings, Settings

_TABLES: dict[str, type[Defaults] | type[ServerSettings] | type[CacheSettings]] = {
    "defaults": Defaults,
    "server": ServerSettings,
    "cache": CacheSettings,
}


@dataclass(frozen=True)
class Config:
    """Settings, and the document they come from: later checks name its lines."""

    settings: Settings
    document: Document

    @property
    def base(self) -> Path:
        """Return the folder that relative pipeline files and stage modules are looked for in."""
        return self.document.path.parent


def load_config(path: Path | None, overrides: tuple[str, ...] = ()) -> Config:
    """Return the settings of a file (or the defaults without one) with `--set path=value` applied.

    Raises ConfigError with every problem; UsageError for an override that is not `path=value`.
    """
    document = apply_overrides(read_document(path) if path else Document(Path("models.toml"), {}), overrides)
    settings, problems = decode_settings(document)
    if settings is None:
        raise problems_error(problems)
    return Config(settings, document)


def load_settings(path: Path | None, overrides: tuple[str, ...] = ()) -> Settings:
    """Return the settings alone; see `load_config`."""
    return load_config(path, overrides).settings


def decode_settings(document: Document) -> tuple[Settings | None, list[Problem]]:
    """Return Settings, or None and all problems of the document."""
    known = [*_TABLES, "models"]
    problems = [unknown_key(document, (), key, known) for key in document.data if key not in known]
    tables: dict[str, Any] = {}
    for name, kind in _TABLES.items():
        if name in document.data:
            tables[name], found = decode_table(document, (name,), document.data[name], kind)
            problems += found
    models, found = _decode_models(document)
    problems += found
    problems += _missing_folders(document, models)
    if isinstance(document.data.get("models", {}), dict):
        problems += _name_clashes(document, models)
        problems += _unknown_default(document, tables.get("defaults"), models)
    return (None, problems) if problems else (Settings(**tables, models=models), [])


def _decode_models(document: Document) -> tuple[dict[str, ModelSettings], list[Problem]]:
    """Return the models that are well, and the problems of the others."""
    raw = document.data.get("models", {})
    if not isinstance(raw, dict):
        return {}, [document.problem(("models",), "models must be tables", "write [models.NAME]")]
    models: dict[str, ModelSettings] = {}
    problems: list[Problem] = []
    for name, table in raw.items():
        value, found = decode_table(document, ("models", name), table, ModelSettings)
        problems += found
        if value is not None:
            models[name] = value
    return models, problems


def _name_clashes(document: Document, models: Mapping[str, ModelSettings]) -> list[Problem]:
    """Return a problem for each alias that another model already answers to."""
    owner = {name: name for name in document.data.get("models", {})}
    problems = []
    for name, model in models.items():
        for alias in model.aliases:
            if owner.setdefault(alias, name) != name:
                at = ("models", name, "aliases")
                message = f"alias {alias!r} already belongs to model {owner[alias]!r}"
                problems.append(document.problem(at, message, "choose another alias"))
    return problems


def _missing_folders(document: Document, models: Mapping[str, ModelSettings]) -> list[Problem]:
    """Return a problem for each path that can only be a folder and is none; others may be hub names."""
    problems = []
    for name, model in models.items():
        only_folder = model.path.startswith((".", "/", "~")) or model.path.count("/") > 1
        if not model.path.strip() or (only_folder and not Path(model.path).expanduser().is_dir()):
            at = ("models", name, "path")
            hint = "give an existing folder, or a hub name such as owner/name"
            problems.append(document.problem(at, f"model folder {model.path!r} does not exist", hint))
    return problems


def _unknown_default(
    document: Document, defaults: Defaults | None, models: Mapping[str, ModelSettings]
) -> list[Problem]:
    """Return a problem when `defaults.model` names no model; one with problems of its own counts."""
    if defaults is None or defaults.model is None:
        return []
    names = [
        *document.data.get("models", {}),
        *(alias for model in models.values() for alias in model.aliases),
    ]
    if defaults.model in names:
        return []
    message = f"there is no model {defaults.model!r}"
    return [document.problem(("defaults", "model"), message, suggestion(defaults.model, names))]
