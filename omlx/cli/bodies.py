"""Read requests from a file: one body, one body with its path, or a session with one of these a line."""

import gzip
import sys
from dataclasses import dataclass
from pathlib import Path

import msgspec

from omlx.errors import UsageError


@dataclass(frozen=True, slots=True)
class Body:
    """A request's body as JSON, and the path it came with, if any."""

    raw: bytes
    path: str | None = None


class _Line(msgspec.Struct, frozen=True):
    path: str | None = None
    body: msgspec.Raw = msgspec.Raw()


def read_bodies(name: str) -> list[Body]:
    """Return the requests in a file (`-`: standard input; `.gz` is unpacked). Raises UsageError."""
    content = _read(name)
    try:
        return [_body(content)]
    except msgspec.DecodeError as error:
        lines = [line for line in content.splitlines() if line.strip()]
        if len(lines) < 2:
            raise UsageError(f"{name} is not JSON: {error}") from error
    try:
        return [_body(line) for line in lines]
    except msgspec.DecodeError as error:
        raise UsageError(
            f"{name} is neither one JSON object nor one a line: {error}",
            hint='a session has {"path": ..., "body": {...}} on each line',
        ) from error


def _read(name: str) -> bytes:
    try:
        content = sys.stdin.buffer.read() if name == "-" else Path(name).expanduser().read_bytes()
        return gzip.decompress(content) if content[:2] == b"\x1f\x8b" else content
    except (OSError, EOFError) as error:
        reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
        raise UsageError(f"{name} cannot be read: {reason}") from error


def _body(raw: bytes) -> Body:
    line = msgspec.json.decode(raw, type=_Line)
    return Body(bytes(line.body) or raw, line.path)
