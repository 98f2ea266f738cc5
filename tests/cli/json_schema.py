"""Validate by the part of JSON Schema (draft 7) that our schemas use; any other keyword is an error."""

import operator
import re
from collections.abc import Callable
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]

_TYPES = {
    "object": dict,
    "array": list,
    "string": str,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
}
_WORDS = {"$schema", "title", "description", "default", "definitions"}


def valid(value: Any, schema: Schema, root: Schema | None = None) -> bool:
    """Tell whether a value is what a schema allows."""
    root = root or schema
    for word, argument in schema.items():
        if word in _NESTED:
            fits = _NESTED[word](argument, value, root, schema)
        elif word in _PLAIN:
            kind, test = _PLAIN[word]
            fits = not isinstance(value, kind) or test(value, argument)
        else:
            assert word in _WORDS, word
            fits = True
        if not fits:
            return False
    return True


def _type(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES[name]) and (name == "boolean" or not isinstance(value, bool))


def _others(argument: Any, value: Any, root: Schema, schema: Schema) -> bool:
    others = [value[key] for key in value if key not in schema.get("properties", {})]
    return not others if argument is False else all(valid(each, argument, root) for each in others)


#: Keyword -> values that it is about, and what must hold.
_PLAIN: dict[str, tuple[Any, Callable[[Any, Any], bool]]] = {
    "type": (object, _type),
    "const": (object, operator.eq),
    "enum": (object, lambda value, options: value in options),
    "required": (dict, lambda value, keys: set(keys) <= set(value)),
    "minItems": (list, lambda value, least: len(value) >= least),
    "pattern": (str, lambda value, pattern: re.search(pattern, value) is not None),
    "minimum": ((int, float), operator.ge),
    "exclusiveMinimum": ((int, float), operator.gt),
    "maximum": ((int, float), operator.le),
}
#: Keyword that holds schemas -> whether they hold.
_NESTED: dict[str, Callable[[Any, Any, Schema, Schema], bool]] = {
    "$ref": lambda name, value, root, _: valid(value, root["definitions"][name.rpartition("/")[2]], root),
    "anyOf": lambda options, value, root, _: any(valid(value, each, root) for each in options),
    "allOf": lambda options, value, root, _: all(valid(value, each, root) for each in options),
    "not": lambda other, value, root, _: not valid(value, other, root),
    "items": lambda item, value, root, _: (
        not isinstance(value, list) or all(valid(v, item, root) for v in value)
    ),
    "properties": lambda keys, value, root, _: (
        not isinstance(value, dict)
        or all(valid(value[k], inner, root) for k, inner in keys.items() if k in value)
    ),
    "additionalProperties": lambda argument, value, root, schema: (
        not isinstance(value, dict) or _others(argument, value, root, schema)
    ),
}
