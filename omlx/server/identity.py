"""Ids: `x-request-id` on every response, and the ids of answers."""

import re
import uuid
from collections.abc import Mapping
from typing import Any

import structlog
from litestar.datastructures import Headers, MutableScopeHeaders
from litestar.types import Message, Scope

from omlx.types import RequestId

HEADER = "x-request-id"
TRACE_HEADER = "x-omlx-trace"
#: What a client may choose as its id: printable, without spaces, of bounded length.
_ALLOWED = re.compile(r"[\x21-\x7e]{1,128}")

log = structlog.get_logger()


def new_id(prefix: str) -> RequestId:
    """Return an id that nobody else has: `chatcmpl-4f2a...`."""
    return RequestId(f"{prefix}-{uuid.uuid4().hex}")


def wants_trace(headers: Mapping[str, str]) -> bool:
    """Tell whether a request asks to be explained with its answer: `x-omlx-trace: 1`."""
    return headers.get(TRACE_HEADER, "").strip().lower() in {"1", "true", "yes"}


def request_id(scope: Any) -> str:
    """Return the id of an HTTP request: the client's own if it sent a usable one, else one made here."""
    state = scope["state"]
    if "request_id" not in state:
        given = Headers.from_scope(scope).get(HEADER, "")
        state["request_id"] = given if _ALLOWED.fullmatch(given) else new_id("req")
    return str(state["request_id"])


async def stamp(message: Message, scope: Scope) -> None:
    """Put the id on a response that begins, and log the response: the `before_send` hook."""
    if message["type"] != "http.response.start":
        return
    name = request_id(scope)
    MutableScopeHeaders.from_message(message)[HEADER] = name
    path, method = scope["path"], scope.get("method")
    say = log.debug if path == "/health" else log.info  # probes come every few seconds
    say("answered", method=method, path=path, status=message["status"], request_id=name)
