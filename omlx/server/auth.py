"""The API key, when one is set."""

import hmac
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from omlx.errors import UnauthorizedError


def key_guard(api_key: str | None) -> Guard:
    """Return a guard that lets requests with the key pass; without a key set, every request passes."""

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if not is_authorized(connection, api_key):
            raise UnauthorizedError(
                "the API key is missing or wrong",
                code="invalid_api_key",
                hint="send it as 'Authorization: Bearer KEY' or 'x-api-key: KEY'",
            )

    return guard


def is_authorized(connection: ASGIConnection[Any, Any, Any, Any], api_key: str | None) -> bool:
    """Tell whether a request carries the key; the comparison takes the same time wherever they differ.

    Headers were decoded as latin-1, whatever the client encoded: their bytes are compared.
    """
    if api_key is None:
        return True
    scheme, _, token = connection.headers.get("authorization", "").partition(" ")
    bearer = token.strip() if scheme.lower() == "bearer" else ""
    given = (bearer, connection.headers.get("x-api-key", ""))
    return any(hmac.compare_digest(key.encode("latin-1"), api_key.encode()) for key in given)
