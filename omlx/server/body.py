"""Read request bodies; every complaint names the field at fault."""

from typing import Any, TypeVar

from litestar import Request as HttpRequest

from omlx.server.decode import decode_body

__all__ = ["decode_body", "read_body"]

T = TypeVar("T")


async def read_body(http: HttpRequest[Any, Any, Any], kind: type[T]) -> T:
    """Return the body of a request as a `kind`. Raises RequestError."""
    return decode_body(await http.body(), kind)
