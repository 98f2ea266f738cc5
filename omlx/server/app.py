"""The application: every route, and what holds for all of them."""

from litestar import Litestar, Router
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.di import Provide

from omlx.config.settings import ServerSettings
from omlx.pipeline.backend import Backend
from omlx.server.answer import Service
from omlx.server.auth import key_guard
from omlx.server.boundary import exception_handler
from omlx.server.chat.routes import complete_chat
from omlx.server.completions.routes import complete_text
from omlx.server.discovery import list_models, probe, probe_health, show_banner, show_health, show_model
from omlx.server.identity import stamp
from omlx.server.loading import load_or_unload
from omlx.server.neighbours import neighbour_guard
from omlx.server.openai.errors import error_body
from omlx.server.reply import Replies
from omlx.server.taps import Taps
from omlx.server.trace.routes import explain_request, list_traces, show_trace, tap


def create_app(backend: Backend, settings: ServerSettings) -> Litestar:
    """Return the ASGI application that serves `backend`.

    Its `state.replies` are the answers under way, `state.taps` the streams of events.

    Other origins get no CORS headers but those in the settings, and no page of API documentation is served.
    """
    replies, taps = Replies(backend), Taps()
    service = Service(backend, replies, settings, taps)
    openai = Router(
        "/v1",
        route_handlers=[
            complete_chat,
            complete_text,
            list_models,
            show_model,
            load_or_unload,
            explain_request,
            list_traces,
            show_trace,
            tap,
        ],
        guards=[key_guard(settings.api_key)],
    )
    return Litestar(
        route_handlers=[openai, show_health, probe_health, show_banner, probe],
        guards=[neighbour_guard(settings)],
        cors_config=CORSConfig(allow_origins=list(settings.allowed_origins))
        if settings.allowed_origins
        else None,
        dependencies={"service": Provide(lambda: service, sync_to_thread=False)},
        exception_handlers={Exception: exception_handler(error_body)},
        before_send=[stamp],
        on_shutdown=[replies.stop, taps.stop],
        request_max_body_size=settings.max_body,
        state=State({"replies": replies, "taps": taps}),
        openapi_config=None,
        logging_config=None,
    )
