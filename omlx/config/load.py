"""Read `models.toml`: validated Settings, or every problem at once."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omlx.config.decode import decode_table, suggestion, unknown_key
from omlx.config.document import Document, read_document
from omlx.config.machine import missing_folders
from omlx.config.overrides import apply_overrides
from omlx.config.problem import Problem, problems_error
from omlx.config.settings import CacheSettings, Defaults, ModelSettings, ServerSettings, Settings

_TABLES: dict[str, type[Defaults] | type[ServerSettings] | type[CacheSettings]] = {
    "defaults": Defaults,
    "server": ServerSettings,
    "cache": CacheSettings,
}
#: Tables that a `models.toml` may have.
MODELS_TABLES = (*_TABLES, "models")


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
    settings, problems = readable_settings(document)
    problems += missing_folders(document, settings.models)
    if problems:
        raise problems_error(problems)
    return Config(settings, document)


def load_settings(path: Path | None, overrides: tuple[str, ...] = ()) -> Settings:
    """Return the settings alone; see `load_config`."""
    return load_config(path, overrides).settings


def decode_settings(document: Document) -> tuple[Settings | None, list[Problem]]:
    """Return Settings, or None and all problems of the document; the machine is not asked."""
    settings, problems = readable_settings(document)
    return (None, problems) if problems else (settings, [])


def readable_settings(document: Document) -> tuple[Settings, list[Problem]]:
    """Return what a document says as far as it can be read, with defaults for the rest, and all problems."""
    known = list(MODELS_TABLES)
    problems = [unknown_key(document, (), key, known) for key in document.data if key not in known]
    tables: dict[str, Any] = {}
    for name, kind in _TABLES.items():
        if name in document.data:
            table, found = decode_table(document, (name,), document.data[name], kind)
            problems += found
            tables |= {name: table} if table is not None else {}
    models, found = _decode_models(document)
    problems += found
    if isinstance(document.data.get("models", {}), dict):
        problems += _name_clashes(document, models)
        problems += _unknown_default(document, tables.get("defaults"), models)
    return Settings(**tables, models=models), problems


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
        for index, alias in enumerate(model.aliases):
            if owner.setdefault(alias, name) != name:
                at = ("models", name, "aliases", alias if isinstance(model.aliases, dict) else index)
                message = f"alias {alias!r} already belongs to model {owner[alias]!r}"
                problems.append(document.problem(at, message, "choose another alias"))
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
    return [document.value_problem(("defaults", "model"), message, suggestion(defaults.model, names))]
