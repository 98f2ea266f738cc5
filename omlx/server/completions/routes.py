"""`POST /v1/completions`."""

import time
from typing import Any

from litestar import Request as HttpRequest
from litestar import post
from litestar.di import NamedDependency
from litestar.types import ASGIApp

from omlx.pipeline.request import Request
from omlx.server.answer import Service
from omlx.server.body import read_body
from omlx.server.completions.render import CompletionDialect
from omlx.server.completions.schema import HONOURED, CompletionBody, plain_prompt
from omlx.server.identity import new_id, wants_trace
from omlx.server.openai.generation import refuse_unsupported, token_limit
from omlx.server.timing import wants_timings


@post("/completions", status_code=200)
async def complete_text(request: HttpRequest[Any, Any, Any], service: NamedDependency[Service]) -> ASGIApp:
    """Continue a text."""
    body = await read_body(request, CompletionBody)
    refuse_unsupported(body, HONOURED)
    asked = Request(
        id=new_id("cmpl"),
        prompt=plain_prompt(body),
        model=service.backend.resolve(body.model).name,
        sampling=body.sampling(),
        max_tokens=token_limit(max_tokens=body.max_tokens),
        stop=body.stop_strings(),
        ignore_eos=bool(body.ignore_eos),
        top_logprobs=body.wanted_logprobs(),
        explain=wants_trace(request.headers),
    )
    wants_usage = body.wants_usage or asked.explain or wants_timings(request.headers)
    dialect = CompletionDialect(
        asked.id,
        asked.model,
        int(time.time()),
        include_usage=wants_usage,
        logprobs=asked.top_logprobs is not None,
    )
    return await service.answer(request, asked, dialect, stream=bool(body.stream), num_choices=body.n or 1)
