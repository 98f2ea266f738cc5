"""Decode a TOML table into a Struct and report every problem in it, not the first one only."""

import re
from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Any, Literal, TypeVar, get_args, get_origin

import msgspec

from omlx.config.document import Document
from omlx.config.lines import KeyPath
from omlx.config.problem import FieldError, Problem
from omlx.config.reference import default_of, words_of
from omlx.config.repair import repair
from omlx.registry import nearest
from omlx.units import decode_unit

T = TypeVar("T", bound=msgspec.Struct)

#: msgspec's words for what TOML calls otherwise, or does not have.
_TOML_WORDS = {
    "object": "a table",
    "array": "an array",
    "str": "text",
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
}
_QUOTED_TYPES = re.compile(r"`([a-z| ]+)`")
_INVALID = re.compile(r"Invalid enum value ('.*?'|\S+)(?: - at |$)")
_INSIDE = re.compile(r"\.([\w-]+)|\[(\d+)\]")


def decode_table(
    document: Document, at: KeyPath, table: object, kind: type[T]
) -> tuple[T | None, list[Problem]]:
    """Return the Struct for a table, or None and all of its problems."""
    values, problems = decode_fields(document, at, table, kind)
    if isinstance(table, dict):
        problems += missing_keys(document, at, table, kind)
    return construct(document, at, kind, values, problems)


