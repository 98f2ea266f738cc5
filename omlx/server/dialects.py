"""Every dialect's way from a body to what was asked, for whoever has a body and no HTTP request.

A path says which dialect a body speaks; without one, its shape does. Imports nothing of the web framework.
"""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import msgspec

from omlx.errors import RequestError
from omlx.pipeline.request import Request
from omlx.server.chat.prompt import chat_prompt
from omlx.server.chat.schema import ChatBody
from omlx.server.completions.schema import CompletionBody, plain_prompt
from omlx.server.decode import decode_body
from omlx.server.messages.prompt import messages_prompt
from omlx.server.messages.schema import MessagesBody
from omlx.server.openai.generation import token_limit
from omlx.server.responses.prompt import responses_prompt
from omlx.server.responses.schema import ResponsesBody
from omlx.types import RequestId


def _chat(raw: bytes, identity: RequestId) -> Request:
    body = decode_body(raw, ChatBody)
    limit = token_limit(max_completion_tokens=body.max_completion_tokens, max_tokens=body.max_tokens)
    return Request(id=identity, model=body.model or "", prompt=chat_prompt(body), max_tokens=limit)


def _completion(raw: bytes, identity: RequestId) -> Request:
    body = decode_body(raw, CompletionBody)
    limit = token_limit(max_tokens=body.max_tokens)
    return Request(id=identity, model=body.model or "", prompt=plain_prompt(body), max_tokens=limit)


def _response(raw: bytes, identity: RequestId) -> Request:
    body = decode_body(raw, ResponsesBody)
    prompt = responses_prompt(body)
    return Request(id=identity, model=body.model or "", prompt=prompt, max_tokens=body.max_output_tokens)


def _message(raw: bytes, identity: RequestId) -> Request:
    body = decode_body(raw, MessagesBody)
    prompt = messages_prompt(body)
    return Request(id=identity, model=body.model or "", prompt=prompt, max_tokens=body.max_tokens)


#: Path -> how its bodies are read.
DIALECTS: Mapping[str, Callable[[bytes, RequestId], Request]] = MappingProxyType(
    {
        "/v1/chat/completions": _chat,
        "/v1/completions": _completion,
        "/v1/responses": _response,
        "/v1/messages": _message,
    }
)


class _Envelope(msgspec.Struct, frozen=True):
    """A body with the path it is meant for, as a recorded session has them; or a body with a path beside it."""

    path: str | None = None
    body: msgspec.Raw = msgspec.Raw()


class _Shape(msgspec.Struct, frozen=True):
    """What tells the dialects apart."""

    input: msgspec.Raw = msgspec.Raw()
    prompt: msgspec.Raw = msgspec.Raw()
    system: msgspec.Raw = msgspec.Raw()


def read_request(raw: bytes, path: str | None = None, identity: str = "trace") -> tuple[str, Request]:
    """Return the path and the request of a body, or of `{"path": ..., "body": ...}`.

    Raises RequestError for an unknown path, and for what the dialect refuses.
    """
    envelope = decode_body(raw, _Envelope)
    raw = bytes(envelope.body) or raw
    found = _known(path or envelope.path or _guessed(raw))
    return found, DIALECTS[found](raw, RequestId(identity))


def _known(path: str) -> str:
    plain = path.partition("?")[0].rstrip("/")
    for known in DIALECTS:
        if plain in (known, known.removeprefix("/v1"), known.removeprefix("/v1/")):
            return known
    options = ", ".join(DIALECTS)
    raise RequestError(f"{path!r} is no path of a request", param="path", hint=f"use one of: {options}")


def _guessed(raw: bytes) -> str:
    """Return the path whose dialect has a body's fields; `system` at the top is Anthropic's alone."""
    shape = decode_body(raw, _Shape)
    if bytes(shape.input):
        return "/v1/responses"
    if bytes(shape.prompt):
        return "/v1/completions"
    return "/v1/messages" if bytes(shape.system) else "/v1/chat/completions"
