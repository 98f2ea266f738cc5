"""Server-sent events: bytes on the wire."""

import msgspec

#: A comment: clients skip it, connections and idle timers see it.
KEEP_ALIVE = b": keep-alive\n\n"
#: How OpenAI's streams end.
DONE = b"data: [DONE]\n\n"

HEADERS: list[tuple[bytes, bytes]] = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),  # a proxy in between must not collect events
]

_encoder = msgspec.json.Encoder()


def frame(data: object, event: str | None = None) -> bytes:
    """Return one event with `data` as JSON, which never contains a line break."""
    name = f"event: {event}\n".encode() if event else b""
    return name + b"data: " + _encoder.encode(data) + b"\n\n"
