"""Mixed requests of clients of every kind: patient ones, ones that leave, ones that are wrong."""

import http.client
import json
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from omlx.cli.prose import sentences

#: What a request does, by how often.
KINDS = {
    "whole": 6, "streamed": 6, "tokens": 3, "leaves a stream": 3, "leaves an answer": 2, "bad body": 1,
    "unknown model": 1, "too long": 1,
}  # fmt: skip
_CHAT, _TEXT = "/v1/chat/completions", "/v1/completions"
#: The status that a wrong request must get.
_REFUSED = {"bad body": 400, "unknown model": 404, "too long": 400}


@dataclass(frozen=True)
class Asked:
    """A request and what its client does. `patience` is how many lines of a stream it takes, or seconds it waits."""

    kind: str
    path: str
    body: dict[str, Any]
    patience: float = 0.0


def make_request(rng: random.Random, models: Sequence[str]) -> Asked:
    """Return a request, drawn."""
    [kind] = rng.choices(list(KINDS), list(KINDS.values()))
    body: dict[str, Any] = {"model": rng.choice(models), "max_tokens": rng.randint(1, 24), "temperature": 0}
    # one of eight heads, so that many share one; a tail of their own
    head = sentences(rng.randrange(8), rng.choice((1, 4, 12, 24)))
    talk = [
        {"role": "system", "content": head},
        {"role": "user", "content": sentences(rng.randrange(10**6), rng.randint(1, 6))},
    ]
    match kind:
        case "bad body":
            return Asked(kind, _CHAT, body)
        case "unknown model":
            return Asked(kind, _CHAT, {**body, "model": "nobody", "messages": talk})
        case "too long":
            return Asked(kind, _TEXT, {**body, "prompt": [65] * 9000})
        case "tokens":
            prompt = [rng.randrange(60, 120) for _ in range(rng.choice((1, 63, 256, 257, 1500)))]
            return Asked(kind, _TEXT, {**body, "prompt": prompt})
        case "leaves a stream" | "leaves an answer":
            body |= {
                "max_tokens": 400,
                "ignore_eos": True,
                "messages": talk,
                "stream": kind == "leaves a stream",
            }
            return Asked(kind, _CHAT, body, rng.choice((0, 1, 5)) if body["stream"] else rng.uniform(0, 0.1))
    return Asked(kind, _CHAT, {**body, "messages": talk, "stream": kind == "streamed"})


class Client:
    """Sends requests to a port of this machine, each over a connection of its own."""

    def __init__(self, port: int, timeout_s: float = 120.0) -> None:
        self._port = port
        self._timeout_s = timeout_s

    def send(self, asked: Asked) -> str | None:
        """Do as the client of a request does; return what was wrong with the answer, or None.

        Raises OSError and ValueError for what cannot be understood at all.
        """
        connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=self._timeout_s)
        try:
            connection.request(
                "POST", asked.path, json.dumps(asked.body), {"Content-Type": "application/json"}
            )
            if asked.kind == "leaves an answer":
                time.sleep(asked.patience)
                return None
            response = connection.getresponse()
            if asked.kind == "leaves a stream":
                for _ in range(int(asked.patience)):
                    response.readline()
                return None
            return _judge(asked, response.status, response.read())
        except http.client.HTTPException as error:
            return f"{type(error).__name__}: {error}"
        finally:
            connection.close()


def _judge(asked: Asked, status: int, content: bytes) -> str | None:
    expected = _REFUSED.get(asked.kind, 200)
    if status != expected:
        return f"answered {status}, not {expected}: {content[:200].decode(errors='replace')}"
    if asked.body.get("stream"):
        return None if content.endswith(b"data: [DONE]\n\n") else "a stream without its end"
    said = json.loads(content)
    return None if ("error" if expected != 200 else "usage") in said else f"no answer: {content[:200]!r}"