def decode_fields(
    document: Document,
    at: KeyPath,
    table: object,
    kind: type[msgspec.Struct],
    *,
    ignore: frozenset[str] = frozenset(),
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the field values that a table gives, and the problems of its keys.

    Keys in `ignore` are stepped over. Every key is converted by itself: one bad value does not hide another.
    """
    if not isinstance(table, dict):
        return {}, [document.problem(at, f"{table_name(at)} must be a table")]
    fields = {field.encode_name: field for field in msgspec.structs.fields(kind)}
    values: dict[str, Any] = {}
    problems: list[Problem] = []
    for key, value in table.items():
        if key in fields:
            values[fields[key].name], found = _decode_value(document, (*at, key), value, fields[key])
            problems += found
        elif key not in ignore:
            problems.append(unknown_key(document, at, key, list(fields)))
    return values, problems


def missing_keys(
    document: Document, at: KeyPath, keys: Iterable[str], kind: type[msgspec.Struct]
) -> list[Problem]:
    """Return a problem for each required key that is not among `keys`."""
    fields = msgspec.structs.fields(kind)
    meanings, names = words_of(kind).options, [field.encode_name for field in fields]
    # a slip that is told as an unknown key is not told twice
    given = {key if key in names else nearest(key, names) for key in keys}
    return [
        document.problem(
            at, f"{table_name(at)} needs the key {field.encode_name!r}", _to_add(field, meanings)
        )
        for field in fields
        if field.required and field.encode_name not in given
    ]


def _to_add(field: msgspec.structs.FieldInfo, meanings: Mapping[str, str]) -> str | None:
    meaning = meanings.get(field.name)
    return f"add {field.encode_name} = ...: {meaning.rstrip('.')}" if meaning else None


def unknown_key(document: Document, at: KeyPath, key: str, options: list[str]) -> Problem:
    """Return the problem of a key that the table at `at` does not have, with the nearest that it has."""
    return document.problem((*at, key), f"unknown key {key!r} in {table_name(at)}", suggestion(key, options))


def suggestion(name: str, options: list[str]) -> str:
    """Return the hint for a wrong name: the nearest option, else all of them."""
    if guess := nearest(name, options):
        return f"did you mean {guess!r}?"
    return "use one of: " + ", ".join(options) if options else "leave it out"


def table_name(at: KeyPath) -> str:
    """Return a key path as TOML spells it: `[models.coder]`; `[[stage]] 2` for the second of an array."""
    if not at:
        return "the file"
    dotted = ".".join(part for part in at if isinstance(part, str))
    return f"[[{dotted}]] {at[-1] + 1}" if isinstance(at[-1], int) else f"[{dotted}]"


def _decode_value(
    document: Document, at: KeyPath, value: object, field: msgspec.structs.FieldInfo
) -> tuple[Any, list[Problem]]:
    """Return a key's value, or its problems; tables of a known kind are decoded key by key."""
    kind = field.type
    if isinstance(value, dict) and (table := _table_kind(kind)):
        return decode_table(document, at, value, table)
    if isinstance(value, dict) and (table := _named_kind(kind)):
        return _decode_named(document, at, value, table)
    if isinstance(value, list) and (item := _item_kind(kind)):
        return _decode_items(document, at, value, item)
    try:
        return msgspec.convert(value, kind, dec_hook=decode_unit), []
    except msgspec.ValidationError as error:
        wrong, inside = _INVALID.match(str(error)), _inside(error)
        hint = repair(value, inside, kind, default_of(field))
        if wrong and not (hint and hint.startswith("write")):
            hint = suggestion(wrong[1].strip("'"), _choices(kind))
        return None, [document.value_problem((*at, *inside), f"{at[-1]}: {_plain(error)}", hint)]


def _decode_items(
    document: Document, at: KeyPath, items: list[Any], kind: type[msgspec.Struct]
) -> tuple[tuple[Any, ...], list[Problem]]:
    """Return the tables of an array, or the problems of all of them."""
    found = [decode_table(document, (*at, index), item, kind) for index, item in enumerate(items)]
    return tuple(value for value, _ in found), [problem for _, wrong in found for problem in wrong]


def _decode_named(
    document: Document, at: KeyPath, tables: dict[str, Any], kind: type[msgspec.Struct]
) -> tuple[dict[str, Any], list[Problem]]:
    """Return the tables of a table by their names, or the problems of all of them."""
    found = {name: decode_table(document, (*at, name), table, kind) for name, table in tables.items()}
    problems = [problem for _, wrong in found.values() for problem in wrong]
    return {name: value for name, (value, _) in found.items()}, problems


def _named_kind(kind: Any) -> type[msgspec.Struct] | None:
    """Return the Struct in `dict[str, Struct]`, alone or in a union; None for any other type."""
    for each in (kind, *get_args(kind)):
        if get_origin(each) is dict and (table := _table_kind(get_args(each)[1])):
            return table
    return None


def _table_kind(kind: Any) -> type[msgspec.Struct] | None:
    """Return the Struct in `Struct` and `Struct | None`; None for any other type."""
    kinds = [each for each in (get_args(kind) or (kind,)) if each is not type(None)]
    one = kinds[0] if len(kinds) == 1 and get_origin(kind) is not tuple else None
    return one if isinstance(one, type) and issubclass(one, msgspec.Struct) else None


def _item_kind(kind: Any) -> type[msgspec.Struct] | None:
    """Return the Struct in `tuple[Struct, ...]`; None for any other type."""
    parts = get_args(kind)
    return _table_kind(parts[0]) if get_origin(kind) is tuple and parts[1:] == (...,) else None


def construct(
    document: Document,
    at: KeyPath,
    kind: type[T],
    values: Mapping[str, Any],
    problems: list[Problem],
    elsewhere: Mapping[str, tuple[Document, KeyPath]] = MappingProxyType({}),
) -> tuple[T | None, list[Problem]]:
    """Return the Struct unless there are problems; what its `__post_init__` refuses is one more.

    `elsewhere` names the tables of keys that were not taken from the one at `at`.
    """
    if problems:
        return None, problems
    try:
        return kind(**values), []
    except FieldError as error:
        source, table = elsewhere.get(error.key, (document, at))
        return None, [source.value_problem((*table, error.key), f"{error.key}: {error}", error.hint)]
    except (ValueError, TypeError) as error:
        return None, [document.problem(at, f"{table_name(at)}: {error}")]


def _choices(kind: Any) -> list[str]:
    """Return the values of every Literal in a type."""
    parts = get_args(kind)
    if get_origin(kind) is Literal:
        return [str(value) for value in parts]
    return [choice for part in parts for choice in _choices(part)]


def _inside(error: msgspec.ValidationError) -> KeyPath:
    """Return the path inside a value that a message of msgspec's ends with."""
    _, found, where = str(error).rpartition(" - at `$")
    if not found:  # a number in the message is no path
        return ()
    return tuple(int(index) if index else name for name, index in _INSIDE.findall(where))


def _plain(error: msgspec.ValidationError) -> str:
    """Return msgspec's message in TOML's words, with its path as a person would spell it."""
    message, _, where = str(error).partition(" - at ")
    inside = where.strip("`").removeprefix("$").removeprefix(".").replace("[...]", "")
    message = message.replace("Invalid enum value", "cannot be")
    message = _QUOTED_TYPES.sub(lambda match: _toml_types(match[1]), message)
    message = message[:1].lower() + message[1:]
    return f"{message} (at {inside})" if inside else message


def _toml_types(names: str) -> str:
    kinds = [_TOML_WORDS.get(name, name) for name in names.split(" | ") if name != "null"]
    return " or ".join(kinds)
