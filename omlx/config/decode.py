"""Decode a TOML table into a Struct and report every problem in it, not the first one only."""

from typing import Any, TypeVar

import msgspec

from omlx.config.document import Document, KeyPath
from omlx.config.problem import Problem
from omlx.registry import nearest
from omlx.units import decode_unit

T = TypeVar("T", bound=msgspec.Struct)


def decode_table(
    document: Document, at: KeyPath, table: object, kind: type[T], *, ignore: frozenset[str] = frozenset()
) -> tuple[T | None, list[Problem]]:
    """Return the Struct for a table, or None and all of its problems.

    Keys in `ignore` are left to the caller. Every key is converted by itself, so that one bad value does not
    hide another.
    """
    if not isinstance(table, dict):
        return None, [document.problem(at, f"{_name(at)} must be a table")]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    problems = [_unknown_key(document, at, key, list(fields)) for key in table if key not in {*fields, *ignore}]
    values: dict[str, Any] = {}
    for key, field in fields.items():
        if key in table:
            try:
                values[field.name] = convert(table[key], field.type)
            except msgspec.ValidationError as error:
                problems.append(document.problem((*at, key), f"{key}: {_plain(error)}"))
        elif field.required:
            problems.append(document.problem(at, f"{_name(at)} needs {key!r}"))
    return (None, problems) if problems else (kind(**values), [])


def convert(value: object, kind: Any) -> Any:
    """Convert a TOML value to a type, units included. Raises msgspec.ValidationError."""
    return msgspec.convert(value, kind, dec_hook=decode_unit)


def _unknown_key(document: Document, at: KeyPath, key: str, options: list[str]) -> Problem:
    guess = nearest(key, options)
    hint = f"did you mean {guess!r}?" if guess else "use one of: " + ", ".join(options)
    return document.problem((*at, key), f"unknown key {key!r} in {_name(at)}", hint)


def _plain(error: msgspec.ValidationError) -> str:
    """Return msgspec's message with its path spelled as a person would (`$.` is not TOML)."""
    message, _, where = str(error).partition(" - at ")
    inside = where.strip("`").removeprefix("$").removeprefix(".")
    return f"{message} (at {inside})" if inside else message


def _name(at: KeyPath) -> str:
    parts = ["".join(f"[{part}]" if isinstance(part, int) else part for part in at[i : i + 1]) for i in range(len(at))]
    name = ""
    for part in parts:
        name += part if part.startswith("[") else (f".{part}" if name else part)
    return f"[{name}]" if name else "the file"
