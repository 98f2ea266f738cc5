"""What to write instead of a value that a key does not take, where that can be told."""

import json
from collections.abc import Iterator
from math import isfinite
from types import UnionType
from typing import Any, get_args, get_origin

import msgspec

from omlx.config.lines import KeyPath
from omlx.units import ByteSize, Duration, decode_unit

_YES, _NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def repair(value: Any, inside: KeyPath, kind: Any, default: Any) -> str | None:
    """Return a hint: the value spelt as `kind` takes it, else the default that leaving it out would give.

    `inside` is where in the value the fault is, of a list its index.
    """
    if inside:
        value, kind = _element(value, inside, kind)
        default = None
    for meant in _spellings(value):
        if _fits(meant, kind):
            return (
                "write it in brackets: [{ ... }]" if isinstance(value, dict) else f"write {json.dumps(meant)}"
            )
    said = _said(default)
    return f"leave it out for the default, {said}" if said else None


def _element(value: Any, inside: KeyPath, kind: Any) -> tuple[Any, Any]:
    """Return the element of a plain list that is meant, and its type; nothing that fits for any other place."""
    kinds = get_args(kind) if isinstance(kind, UnionType) else (kind,)
    parts = next((get_args(one) for one in kinds if get_origin(one) is tuple), ())
    if isinstance(value, list) and parts[1:] == (...,) and len(inside) == 1 and isinstance(inside[0], int):
        return value[inside[0]], parts[0]
    return None, None


def _spellings(value: Any) -> Iterator[Any]:
    """Yield what a value of the wrong type may have been meant to be."""
    match value:
        case bool() | int() | float():
            if value in (0, 1):
                yield bool(value)
            if isfinite(value) and value == int(value):
                yield int(value)
            yield str(value)
        case str():
            word = value.strip().lower()
            if word in _YES | _NO:
                yield word in _YES
            yield from _numbers(word)
    if value is not None:
        yield [value]


def _numbers(word: str) -> Iterator[int | float]:
    for kind in (int, float):
        try:
            yield kind(word)
        except ValueError:
            continue


def _fits(value: Any, kind: Any) -> bool:
    try:
        msgspec.convert(value, kind, dec_hook=decode_unit)
    except (msgspec.ValidationError, TypeError):
        return False
    return True


def _said(default: Any) -> str:
    """Return a default as TOML spells it; nothing for one that is long or cannot be written."""
    match default:
        case ByteSize() | Duration():
            return ""  # what is said of a bad size shows how one is written
        case bool() | int() | float() | str():
            return json.dumps(default)
        case _:
            return ""
