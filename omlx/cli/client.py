"""A small client of the server's own HTTP API, for the demo and the benchmarks."""

import http.client
import json
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

from omlx.errors import OmlxError


@dataclass(frozen=True)
class Reply:
    """What one streamed request gave. Times in seconds, measured here."""

    text: str
    ttft_s: float
    total_s: float
    usage: dict[str, Any]
    tool_calls: list[dict[str, Any]] = field(default_factory=list)
    id: str = ""
    came_s: tuple[float, ...] = ()  # when each piece of the answer came, by `time.perf_counter`

    @property
    def prompt_tokens(self) -> int:
        """Return the length of the prompt."""
        return int(self.usage["prompt_tokens"])

    @property
    def cached_tokens(self) -> int:
        """Return how many tokens of the prompt came from the cache."""
        return int(self.usage["prompt_tokens_details"]["cached_tokens"])

    @property
    def completion_tokens(self) -> int:
        """Return the length of the answer."""
        return int(self.usage["completion_tokens"])

    @property
    def own(self) -> dict[str, Any]:
        """Return the server's own figures: tokens by tier, tokens prefilled, seconds by stage."""
        return dict(self.usage.get("omlx") or {})

    @property
    def largest_gap_s(self) -> float:
        """Return the longest time between two pieces of the answer."""
        return max((after - before for before, after in pairwise(self.came_s)), default=0.0)

    @property
    def decode_tps(self) -> float:
        """Return tokens per second after the first one; 0.0 for an answer of one token."""
        rest = self.total_s - self.ttft_s
        return (self.completion_tokens - 1) / rest if self.completion_tokens > 1 and rest > 0 else 0.0


class Client:
    """Talk to a server on loopback."""

    def __init__(self, port: int, host: str = "127.0.0.1", timeout_s: float = 600.0) -> None:
        self.host = host
        self.port = port
        self._timeout_s = timeout_s

    def get(self, path: str) -> Any:
        """Return the JSON of a GET. Raises OmlxError for a status other than 200, OSError when nobody answers."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self._timeout_s)
        try:
            connection.request("GET", path)
            response = connection.getresponse()
            return _json(response.status, response.read())
        finally:
            connection.close()

    def stream(self, path: str, body: dict[str, Any]) -> Reply:
        """Send a request with `stream` on; return the whole answer with its times. Raises OmlxError."""
        payload = json.dumps({**body, "stream": True, "stream_options": {"include_usage": True}})
        started = time.perf_counter()
        connection = http.client.HTTPConnection(self.host, self.port, timeout=self._timeout_s)
        try:
            connection.request("POST", path, payload, {"Content-Type": "application/json"})
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                _json(response.status, response.read())
            return _collect(response, started)
        finally:
            connection.close()


def _json(status: int, content: bytes) -> Any:
    value = json.loads(content)
    if status != http.HTTPStatus.OK:
        raise OmlxError(f"the server answered {status}: {value.get('error', {}).get('message', value)}")
    return value


def _collect(response: http.client.HTTPResponse, started: float) -> Reply:
    """Read a stream of chunks to its end."""
    text: list[str] = []
    calls: list[dict[str, Any]] = []
    usage: dict[str, Any] = {}
    name = ""
    pieces: list[float] = []
    for chunk in _events(response):
        if "error" in chunk:
            raise OmlxError(f"the server reported: {chunk['error'].get('message')}")
        for choice in chunk.get("choices", []):
            delta = choice.get("delta", choice)
            piece = delta.get("content") or delta.get("reasoning_content") or delta.get("text")
            if piece or delta.get("tool_calls") or choice.get("finish_reason"):
                pieces.append(time.perf_counter())
            text += [piece] if piece else []
            calls += delta.get("tool_calls") or []
        usage = chunk.get("usage") or usage
        name = chunk.get("id") or name
    ended = time.perf_counter()
    first = pieces[0] if pieces else ended
    return Reply("".join(text), first - started, ended - started, usage, calls, name, tuple(pieces))


def _events(response: http.client.HTTPResponse) -> Iterator[dict[str, Any]]:
    """Yield the JSON of each `data:` line up to [DONE]; comments are skipped."""
    for line in response:
        data = line.strip()
        if data == b"data: [DONE]":
            return
        if data.startswith(b"data: "):
            yield json.loads(data[6:])
