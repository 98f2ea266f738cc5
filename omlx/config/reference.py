"""What a table may say, told by its own class: each key with type, unit, default and meaning.

The meaning stands in the class's docstring, so that the class is the one place that says it:

    Options:
        chunk_tokens: the grid on which chunks end.
"""

import inspect
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, get_args, get_origin

import msgspec
from msgspec.inspect import type_info

from omlx.units import ByteSize, Duration

_SECTION = re.compile(r"^Options:\n((?:[ ]+.*\n?|\n)*)", re.MULTILINE)
_OPTION = re.compile(r"^ {4}(\w+): (.*(?:\n {8,}.*)*)", re.MULTILINE)

#: The end of a key's name -> its unit. Types of their own say it themselves.
_UNITS = {"_tokens": "tokens", "_bits": "bits", "_s": "seconds", "_bytes": "bytes"}
_PLAIN: Mapping[type[msgspec.inspect.Type], str] = {
    msgspec.inspect.StrType: "text",
    msgspec.inspect.BoolType: "true or false",
    msgspec.inspect.AnyType: "anything",
    msgspec.inspect.DictType: "a table",
    msgspec.inspect.StructType: "a table",
}
_BOUNDS = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}


@dataclass(frozen=True, slots=True)
class Words:
    """A class's docstring: its first sentence, what follows, and the meaning of each key."""

    summary: str
    more: str
    options: Mapping[str, str]


class Option(msgspec.Struct, frozen=True, omit_defaults=True):
    """One key. `default` is null for a key that has none: it must be given, or nothing is what it means.

    `keys` are those of the tables that it takes, where it takes a list of them.
    """

    name: str
    type: str
    unit: str | None
    required: bool
    default: Any
    meaning: str
    keys: tuple["Option", ...] = ()


def words_of(kind: type) -> Words:
    """Return what a class's own docstring says."""
    text = inspect.cleandoc(kind.__doc__ or "")
    section = _SECTION.search(text)
    listed = _OPTION.findall(section[1]) if section else []
    summary, _, more = (text[: section.start()] if section else text).strip().partition("\n\n")
    return Words(_one_line(summary), more.strip(), {name: _one_line(meaning) for name, meaning in listed})


def options_of(kind: type[msgspec.Struct]) -> tuple[Option, ...]:
    """Return the keys of a table, in the order of the class."""
    meanings = words_of(kind).options
    return tuple(
        Option(
            name=field.encode_name,
            type=type_words(field.type),
            unit=_unit(field.encode_name, field.type),
            required=field.required,
            default=plain(default_of(field)),
            meaning=meanings.get(field.name, ""),
            keys=_keys(field.type),
        )
        for field in msgspec.structs.fields(kind)
    )


def _keys(kind: Any) -> tuple[Option, ...]:
    item = get_args(kind)[0] if get_origin(kind) is tuple else None
    return options_of(item) if isinstance(item, type) and issubclass(item, msgspec.Struct) else ()


def default_of(field: msgspec.structs.FieldInfo) -> Any:
    """Return the value of a key that is left out; None for one that must be given."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def plain(value: Any) -> Any:
    """Return a value as TOML and JSON have it."""
    return msgspec.to_builtins(
        value, enc_hook=lambda unit: int(unit) if isinstance(unit, int) else float(unit)
    )


def type_words(kind: Any) -> str:
    """Return what a key takes, in words."""
    if kind in (ByteSize, Duration):
        return 'a size such as "4GiB"' if kind is ByteSize else 'a duration such as "30s"'
    return _words(type_info(kind))


def _words(kind: msgspec.inspect.Type) -> str:
    match kind:
        case msgspec.inspect.UnionType(types):
            return " or ".join(
                _words(each) for each in types if not isinstance(each, msgspec.inspect.NoneType)
            )
        case msgspec.inspect.IntType() | msgspec.inspect.FloatType():
            return _number(kind)
        case msgspec.inspect.LiteralType(values):
            return "one of " + ", ".join(str(value) for value in values)
        case msgspec.inspect.VarTupleType(item) | msgspec.inspect.ListType(item):
            return f"a list of {_plural(item)}"
        case msgspec.inspect.CustomType(cls):
            return type_words(cls)
        case _:
            return _PLAIN.get(type(kind), type(kind).__name__)


def _plural(item: msgspec.inspect.Type) -> str:
    if isinstance(item, msgspec.inspect.StructType):
        return "tables of " + ", ".join(field.encode_name for field in item.fields)
    return _words(item).removeprefix("one of ")


def _number(kind: msgspec.inspect.IntType | msgspec.inspect.FloatType) -> str:
    if kind.ge is not None and kind.ge == kind.le:
        return f"{kind.ge:g}"
    bounds = [
        f"{sign} {bound:g}" for name, sign in _BOUNDS.items() if (bound := getattr(kind, name)) is not None
    ]
    name = "a whole number" if isinstance(kind, msgspec.inspect.IntType) else "a number"
    return " ".join([name, " and ".join(bounds)]).strip()


def _unit(name: str, kind: Any) -> str | None:
    if kind in (ByteSize, Duration):
        return "bytes" if kind is ByteSize else "seconds"
    return next((unit for end, unit in _UNITS.items() if name.endswith(end)), None)


def _one_line(text: str) -> str:
    return " ".join(text.split())
