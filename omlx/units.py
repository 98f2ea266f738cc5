"""Human units in TOML: sizes ("4GiB") and durations ("30s")."""

import re
from typing import Any

_SIZES = {
    "B": 1,
    **{f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")},
    **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("KMGT")},
}
_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


class ByteSize(int):
    """A number of bytes, above zero; written as "512MiB", "4GiB" or a plain number of bytes."""


class Duration(float):
    """A number of seconds, above zero; written as "250ms", "30s", "5m", "2h" or a plain number."""


def parse_size(text: str | float) -> ByteSize:
    """Return the bytes that `text` names. Raises ValueError with the allowed form."""
    value = _quantity(text, _SIZES, 'a size above zero such as "512MiB" or "4GiB"')
    return ByteSize(round(value))


def parse_duration(text: str | float) -> Duration:
    """Return the seconds that `text` names. Raises ValueError with the allowed form."""
    return Duration(_quantity(text, _DURATIONS, 'a duration above zero such as "500ms", "30s" or "5m"'))


def _quantity(text: str | float, units: dict[str, float] | dict[str, int], form: str) -> float:
    if isinstance(text, bool):
        raise ValueError(f"expected {form}, got {text!r}")
    if isinstance(text, int | float):
        value = float(text)
    else:
        match = _QUANTITY.fullmatch(text)
        if match is None or (match[2] and match[2] not in units):
            raise ValueError(f"expected {form}, got {text!r}")
        value = float(match[1]) * units.get(match[2], 1)
    if value <= 0:
        raise ValueError(f"expected {form}, got {text!r}")
    return value


def decode_unit(kind: type, value: Any) -> Any:
    """Convert a TOML value to a unit type: the `dec_hook` for msgspec."""
    if kind is ByteSize:
        return parse_size(value)
    if kind is Duration:
        return parse_duration(value)
    raise NotImplementedError(f"no conversion to {kind.__name__}")


def format_size(num_bytes: float) -> str:
    """Return bytes as a person reads them: `1.5 GiB`."""
    value = float(num_bytes)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if abs(value) < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} TiB"
