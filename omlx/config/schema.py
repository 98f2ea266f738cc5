"""The JSON Schema of a table, for editors: from the class that the table is decoded with.

Draft 7, which Taplo and Even Better TOML read. Not `msgspec.json.schema`: it cannot say what a unit takes, and the
meaning of each key stands in the docstring (see `reference.py`).
"""

from collections.abc import Mapping
from typing import Any, TypeAlias

import msgspec
from msgspec import inspect

from omlx.config.reference import default_of, plain, words_of
from omlx.units import DURATION_PATTERN, SIZE_PATTERN, ByteSize, exact_size

Schema: TypeAlias = dict[str, Any]

DRAFT = "http://json-schema.org/draft-07/schema#"

_PLAIN: Mapping[type[inspect.Type], str] = {
    inspect.StrType: "string",
    inspect.BoolType: "boolean",
    inspect.IntType: "integer",
    inspect.FloatType: "number",
}
_BOUNDS = {"ge": "minimum", "gt": "exclusiveMinimum", "le": "maximum", "lt": "exclusiveMaximum"}


class Schemas:
    """Collects the definitions that schemas refer to. Mutable: `definitions`."""

    def __init__(self) -> None:
        self.definitions: dict[str, Schema] = {}

    def refer(self, kind: type[msgspec.Struct]) -> Schema:
        """Return a reference to the schema of a table, which is defined."""
        name = kind.__name__
        if name not in self.definitions:
            self.definitions[name] = {}  # a table may hold itself
            self.definitions[name] = self.table(kind)
        return {"$ref": f"#/definitions/{name}"}

    def table(self, kind: type[msgspec.Struct], first: Mapping[str, Schema] | None = None) -> Schema:
        """Return the schema of a table; `first` are keys that it has besides those of its class, required."""
        words = words_of(kind)
        fields = msgspec.structs.fields(kind)
        properties = {
            **(first or {}),
            **{field.encode_name: self._field(field, words.options) for field in fields},
        }
        required = [*(first or {}), *(field.encode_name for field in fields if field.required)]
        schema: Schema = {"type": "object", "description": words.summary, "additionalProperties": False}
        schema |= {"properties": properties}
        return {**schema, "required": required} if required else schema

    def _field(self, field: msgspec.structs.FieldInfo, meanings: Mapping[str, str]) -> Schema:
        schema = self._type(inspect.type_info(field.type))
        default = default_of(field)
        default = exact_size(default) if isinstance(default, ByteSize) else plain(default)
        if meaning := meanings.get(field.name):
            # beside a reference other keywords would be ignored
            schema = {"allOf": [schema]} if "$ref" in schema else schema
            schema = {**schema, "description": meaning}
        said = not field.required and default is not None and not isinstance(default, dict)
        return {**schema, "default": default} if said else schema

    def _type(self, kind: inspect.Type) -> Schema:
        match kind:
            case inspect.UnionType(types):
                options = [self._type(each) for each in types if not isinstance(each, inspect.NoneType)]
                return options[0] if len(options) == 1 else {"anyOf": options}
            case inspect.VarTupleType(item) | inspect.ListType(item):
                return {"type": "array", "items": self._type(item)}
            case inspect.DictType(_, value):
                return {"type": "object", "additionalProperties": self._type(value)}
            case inspect.StructType(cls):
                return self.refer(cls)
            case _:
                return _plain(kind)


def _plain(kind: inspect.Type) -> Schema:
    """Return the schema of a type that holds no other."""
    if isinstance(kind, inspect.LiteralType):
        return {"enum": list(kind.values)}
    if isinstance(kind, inspect.CustomType):
        text = {"type": "string", "pattern": SIZE_PATTERN if kind.cls is ByteSize else DURATION_PATTERN}
        return {"anyOf": [text, {"type": "number", "exclusiveMinimum": 0}]}
    name = _PLAIN.get(type(kind))
    if name is None:
        return {}
    bounds = {word: bound for key, word in _BOUNDS.items() if (bound := getattr(kind, key, None)) is not None}
    return {"type": name, **bounds}
