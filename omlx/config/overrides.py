"""`--set path=value`: values from the command line, over those of the file."""

import tomllib
from collections.abc import Iterable
from typing import Any

from omlx.config.document import Document
from omlx.config.lines import KeyPath
from omlx.errors import UsageError


def apply_overrides(document: Document, overrides: Iterable[str]) -> Document:
    """Return the document with each `path=value` set; of two for one path the later counts.

    The path is a TOML key (`models."qwen3.5".pipeline`). The value is TOML, or plain text if it is not.
    Raises UsageError for what is not `path=value`.
    """
    data = document.data
    origins = dict(document.overrides)
    for override in overrides:
        dotted, equals, text = override.partition("=")
        path = _key_path(dotted) if equals else None
        if path is None:
            raise UsageError(f"--set {override!r} is not path=value", hint="for example --set cache.hot=2GiB")
        data = _with_value(data, path, _toml_value(text.strip()), override)
        origins[path] = override
    return document.over(data, origins)


def _key_path(dotted: str) -> KeyPath | None:
    """Return a dotted TOML key as its parts, or None when it is none."""
    try:
        table: object = tomllib.loads(f"{dotted} = 0")
    except tomllib.TOMLDecodeError:
        return None
    path: KeyPath = ()
    while isinstance(table, dict):
        if len(table) != 1:
            return None
        [(part, table)] = table.items()
        path = (*path, part)
    return path


def _with_value(table: dict[str, Any], path: KeyPath, value: object, override: str) -> dict[str, Any]:
    """Return a copy of the table with a value at a path; tables on the way are made."""
    head, rest = str(path[0]), path[1:]
    if rest:
        inner = table.get(head, {})
        if not isinstance(inner, dict):
            raise UsageError(f"--set {override!r}: {head!r} is a value, it has no key {rest[0]!r}")
        value = _with_value(inner, rest, value, override)
    return {**table, head: value}


def _toml_value(text: str) -> object:
    try:
        parsed = tomllib.loads(f"value = {text}")
    except tomllib.TOMLDecodeError:
        return text
    return parsed["value"] if len(parsed) == 1 else text
