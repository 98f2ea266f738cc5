"""What clients ask before they ask a model: which models there are, and whether the server is well."""

import time
from typing import Any

import msgspec
from litestar import Request as HttpRequest
from litestar import Response, get, head
from litestar.di import NamedDependency
from litestar.params import FromPath

import omlx
from omlx.pipeline.backend import Health, ModelCard
from omlx.server.answer import Service
from omlx.server.auth import is_authorized

_STARTED = int(time.time())


class ModelEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """A model under one of its names; `root` is the name in the configuration.

    The window stands under both names that clients look for.
    """

    id: str
    object: str
    created: int
    owned_by: str
    root: str
    aliases: tuple[str, ...]
    loaded: bool
    max_model_len: int | None = None
    context_length: int | None = None


class ModelList(msgspec.Struct, frozen=True):
    """Every name that a request may use for a configured model."""

    object: str
    data: tuple[ModelEntry, ...]


class Banner(msgspec.Struct, frozen=True):
    """What answers at the root."""

    name: str
    version: str


@get("/models", sync_to_thread=False)
def list_models(service: NamedDependency[Service]) -> ModelList:
    """List the models, each under its name and under its aliases."""
    cards = service.backend.models()
    return ModelList(
        "list", tuple(entry_of(name, card) for card in cards for name in (card.name, *card.aliases))
    )


@get("/models/{name:path}", sync_to_thread=False)
def show_model(name: FromPath[str], service: NamedDependency[Service]) -> ModelEntry:
    """Show the model that answers to a name; names may contain slashes. Loads nothing."""
    asked = name.removeprefix("/")
    return entry_of(asked, service.backend.resolve(asked))


@get("/health", sync_to_thread=False)
def show_health(request: HttpRequest[Any, Any, Any], service: NamedDependency[Service]) -> Response[Health]:
    """Tell how the server is: 200 when well, 503 when not. Whoever lacks the key learns no more than that."""
    health = service.backend.health()
    if not is_authorized(request, service.settings.api_key):
        health = Health(health.status, health.version)
    return Response(health, status_code=_status(health))


@head("/health", sync_to_thread=False)
def probe_health(service: NamedDependency[Service]) -> Response[None]:
    """Tell how the server is by the status alone."""
    return Response(None, status_code=_status(service.backend.health()))


@get("/", sync_to_thread=False)
def show_banner() -> Banner:
    """Tell what this is."""
    return Banner("omlx", omlx.__version__)


@head("/", sync_to_thread=False)
def probe() -> None:
    """Answer clients that look whether anybody is there."""


def _status(health: Health) -> int:
    return 200 if health.status == "ok" else 503


def entry_of(name: str, card: ModelCard) -> ModelEntry:
    """Return a model as clients see it under one of its names."""
    return ModelEntry(
        id=name,
        object="model",
        created=_STARTED,
        owned_by="omlx",
        root=card.root or card.name,
        aliases=card.aliases,
        loaded=card.loaded,
        max_model_len=card.window_tokens,
        context_length=card.window_tokens,
    )
