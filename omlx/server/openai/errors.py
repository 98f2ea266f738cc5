"""Errors as OpenAI's clients read them."""

import msgspec

from omlx.server.boundary import Fault


class Error(msgspec.Struct, frozen=True):
    """What is wrong: `param` is the field at fault, `code` a reason that programs act on."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(msgspec.Struct, frozen=True):
    """The body of every response that is not a success, and of an error event in a stream."""

    error: Error


def error_body(fault: Fault) -> ErrorBody:
    """Return the body for a fault."""
    return ErrorBody(Error(fault.message, fault.kind, fault.param, fault.code))
