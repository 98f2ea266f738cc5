"""Every error that omlx raises on purpose.

    OmlxError
    ├── UsageError             the command line was used wrongly            exit 2
    ├── ConfigError            one or more problems in TOML files           exit 1
    ├── RequestError           the client must change its request           HTTP 400
    │   ├── ContextLengthError     the prompt does not fit the window       HTTP 400
    │   ├── UnknownModelError      no such model                            HTTP 404
    │   ├── TooLargeError          it can never fit the memory              HTTP 400
    │   ├── InUseError             requests are using what is to go         HTTP 409
    │   ├── UnknownRequestError    no such request is remembered            HTTP 404
    │   ├── UnauthorizedError      the API key is missing or wrong          HTTP 401
    │   └── ForbiddenError         another site's page may not ask          HTTP 403
    ├── BusyError              try again later                              HTTP 503
    ├── TimedOutError          it took longer than the server allows        HTTP 504
    ├── ModelLoadError         the weights or tokenizer cannot be used      HTTP 500
    ├── CancelledError         the client left, or the server is stopping   never sent
    └── CacheError             a block cannot be used: always turned into a miss, never sent

Each carries `hint`: what the person can do about it.
"""

from typing import ClassVar


class OmlxError(Exception):
    """An error with a hint for the person and a status for HTTP clients."""

    status: ClassVar[int] = 500
    kind: ClassVar[str] = "server_error"

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message}; {self.hint}" if self.hint else self.message


class UsageError(OmlxError):
    """The command line was used wrongly."""


class ConfigError(OmlxError):
    """One or more problems in configuration files, one per line of the message."""


class RequestError(OmlxError):
    """The client must change its request.

    Attributes:
        param: the field at fault, as a path (`messages[2].content[0]`), or None.
        code: a machine-readable reason (`context_length_exceeded`), or None.
    """

    status = 400
    kind = "invalid_request_error"

    def __init__(
        self, message: str, *, param: str | None = None, code: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.param = param
        self.code = code


class ContextLengthError(RequestError):
    """The prompt does not fit the model's window. Clients compact when they see its code."""

    def __init__(self, prompt_tokens: int, window_tokens: int) -> None:
        super().__init__(
            f"This model's maximum context length is {window_tokens} tokens, "
            f"but the prompt has {prompt_tokens} tokens",
            param="messages",
            code="context_length_exceeded",
            hint="shorten or compact the conversation",
        )


class TooLargeError(RequestError):
    """It needs more memory than there can ever be, whatever else makes way."""

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, code="not_enough_memory", hint=hint)


class InUseError(RequestError):
    """What should go is in use."""

    status = 409

    def __init__(self, message: str, *, hint: str) -> None:
        super().__init__(message, code="in_use", hint=hint)


class UnknownModelError(RequestError):
    """No model of that name is configured."""

    status = 404

    def __init__(self, name: str, known: list[str]) -> None:
        super().__init__(
            f"model {name!r} does not exist",
            param="model",
            code="model_not_found",
            hint="use one of: " + ", ".join(known),
        )


class UnknownRequestError(RequestError):
    """No request of that id is remembered."""

    status = 404

    def __init__(self, name: str) -> None:
        super().__init__(
            f"no request {name!r} is remembered",
            param="id",
            code="request_not_found",
            hint="list the requests that ended lately with GET /v1/trace",
        )


class UnauthorizedError(RequestError):
    """The API key is missing or wrong."""

    status = 401
    kind = "authentication_error"


class ForbiddenError(RequestError):
    """The request came by a name or from a page that the server does not answer to."""

    status = 403
    kind = "permission_error"


class BusyError(OmlxError):
    """The server cannot take the request now."""

    status = 503
    kind = "overloaded_error"


class TimedOutError(OmlxError):
    """The request took longer than the server allows."""

    status = 504
    kind = "timeout_error"


class ModelLoadError(OmlxError):
    """The model's files cannot be used."""


class CancelledError(OmlxError):
    """The request was given up: the client left or the server is stopping."""

    status = 499
    kind = "cancelled"


class CacheError(OmlxError):
    """A stored block cannot be used. `fetch` and `writeback` turn it into a miss."""
