"""Read `models.toml` and apply `--set`: the sum of all problems, or validated Settings."""

import tomllib
from pathlib import Path
from typing import Any

from omlx.config.decode import decode_table
from omlx.config.document import Document, KeyPath, read_document
from omlx.config.problem import Problem, problems_error
from omlx.config.settings import CacheSettings, Defaults, ModelSettings, ServerSettings, Settings
from omlx.errors import UsageError

_TABLES: dict[str, type[Defaults] | type[ServerSettings] | type[CacheSettings]] = {
    "defaults": Defaults,
    "server": ServerSettings,
    "cache": CacheSettings,
}


def load_settings(path: Path | None, overrides: tuple[str, ...] = ()) -> Settings:
    """Return the settings of a file (or the defaults without one) with `--set path=value` applied.

    Raises ConfigError with every problem; UsageError for an override that is not `path=value`.
    """
    document = read_document(path) if path else Document(Path("--set"), {})
    document = apply_overrides(document, overrides)
    settings, problems = decode_settings(document)
    if settings is None:
        raise problems_error(problems)
    return settings


def decode_settings(document: Document) -> tuple[Settings | None, list[Problem]]:
    """Return Settings, or None and all problems of the document."""
    tables: dict[str, Any] = {}
    problems: list[Problem] = []
    for name, kind in _TABLES.items():
        if name in document.data:
            tables[name], found = decode_table(document, (name,), document.data[name], kind)
            problems += found
    models, found = _decode_models(document)
    shell = {key: {} for key in document.data}
    _, unknown = decode_table(document, (), shell, Settings, ignore=frozenset({*_TABLES, "models"}))
    problems += found + unknown + _name_clashes(document, models)
    return (None, problems) if problems else (Settings(**tables, models=models), [])


def _decode_models(document: Document) -> tuple[dict[str, ModelSettings], list[Problem]]:
    raw = document.data.get("models", {})
    if not isinstance(raw, dict):
        return {}, [document.problem(("models",), "models must be tables: [models.NAME]")]
    models: dict[str, ModelSettings] = {}
    problems: list[Problem] = []
    for name, table in raw.items():
        value, found = decode_table(document, ("models", name), table, ModelSettings)
        problems += found
        if value is not None:
            models[name] = value
    return models, problems


def _name_clashes(document: Document, models: dict[str, ModelSettings]) -> list[Problem]:
    """Return a problem for each alias that another model already answers to."""
    owner = {name: name for name in models}
    problems = []
    for name, model in models.items():
        for alias in model.aliases:
            if owner.setdefault(alias, name) != name:
                at = ("models", name, "aliases")
                message = f"alias {alias!r} already belongs to model {owner[alias]!r}"
                problems.append(document.problem(at, message, "choose another alias"))
    return problems


def apply_overrides(document: Document, overrides: tuple[str, ...]) -> Document:
    """Return the document with each `path=value` set. The value is TOML, or a plain string if it is not."""
    data = document.data
    for override in overrides:
        dotted, equals, text = override.partition("=")
        if not equals or not dotted.strip():
            raise UsageError(f"--set {override!r} is not path=value", hint="for example --set cache.hot=2GiB")
        path: KeyPath = tuple(part.strip() for part in dotted.split("."))
        data = _with_value(data, path, _toml_value(text.strip()), override)
    return Document(document.path, data, document.lines)


def _with_value(table: object, path: KeyPath, value: object, override: str) -> dict[str, Any]:
    if not isinstance(table, dict):
        raise UsageError(f"--set {override!r} goes through {path[0]!r}, whose parent is not a table")
    head, rest = path[0], path[1:]
    new = value if not rest else _with_value(table.get(str(head), {}), rest, value, override)
    return {**table, str(head): new}


def _toml_value(text: str) -> object:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
