"""Decode JSON bodies; every complaint names the field at fault. Knows nothing of HTTP."""

import re
from typing import TypeVar

import msgspec

from omlx.errors import RequestError

T = TypeVar("T")

_PATH = re.compile(r" - at (?:`key` in )?`\$\.?(?P<path>[^`]*)`$")
_MISSING = re.compile(r"^Object missing required field `(?P<field>[^`]*)`")


def decode_body(raw: bytes, kind: type[T]) -> T:
    """Return JSON text as a `kind`, whatever its content type said. Raises RequestError."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except msgspec.ValidationError as error:
        raise _explain(str(error)) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise RequestError(f"the body is not valid JSON: {error}", code="invalid_json") from error
    except RecursionError as error:
        raise RequestError("the body is nested too deeply", code="invalid_json") from error


def _explain(complaint: str) -> RequestError:
    """Turn msgspec's words into a RequestError whose `param` is the path without `$.`."""
    found = _PATH.search(complaint)
    path = found["path"] if found else ""
    what = complaint[: found.start()] if found else complaint
    if missing := _MISSING.match(what):
        path = f"{path}.{missing['field']}".lstrip(".")
        what = "this field is required"
    message = f"{path}: {what}" if path else f"the body is not valid: {what}"
    return RequestError(message, param=path or None, code="invalid_value")
