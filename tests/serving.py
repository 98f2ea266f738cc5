"""A real server on loopback with real tiny models, for tests that go the whole way."""

import contextlib
import gzip
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from omlx.config.settings import CacheSettings, ModelSettings, ServerSettings, Settings
from omlx.runtime import Runtime
from omlx.server.serve import HttpServer

REPOSITORY = Path(__file__).resolve().parent.parent
TRACES = Path(__file__).resolve().parent / "data" / "traces"


class Served:
    """A running server: its runtime, its address, an HTTP client."""

    def __init__(self, runtime: Runtime, url: str, http: httpx.Client) -> None:
        self.runtime = runtime
        self.url = url
        self.http = http

    def post(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        """Post and return the JSON of a 200; anything else fails the test with the server's words."""
        response = self.http.post(path, json=body)
        assert response.status_code == 200, response.text
        return response.json()

    def chat(self, messages: list[dict[str, Any]], **body: Any) -> dict[str, Any]:
        """Return a chat completion at temperature 0, of 8 tokens unless said otherwise."""
        return self.post(
            "/v1/chat/completions", {"messages": messages, "temperature": 0, "max_tokens": 8, **body}
        )

    def complete(self, prompt: Any, **body: Any) -> dict[str, Any]:
        """Return a completion at temperature 0, of 8 tokens unless said otherwise."""
        return self.post("/v1/completions", {"prompt": prompt, "temperature": 0, "max_tokens": 8, **body})


def settings_for(folder: Path, cache: Path, **model: Any) -> Settings:
    """Return settings that offer one tiny model, with its cache in a folder of the test."""
    return Settings(
        models={"tiny": ModelSettings(path=str(folder), **model)},
        cache=CacheSettings(directory=str(cache)),
        server=ServerSettings(port=0),
    )


@contextlib.contextmanager
def serving(settings: Settings, base: Path = REPOSITORY) -> Iterator[Served]:
    """Run a server over real models until the block ends."""
    runtime = Runtime(settings, base)
    runtime.start()
    server = HttpServer(runtime, settings.server, grace_s=0.0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        with httpx.Client(base_url=server.url, timeout=120) as http:
            yield Served(runtime, server.url, http)
    finally:
        server.stop()
        thread.join(20)
        runtime.close()


def trace(name: str) -> list[dict[str, Any]]:
    """Return the requests of an agent's session: `path` and `body` each."""
    with gzip.open(TRACES / f"{name}.jsonl.gz", "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def cached(answer: dict[str, Any]) -> int:
    """Return the cached prompt tokens of an answer."""
    return answer["usage"]["prompt_tokens_details"]["cached_tokens"]
