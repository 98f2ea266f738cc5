"""`POST /v1/chat/completions`."""

import time
from typing import Any

from litestar import Request as HttpRequest
from litestar import post
from litestar.di import NamedDependency
from litestar.types import ASGIApp

from omlx.pipeline.request import Request
from omlx.server.answer import Service
from omlx.server.body import read_body
from omlx.server.chat.prompt import chat_prompt
from omlx.server.chat.render import ChatDialect
from omlx.server.chat.schema import HONOURED, ChatBody
from omlx.server.identity import new_id, wants_trace
from omlx.server.openai.generation import refuse_unsupported, token_limit
from omlx.server.timing import wants_timings


@post("/chat/completions", status_code=200)
async def complete_chat(request: HttpRequest[Any, Any, Any], service: NamedDependency[Service]) -> ASGIApp:
    """Continue a conversation."""
    body = await read_body(request, ChatBody)
    refuse_unsupported(body, HONOURED)
    asked = Request(
        id=new_id("chatcmpl"),
        prompt=chat_prompt(body),
        model=service.backend.resolve(body.model).name,
        sampling=body.sampling(),
        max_tokens=token_limit(max_completion_tokens=body.max_completion_tokens, max_tokens=body.max_tokens),
        stop=body.stop_strings(),
        ignore_eos=bool(body.ignore_eos),
        top_logprobs=body.wanted_logprobs(),
        explain=wants_trace(request.headers),
    )
    dialect = ChatDialect(
        asked.id,
        asked.model,
        int(time.time()),
        include_usage=body.wants_usage or asked.explain or wants_timings(request.headers),
        calls_as_text=body.tool_choice == "none",
        one_call=body.parallel_tool_calls is False,
        logprobs=asked.top_logprobs is not None,
    )
    return await service.answer(request, asked, dialect, stream=bool(body.stream), num_choices=body.n or 1)
