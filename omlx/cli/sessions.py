"""Sessions of agents for the benchmarks: recorded or made, as chat requests, cut or stretched to a length."""

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from omlx.cli.bodies import read_bodies
from omlx.cli.prose import sentences
from omlx.errors import UsageError
from omlx.text.chat import ChatPrompt, Message
from omlx.text.seams import Tokenizer


def read_session(file: str) -> list[ChatPrompt]:
    """Return the conversations in a recorded session, of whatever dialect. Raises UsageError when there is none."""
    from omlx.server.dialects import read_request  # noqa: PLC0415 - the schemas of all APIs: 60 ms

    asked = [read_request(body.raw, body.path)[1].prompt for body in read_bodies(file)]
    found = [prompt for prompt in asked if isinstance(prompt, ChatPrompt)]
    if not found:
        raise UsageError(f"there is no conversation in {file}", hint="name a session with chat requests")
    return found


def made_session(turns: int) -> list[ChatPrompt]:
    """Return a session of our own: instructions, six tools, and a file read in each turn."""
    messages: tuple[Message, ...] = (Message("system", sentences(1, 120)),)
    tools = tuple(_tool(number) for number in range(6))
    found = []
    for turn in range(turns):
        messages += (Message("user", f"Step {turn}. {sentences(100 + turn, 12)}"),)
        found.append(ChatPrompt(messages, tools))
        messages += (Message("assistant", sentences(500 + turn, 6)),)
    return found


def _tool(number: int) -> dict[str, Any]:
    text = {"type": "string", "description": sentences(900 + number, 2)}
    parameters = {"type": "object", "properties": {"path": text, "content": text}, "required": ["path"]}
    function = {"name": f"tool_{number}", "description": sentences(700 + number, 4), "parameters": parameters}
    return {"type": "function", "function": function}


def lengthened(prompt: ChatPrompt, tokenizer: Tokenizer, tokens: int) -> ChatPrompt:
    """Return a conversation of at least that many tokens: its messages after the system's, again and again.

    Each time their words are told apart by a number: a server that remembers texts has not seen them before.
    """
    leading = next((i for i, each in enumerate(prompt.messages) if each.role != "system"), 0)
    head, talk = prompt.messages[:leading], prompt.messages[leading:]
    longer, rounds = prompt, 0
    while num_tokens(longer, tokenizer) < tokens:
        rounds += 1
        messages = (*head, *longer.messages[leading:], *renewed(talk, f"round {rounds}"))
        longer = msgspec.structs.replace(prompt, messages=messages)
    return longer


def renewed(messages: Sequence[Message], mark: str) -> tuple[Message, ...]:
    """Return the messages with other texts: each ends with the mark."""
    return tuple(
        msgspec.structs.replace(message, content=f"{message.content} ({mark})") for message in messages
    )


def shortened(session: Sequence[ChatPrompt], tokenizer: Tokenizer, tokens: int) -> list[ChatPrompt]:
    """Return the session with the longest messages of its first turn cut, so that its last turn fits in `tokens`.

    The cut is the same in every turn, so that each still begins with the one before. Raises UsageError when even
    without these messages it does not fit.
    """
    first = session[0].messages
    keep: dict[int, int] = {}
    for index in sorted(range(len(first)), key=lambda i: -len(first[i].content)):
        keep[index] = len(first[index].content)
        while (over := num_tokens(_cut(session[-1], keep), tokenizer) - tokens) > 0 and keep[index]:
            keep[index] = max(0, keep[index] - max(over, 64))  # a token has a character at least
        if over <= 0:
            return [_cut(prompt, keep) for prompt in session]
    hint = "take fewer turns, or allow more tokens"
    raise UsageError(f"the last turn does not fit in {tokens} tokens", hint=hint)


def _cut(prompt: ChatPrompt, keep: Mapping[int, int]) -> ChatPrompt:
    """Return a conversation with some of its messages cut to so many characters."""
    messages = list(prompt.messages)
    for index, length in keep.items():
        messages[index] = msgspec.structs.replace(messages[index], content=messages[index].content[:length])
    return msgspec.structs.replace(prompt, messages=tuple(messages))


def num_tokens(prompt: ChatPrompt, tokenizer: Tokenizer) -> int:
    """Return the length of a conversation as the model sees it."""
    return len(tokenizer.encode(tokenizer.render(prompt)).tokens)


def chat_body(prompt: ChatPrompt) -> dict[str, Any]:
    """Return the conversation as a body of `/v1/chat/completions`."""
    body: dict[str, Any] = {"messages": [_message(message) for message in prompt.messages]}
    return body | ({"tools": list(prompt.tools)} if prompt.tools else {})


def _message(message: Message) -> dict[str, Any]:
    row: dict[str, Any] = {"role": message.role, "content": message.content}
    if message.tool_calls:
        row["tool_calls"] = [
            {
                "id": call.id or f"call_{number}",
                "type": "function",
                "function": {"name": call.name, "arguments": _as_text(call.arguments)},
            }
            for number, call in enumerate(message.tool_calls)
        ]
    if message.tool_call_id:
        row["tool_call_id"] = message.tool_call_id
    return row


def _as_text(arguments: dict[str, Any] | str) -> str:
    return arguments if isinstance(arguments, str) else msgspec.json.encode(arguments).decode()
