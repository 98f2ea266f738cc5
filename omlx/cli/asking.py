"""Ask a running server of our own: a GET, a POST, a stream of events. Over plain HTTP, mostly on loopback."""

import http.client
import json
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import urlencode, urlsplit

from omlx.config.settings import ServerSettings
from omlx.errors import OmlxError, UsageError

#: How long a server may take to say that it is there. One on loopback says so within milliseconds, or is busy.
_PRESENCE_S = 1.0
#: Names under which a server listens that are no address to connect to.
_ANYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}  # noqa: S104 - to connect, not to listen


class Server:
    """One address. Raises OmlxError for an answer that is not 200, OSError when nobody answers."""

    def __init__(self, url: str, api_key: str | None = None, timeout_s: float = 120.0) -> None:
        parts = urlsplit(url if "//" in url else f"http://{url}")
        if parts.scheme != "http" or not parts.hostname:
            raise UsageError(f"{url!r} is no address of a server", hint="write it as http://127.0.0.1:8321")
        self.url = f"http://{parts.netloc}"
        self._host, self._port = parts.hostname, parts.port or 80
        self._headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
        self._timeout_s = timeout_s

    def models(self) -> dict[str, dict[str, Any]]:
        """Return what the server says of each model, by every name of it; nothing when no server of ours answers."""
        try:
            listed = json.loads(self._send("GET", "/v1/models", timeout_s=_PRESENCE_S))
            return {str(each["id"]): each for each in listed["data"] if each.get("owned_by") == "omlx"}
        except (OSError, OmlxError, ValueError, KeyError, TypeError, http.client.HTTPException):
            return {}

    def names(self) -> set[str]:
        """Return the names of all models that the server offers; none when there is no server of ours."""
        return set(self.models())

    def get(self, path: str) -> bytes:
        """Return the body of a GET."""
        return self._send("GET", path)

    def post(self, path: str, body: bytes, query: Mapping[str, str]) -> bytes:
        """Return the body of the answer to a POST of JSON."""
        return self._send("POST", f"{path}?{urlencode(query)}", body)

    def events(self, path: str, query: Mapping[str, str]) -> Iterator[tuple[str, bytes]]:
        """Yield the events of a stream, name and data, until the server ends it."""
        connection = self._open(self._timeout_s)
        try:
            connection.request("GET", f"{path}?{urlencode(query)}", headers=self._headers)
            response = connection.getresponse()
            if response.status != http.HTTPStatus.OK:
                _refuse(response.status, response.read())
            name = "message"
            for line in response:
                field, _, value = line.rstrip(b"\r\n").partition(b": ")
                if field == b"event":
                    name = value.decode()
                elif field == b"data":
                    yield name, value
        finally:
            connection.close()

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self._host, self._port, timeout=timeout_s)

    def _send(
        self, method: str, path: str, body: bytes | None = None, timeout_s: float | None = None
    ) -> bytes:
        connection = self._open(timeout_s or self._timeout_s)
        try:
            connection.request(method, path, body, {**self._headers, "Content-Type": "application/json"})
            response = connection.getresponse()
            content = response.read()
            if response.status != http.HTTPStatus.OK:
                _refuse(response.status, content)
            return content
        finally:
            connection.close()


def server_at(url: str | None, settings: ServerSettings) -> Server:
    """Return the server at an address, or where the settings say that one listens."""
    if url:
        return Server(url, settings.api_key)
    host = _ANYWHERE.get(settings.host, settings.host)
    return Server(f"http://{f'[{host}]' if ':' in host else host}:{settings.port}", settings.api_key)


def _refuse(status: int, content: bytes) -> None:
    """Raise what the server said."""
    try:
        said: Any = json.loads(content)["error"]["message"]
    except (ValueError, KeyError, TypeError):
        said = content[:200].decode(errors="replace")
    raise OmlxError(f"the server answered {status}: {said}")
