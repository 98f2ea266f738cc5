"""Sessions of real agents as neutral prompts, whatever dialect they were recorded in."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from omlx.pipeline.inflight import common_prefix
from omlx.server.chat.prompt import chat_prompt
from omlx.server.chat.schema import ChatBody
from omlx.server.messages.prompt import messages_prompt
from omlx.server.messages.schema import MessagesBody
from omlx.server.responses.prompt import responses_prompt
from omlx.server.responses.schema import ResponsesBody
from omlx.text.chat import ChatPrompt
from omlx.types import Tokens
from tests.serving import trace

_READ = {
    "/v1/chat/completions": (ChatBody, chat_prompt),
    "/v1/messages": (MessagesBody, messages_prompt),
    "/v1/responses": (ResponsesBody, responses_prompt),
}


def prompts(agent: str, most_chars: int | None = None) -> Iterator[ChatPrompt]:
    """Yield the prompts of an agent's session that a client sends for an answer.

    With `most_chars` no message, and no description of a tool, is longer: the same session with less to compute.
    """
    for request in trace(agent):
        if request["path"] in _READ:
            prompt = prompt_of(request["path"], request["body"])
            yield prompt if most_chars is None else _shortened(prompt, most_chars)


def _shortened(prompt: ChatPrompt, most_chars: int) -> ChatPrompt:
    messages = tuple(msgspec.structs.replace(m, content=m.content[:most_chars]) for m in prompt.messages)
    tools = tuple(
        {**tool, "function": {**(made := tool["function"]), "description": made["description"][:most_chars]}}
        for tool in prompt.tools
    )
    return msgspec.structs.replace(prompt, messages=messages, tools=tools)


def prompt_of(path: str, body: dict[str, Any]) -> ChatPrompt:
    """Return a recorded body as the server reads it."""
    schema, read = _READ[path]
    return read(msgspec.convert(body, schema))


@dataclass
class Reuse:
    """Tokens of a session: how many were new, and how many were computed. Mutable."""

    new: int = 0
    computed: int = 0
    seen: list[Tokens] | None = None

    def add(self, tokens: Tokens, computed: int) -> None:
        """Count a request: new is what no request before it begins with, the last token at least."""
        self.seen = self.seen if self.seen is not None else []
        shared = max((common_prefix(tokens, other) for other in self.seen), default=0)
        self.new += len(tokens) - min(shared, len(tokens) - 1)
        self.computed += computed
        self.seen.append(tokens)

    @property
    def ratio(self) -> float:
        """Return computed by new tokens."""
        return self.computed / self.new
