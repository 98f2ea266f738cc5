"""Human units in TOML: sizes ("4GiB") and durations ("30s")."""

import math
import re
from typing import Any

_SIZES: dict[str, float] = {
    "B": 1,
    **{f"{p}iB": 1024 ** (i + 1) for i, p in enumerate("KMGT")},
    **{f"{p}B": 1000 ** (i + 1) for i, p in enumerate("KMGT")},
}
_DURATIONS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE_FORM = 'a size above zero such as "512MiB" or "4GiB"'
_DURATION_FORM = 'a duration above zero such as "500ms", "30s" or "5m"'
_NUMBER = r"^\s*\d+(\.\d+)?\s*"
#: What texts of each kind look like, for a JSON Schema.
SIZE_PATTERN = _NUMBER + "(" + "|".join(_SIZES) + r")?\s*$"
DURATION_PATTERN = _NUMBER + "(" + "|".join(_DURATIONS) + r")?\s*$"
_QUANTITY = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


class ByteSize(int):
    """A number of bytes, above zero; written as "512MiB", "4GiB" or a plain number of bytes."""


class Duration(float):
    """A number of seconds, above zero; written as "250ms", "30s", "5m", "2h" or a plain number."""


def parse_size(value: object) -> ByteSize:
    """Return the bytes that `value` (text or a number) names. Raises ValueError with the allowed form."""
    num_bytes = round(_quantity(value, _SIZES, _SIZE_FORM))
    if num_bytes == 0:  # "0.1B"
        raise _refused(value, _SIZE_FORM)
    return ByteSize(num_bytes)


def parse_duration(value: object) -> Duration:
    """Return the seconds that `value` (text or a number) names. Raises ValueError with the allowed form."""
    return Duration(_quantity(value, _DURATIONS, _DURATION_FORM))


def _quantity(value: object, units: dict[str, float], form: str) -> float:
    """Return a finite number above zero in base units. Raises ValueError with the allowed form."""
    if isinstance(value, str):
        match = _QUANTITY.fullmatch(value)
        if match is None or (match[2] and match[2] not in units):
            raise _refused(value, form)
        number = float(match[1]) * units.get(match[2], 1)
    elif isinstance(value, int | float) and not isinstance(value, bool):
        number = float(value)
    else:
        raise _refused(value, form)
    if not (math.isfinite(number) and number > 0):
        raise _refused(value, form)
    return number


def _refused(value: object, form: str) -> ValueError:
    return ValueError(f"expected {form}, got {value!r}")


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


def exact_size(num_bytes: int) -> str | int:
    """Return bytes as TOML may say them without rounding: `4GiB`; the number where no unit fits."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if num_bytes and num_bytes % 1024**power == 0:
            return f"{num_bytes // 1024**power}{unit}"
    return num_bytes
