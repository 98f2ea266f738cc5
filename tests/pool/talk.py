"""Servers over several tiny models, and many requests at once."""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx

from omlx.config.settings import CacheSettings, ModelSettings, ServerSettings, Settings
from omlx.units import ByteSize
from tests.serving import Served, serving
from tests.trust.talk import STAGES, tokens_of

__all__ = ["PROMPT", "Stream", "all_at_once", "several", "tokens_of"]

PROMPT = tokens_of(1, 150)


@contextlib.contextmanager
def several(
    models: dict[str, Path | dict[str, Any]], cache: Path, hot: int | None = None, **server: Any
) -> Iterator[Served]:
    """Run a server over several models: a folder each, or its settings; keywords are those of the server."""
    offered = {
        name: ModelSettings(**{"stages": STAGES, **({"path": str(m)} if isinstance(m, Path) else m)})
        for name, m in models.items()
    }
    tiers = {"directory": str(cache)} | ({"hot": ByteSize(hot)} if hot else {})
    settings = Settings(models=offered, cache=CacheSettings(**tiers), server=ServerSettings(port=0, **server))
    with serving(settings) as served:
        yield served


def all_at_once(count: int, ask: Callable[[int], httpx.Response]) -> list[httpx.Response]:
    """Send requests from as many threads, and return what came back, in their order."""
    with ThreadPoolExecutor(count) as threads:
        return list(threads.map(ask, range(count)))


def ask(server: Served, model: str, seed: int = 0, **body: Any) -> httpx.Response:
    """Complete a short prompt of tokens."""
    asked = {
        "model": model,
        "prompt": tokens_of(seed, 40),
        "max_tokens": 4,
        "temperature": 0,
        "ignore_eos": True,
    }
    return server.http.post("/v1/completions", json={**asked, **body})


class Stream:
    """A long answer that is read on a thread of its own. Its `texts` grow; `error` is one that ended it."""

    def __init__(self, server: Served, model: str, **body: Any) -> None:
        self.texts: list[str] = []
        self.error: dict[str, Any] | None = None
        self.finished = False
        self._body = {"model": model, "prompt": PROMPT, "max_tokens": 2000, "ignore_eos": True, **body}
        self._server = server
        self._stop = False
        self._began = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def wait_begun(self) -> None:
        """Wait until the first text has come."""
        assert self._began.wait(60)

    def stop(self) -> None:
        """Hang up, and wait until that is done."""
        self._stop = True
        self._thread.join(60)

    def join(self) -> None:
        """Wait for the end of the answer."""
        self._thread.join(120)

    def _read(self) -> None:
        body = {**self._body, "stream": True}
        with (
            httpx.Client(base_url=self._server.url, timeout=120) as http,
            http.stream("POST", "/v1/completions", json=body) as response,
        ):
            for line in response.iter_lines():
                if self._stop:
                    return
                if line == "data: [DONE]":
                    self.finished = True
                elif line.startswith("data: "):
                    self._take(json.loads(line[6:]))

    def _take(self, event: dict[str, Any]) -> None:
        if "error" in event:
            self.error = event["error"]
        self.texts += [choice["text"] for choice in event.get("choices", []) if choice.get("text")]
        if self.texts:
            self._began.set()
