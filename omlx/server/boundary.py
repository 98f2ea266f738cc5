"""The boundary: whatever went wrong inside leaves as an HTTP status and a body of the dialect's shape."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import structlog
from litestar import Request as HttpRequest
from litestar import Response
from litestar.exceptions import (
    HTTPException,
    InternalServerException,  # Litestar's word for a client that left while it sent its body
    MethodNotAllowedException,
    NotFoundException,
)
from litestar.exceptions.http_exceptions import RequestEntityTooLarge

from omlx.errors import BusyError, OmlxError, RequestError, UnauthorizedError
from omlx.server.identity import request_id

#: When a client should come back after a 503.
RETRY_AFTER_S = 2

log = structlog.get_logger()

Http: TypeAlias = HttpRequest[Any, Any, Any]


@dataclass(frozen=True, slots=True)
class Fault:
    """An error as HTTP sees it; a dialect words its body."""

    status: int
    kind: str
    message: str
    param: str | None = None
    code: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)


def fault_of(error: OmlxError) -> Fault:
    """Return what a client is told of an error that omlx raised on purpose."""
    named = error if isinstance(error, RequestError) else None
    return Fault(
        status=error.status,
        kind=error.kind,
        message=str(error),
        param=named.param if named else None,
        code=named.code if named else None,
        headers=_headers(error),
    )


def exception_handler(word: Callable[[Fault], object]) -> Callable[[Http, Exception], Response[Any]]:
    """Return Litestar's handler for every exception; `word` makes the JSON body."""

    def handle(http: Http, error: Exception) -> Response[Any]:
        fault = _fault(http, error)
        expected = isinstance(error, BusyError) or type(error) is InternalServerException
        if fault.status >= 500 and not expected:
            log.error("request failed", request_id=request_id(http.scope), path=http.url.path, exc_info=error)
        return Response(
            word(fault), status_code=fault.status, headers=dict(fault.headers), media_type="application/json"
        )

    return handle


def _fault(http: Http, error: Exception) -> Fault:
    if isinstance(error, OmlxError):
        return fault_of(error)
    if not isinstance(error, HTTPException):
        message = f"internal error; the server's log tells more about request {request_id(http.scope)}"
        return Fault(500, "server_error", message)
    message, code = _refusal(http, error)
    kind = "server_error" if error.status_code >= 500 else "invalid_request_error"
    return Fault(error.status_code, kind, message, code=code)


def _refusal(http: Http, error: HTTPException) -> tuple[str, str | None]:
    """Return message and code of what Litestar refuses on its own."""
    match error:
        case NotFoundException():
            return f"there is no {http.method} {http.url.path}; the API's base URL ends in /v1", "not_found"
        case MethodNotAllowedException():
            return f"{http.url.path} does not answer to {http.method}", "method_not_allowed"
        case RequestEntityTooLarge():
            return "the body is larger than the server takes; raise max_body under [server]", "body_too_large"
    return error.detail, None


def _headers(error: OmlxError) -> dict[str, str]:
    match error:
        case BusyError():
            return {"retry-after": str(RETRY_AFTER_S)}
        case UnauthorizedError():
            return {"www-authenticate": "Bearer"}
    return {}
