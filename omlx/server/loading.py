"""`POST /v1/models/{name}/load` and `POST /v1/models/{name}/unload`.

    load      200 with the model once it is in memory; it waits for its turn, as a request would
    unload    200 with the model once it is gone, also if it was gone before; 409 while requests use it or wait for it

What a model has cached outlives it. No wish to unload is kept: whoever gets a 409 asks again.
"""

import asyncio

from litestar import post
from litestar.di import NamedDependency
from litestar.params import FromPath

from omlx.errors import RequestError
from omlx.server.answer import Service
from omlx.server.discovery import ModelEntry, entry_of


@post("/models/{name:path}", status_code=200)
async def load_or_unload(name: FromPath[str], service: NamedDependency[Service]) -> ModelEntry:
    """Load or unload the model that answers to a name, which may contain slashes."""
    asked, _, verb = name.removeprefix("/").rpartition("/")
    actions = {"load": service.backend.load, "unload": service.backend.unload}
    if verb not in actions or not asked:
        hint = "use /v1/models/NAME/load or /v1/models/NAME/unload"
        raise RequestError(f"a model cannot be told to {verb!r}", param="path", code="not_found", hint=hint)
    return entry_of(asked, await asyncio.wrap_future(actions[verb](asked)))
