"""demo: see it work: an agent's session on a small real model, a restart, and what was saved.

Needs no account and no configuration. It fetches the weights of a small model (93 MB, once), serves them, plays a
short session against its own HTTP API, prints one table, and leaves the server running.
"""

import argparse
import shutil
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omlx.cli.client import Reply
from omlx.cli.options import model_name
from omlx.cli.process import ServerProcess, free_port
from omlx.cli.prose import sentences
from omlx.cli.table import format_table
from omlx.config.settings import ServerSettings

DEFAULT_MODEL = "smollm2-135m-instruct"
_ANSWER_TOKENS = 32


@dataclass(frozen=True)
class Turn:
    """One request of the session and what came of it."""

    name: str
    reply: Reply


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "--model",
        default=DEFAULT_MODEL,
        metavar="FOLDER_OR_NAME",
        help="another model: a folder or a hub name",
    )
    parser.add_argument(
        "--port", type=int, help="port of the server (default 8321, or a free one if that is taken)"
    )
    parser.add_argument("--exit", action="store_true", help="end the server when the session is over")


def run(options: argparse.Namespace) -> int:
    """Play the session, print the table, and serve until interrupted."""
    from omlx.models.resolve import resolve_folder  # noqa: PLC0415 - imports huggingface_hub: 0.4 s

    folder = resolve_folder(options.model)
    scratch = _scratch()
    blocks = scratch / "blocks"
    # a name that was resolved once is found again at once; a folder stays a folder
    offered = str(folder) if Path(options.model).expanduser().is_dir() else options.model
    arguments = ["--model", offered, "--set", f"cache.directory={blocks}", "--set", "cache.cold=4GiB"]
    server = ServerProcess(arguments, scratch / "server.log", options.port or _port())
    name = model_name(offered)
    print(f"Serving {name} on 127.0.0.1:{server.port}, with an empty cache.")
    with server:
        turns = play(server, name)
        print()
        print(render(turns))
        print()
        print(saved(turns))
        if options.exit:
            return 0
        _stay(server, name)
    return 0


def play(server: ServerProcess, model: str) -> list[Turn]:
    """Play the session: a cold turn, a follow-up, an edit in the middle, a restart, the follow-up again."""
    turns: list[Turn] = []

    def send(name: str, messages: list[dict[str, str]]) -> Reply:
        print(f"  {name} ...", flush=True)
        body = {"model": model, "messages": messages, "max_tokens": _ANSWER_TOKENS, "temperature": 0}
        reply = server.client.stream("/v1/chat/completions", body)
        turns.append(Turn(name, reply))
        return reply

    server.client.stream(  # the first request of a process also pays for loading the tokenizer
        "/v1/chat/completions",
        {"model": model, "messages": [{"role": "user", "content": "Hi"}], "max_tokens": 2},
    )
    first = opening()
    answer = send("first turn, cold", first).text
    second = follow_up(first, answer)
    send("follow-up", second)
    send("edit in the middle", edited(second))
    server.wait_written()
    print("  restarting the server ...", flush=True)
    server.stop()
    server.start()
    send("follow-up, after restart", second)
    return turns


def opening() -> list[dict[str, str]]:
    """Return an agent's first request: a long system prompt, a file that was read, a question."""
    system = (
        "You are a coding agent. You answer in one or two short sentences.\n\n# Rules of this project\n\n"
        + sentences(11, 95)
        + "\n\n# Notes from earlier sessions\n\n"
        + sentences(12, 45)
    )
    return [
        {"role": "system", "content": system},
        {
            "role": "user",
            "content": "The file notes.txt says:\n\n" + sentences(13, 20) + "\n\nWhat is it about?",
        },
    ]


def follow_up(messages: list[dict[str, str]], answer: str) -> list[dict[str, str]]:
    """Return the next turn: the same conversation, the answer, and another question."""
    question = "Thank you. Now name one thing that the build should check."
    return [*messages, {"role": "assistant", "content": answer}, {"role": "user", "content": question}]


def edited(messages: list[dict[str, str]]) -> list[dict[str, str]]:
    """Return the conversation with the file in the middle read again after a change to its end."""
    system, file, *rest = messages
    content = file["content"].replace("What is it about?", "It was changed today. What is it about?")
    return [system, {"role": "user", "content": content}, *rest]


def render(turns: list[Turn]) -> str:
    """Return the session as a table."""
    rows = [
        (
            turn.name,
            turn.reply.prompt_tokens,
            turn.reply.own.get("hot_tokens", 0),
            turn.reply.own.get("cold_tokens", 0),
            turn.reply.prompt_tokens - turn.reply.cached_tokens,
            f"{turn.reply.ttft_s:.2f} s",
            f"{turn.reply.decode_tps:.1f}",
        )
        for turn in turns
    ]
    header = ("turn", "prompt tokens", "from RAM", "from SSD", "computed", "first token", "tokens/s")
    return format_table(header, rows)


def saved(turns: list[Turn]) -> str:
    """Say in one line what the cache saved after the cold turn."""
    cold, *warm = turns
    per_token = cold.reply.ttft_s / cold.reply.prompt_tokens
    tokens = sum(turn.reply.prompt_tokens for turn in warm)
    cached = sum(turn.reply.cached_tokens for turn in warm)
    waited = sum(turn.reply.ttft_s for turn in warm)
    return (
        f"After the first turn {cached} of {tokens} prompt tokens were reused: {waited:.1f} s to the first tokens "
        f"instead of about {per_token * tokens:.1f} s."
    )


def _stay(server: ServerProcess, model: str) -> None:
    """Leave the server running, with a line to try it, until it ends or the person interrupts."""
    body: Any = f'{{"model": "{model}", "messages": [{{"role": "user", "content": "What is the capital of France?"}}]}}'
    print(
        f"\nThe server goes on at http://127.0.0.1:{server.port}/v1 (Ctrl-C ends it). Try:\n\n"
        f"  curl http://127.0.0.1:{server.port}/v1/chat/completions -H 'Content-Type: application/json' \\\n"
        f"    -d '{body}'\n",
        flush=True,
    )
    server.wait()


def _scratch() -> Path:
    """Return the demo's own folder, its cache emptied: the first turn must be cold."""
    scratch = Path("~/.cache/omlx/demo").expanduser()
    shutil.rmtree(scratch / "blocks", ignore_errors=True)
    scratch.mkdir(parents=True, exist_ok=True)
    return scratch


def _port() -> int:
    """Return the default port, or a free one when that is taken."""
    with socket.socket() as probe:
        taken = probe.connect_ex(("127.0.0.1", ServerSettings().port)) == 0
    return free_port() if taken else ServerSettings().port
