"""`POST /v1/trace`, `GET /v1/trace`, `GET /v1/trace/{id}`, `GET /v1/tap`."""

import asyncio
from typing import Annotated, Any

import msgspec
from litestar import Request as HttpRequest
from litestar import get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.types import ASGIApp

from omlx.errors import UnknownRequestError
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.timeline import RequestTrace
from omlx.server.answer import Service
from omlx.server.dialects import read_request
from omlx.server.identity import new_id
from omlx.server.trace.tap import Filter, TapStream


class TraceEntry(msgspec.Struct, frozen=True):
    """A request that ended lately, in a line."""

    id: str
    model: str
    arrived: float
    total_s: float
    prompt_tokens: int
    cached_tokens: int
    error: str | None


class TraceList(msgspec.Struct, frozen=True):
    """The requests that ended lately, the latest last."""

    object: str
    data: tuple[TraceEntry, ...]


@post("/trace", status_code=200)
async def explain_request(
    request: HttpRequest[Any, Any, Any],
    service: NamedDependency[Service],
    path: FromQuery[str | None] = None,
    text: FromQuery[bool] = False,
) -> Explanation:
    """Explain the request in the body without running it.

    The body is that of any dialect, alone or as `{"path": ..., "body": ...}`; the query may name the path and ask for
    the text of a difference.
    """
    _, asked = read_request(await request.body(), path, new_id("trace"))
    return await asyncio.to_thread(service.backend.explain, asked, show_text=text)


@get("/trace", sync_to_thread=False)
def list_traces(service: NamedDependency[Service]) -> TraceList:
    """List the requests that ended lately."""
    return TraceList("list", tuple(_entry(trace) for trace in service.backend.traces()))


@get("/trace/{name:str}", sync_to_thread=False)
def show_trace(name: FromPath[str], service: NamedDependency[Service]) -> RequestTrace:
    """Show what was planned for a request and what happened; `last` is the one that ended last."""
    traces = service.backend.traces()
    found = traces[-1:] if name == "last" else [trace for trace in traces if trace.id == name]
    if not found:
        raise UnknownRequestError(name)
    return found[-1]


@get("/tap", sync_to_thread=False)
def tap(
    service: NamedDependency[Service],
    model: FromQuery[str | None] = None,
    stage: FromQuery[str | None] = None,
    of: Annotated[str | None, QueryParameter(name="request")] = None,
) -> ASGIApp:
    """Stream the events of requests as they happen, those of one model, stage or request if so asked."""
    name = service.backend.resolve(model).name if model else None
    return TapStream(service.backend, service.taps, Filter(name, stage, of), service.settings.keep_alive)


def _entry(trace: RequestTrace) -> TraceEntry:
    usage = trace.usage
    return TraceEntry(
        trace.id,
        trace.model,
        trace.arrived,
        trace.total_s,
        usage.prompt_tokens,
        usage.cached_tokens,
        trace.error,
    )
