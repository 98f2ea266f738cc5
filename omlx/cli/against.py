"""This server and `mlx_lm.server` side by side: the same model, the same requests, in turns, in one run.

    cold          a conversation that no one has seen
    same          the same again
    other tail    its last words differ
    edit at half  one word in the middle differs
    back          the first one again, with a third tail
    restarted     both servers are started again, then the one with the other tail

Then sessions, turn by turn: those named with --session, else one made here. Each request goes to both servers before
the next does, to one first in one turn and to the other in the next. A ratio is this server's time by the other's:
below 1, this one is faster. Both stream chat completions at temperature 0, and on Linux both compute with the same
BLAS; what a model's window cannot hold is cut off its longest messages, alike in every turn and for both.
The lengths of both are shown: a template that drops tool calls makes the other's prompt shorter.
"""

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from omlx.cli.client import Reply
from omlx.cli.options import model_name
from omlx.cli.process import ServerProcess
from omlx.cli.prose import sentences
from omlx.cli.sessions import chat_body, made_session, num_tokens, read_session, shortened
from omlx.cli.table import format_table
from omlx.errors import OmlxError
from omlx.text.chat import ChatPrompt, Message
from omlx.text.text_config import read_text_config
from omlx.text.tokenizer import FolderTokenizer

#: Runs mlx_lm.server with its arguments, after the BLAS that this server uses was put under MLX.
_LAUNCH = "import omlx.models, runpy; runpy.run_module('mlx_lm.server', run_name='__main__', alter_sys=True)"
_RESTARTED = "restarted"


@dataclass(frozen=True)
class Row:
    """One request on both servers. Times in seconds."""

    session: str
    case: str
    prompt_tokens: int
    other_prompt_tokens: int
    cached_tokens: int
    other_cached_tokens: int
    ttft_s: float
    other_ttft_s: float
    total_s: float
    other_total_s: float


class MlxLmServer(ServerProcess):
    """Run `mlx_lm.server` on a model folder. `arguments` are its own."""

    def command(self) -> list[str]:
        """Return the command that runs it in the foreground."""
        address = ["--host", "127.0.0.1", "--port", str(self.port)]
        return [sys.executable, "-c", _LAUNCH, *address, *self.arguments]

    def ready(self) -> bool:
        """Tell whether it answers."""
        try:
            return bool(self.client.get("/health"))
        except (OSError, OmlxError, ValueError):
            return False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument("--model", required=True, metavar="FOLDER_OR_NAME", help="the model to measure with")
    parser.add_argument("--tokens", type=int, default=1750, help="most tokens of a prompt (default 1750)")
    parser.add_argument("--answer", type=int, default=8, help="tokens of each answer (default 8)")
    parser.add_argument(
        "--session", action="append", default=[], metavar="FILE", help="a recorded session (repeatable)"
    )
    parser.add_argument("--turns", type=int, default=4, help="turns of each session (default 4)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print the table."""
    with tempfile.TemporaryDirectory(prefix="omlx-against-") as scratch:
        rows = measure(options, Path(scratch))
    if options.json:
        print(json.dumps([asdict(row) for row in rows], indent=2))
    else:
        print(render(rows))
    return 0


def render(rows: Sequence[Row]) -> str:
    """Return the rows as a table, with the sums of each session."""
    other = "mlx_lm's"
    header = (
        "request",
        "prompt",
        other,
        "cached",
        other,
        "TTFT s",
        other,
        "ratio",
        "total s",
        other,
        "ratio",
    )
    lines: list[tuple[object, ...]] = []
    for session in dict.fromkeys(row.session for row in rows):
        own = [row for row in rows if row.session == session]
        lines += [_line(f"{session}: {row.case}", row) for row in own]
        lines.append(_line(f"{session}: all", _summed(own)))
    return format_table(header, lines)


def _line(name: str, row: Row) -> tuple[object, ...]:
    tokens = (row.prompt_tokens, row.other_prompt_tokens, row.cached_tokens, row.other_cached_tokens)
    first = (f"{row.ttft_s:.3f}", f"{row.other_ttft_s:.3f}", f"{row.ttft_s / row.other_ttft_s:.3f}")
    whole = (f"{row.total_s:.3f}", f"{row.other_total_s:.3f}", f"{row.total_s / row.other_total_s:.3f}")
    return (name, *tokens, *first, *whole)


def _summed(rows: Sequence[Row]) -> Row:
    fields: dict[str, Any] = {
        name: sum(getattr(row, name) for row in rows) for name in list(asdict(rows[0]))[2:]
    }
    return Row(rows[0].session, "all", **fields)


def measure(options: argparse.Namespace, scratch: Path) -> list[Row]:
    """Ask two servers with empty caches everything."""
    from omlx.models.resolve import resolve_folder  # noqa: PLC0415 - loads the BLAS and huggingface_hub: 0.5 s

    folder = resolve_folder(options.model)
    tokenizer = FolderTokenizer(folder)
    window = read_text_config(folder).window_tokens or options.tokens
    room = min(options.tokens, window - options.answer - 1)
    sessions = {"five": make_cases(tokenizer, room)}
    for name, turns in _sessions(options.session, options.turns).items():
        cut = shortened(turns[: options.turns], tokenizer, room)
        sessions[name] = {f"turn {number}": turn for number, turn in enumerate(cut, 1)}
    own = ServerProcess(
        ["--model", str(folder), "--set", f"cache.directory={scratch / 'blocks'}"], scratch / "omlx.log"
    )
    with own, MlxLmServer(["--model", str(folder)], scratch / "mlx_lm.log") as other:
        return Match(own, other, folder, options.answer).play(sessions)


def make_cases(tokenizer: FolderTokenizer, tokens: int) -> dict[str, ChatPrompt]:
    """Return the conversation of each case: near `tokens` long, all of one length but for a word."""
    words = sentences(1, tokens).split()
    while max(num_tokens(each, tokenizer) for each in _cases(words).values()) > tokens:
        words = words[: -max(1, len(words) // 40)]
    return _cases(words)


def _cases(words: list[str]) -> dict[str, ChatPrompt]:
    half = len(words) // 2
    edited = [*words[:half], "otherwise", *words[half + 1 :]]
    return {
        "cold": _talk(words, "first"),
        "same": _talk(words, "first"),
        "other tail": _talk(words, "second"),
        "edit at half": _talk(edited, "first"),
        "back": _talk(words, "third"),
        _RESTARTED: _talk(words, "second"),
    }


def _talk(words: list[str], tail: str) -> ChatPrompt:
    return ChatPrompt(
        (Message("system", " ".join(words)), Message("user", f"Tell me about the {tail} of these."))
    )


def _sessions(files: list[str], turns: int) -> dict[str, list[ChatPrompt]]:
    if not files:
        return {"made": made_session(turns)}
    return {Path(file).name.partition(".")[0]: read_session(file) for file in files}


class Match:
    """Asks both servers the same, one after the other."""

    def __init__(self, own: ServerProcess, other: ServerProcess, folder: Path, answer: int) -> None:
        self._own = own
        self._other = other
        self._names = (model_name(str(folder)), "default_model")
        self._answer = answer
        self._asked = 0

    def play(self, sessions: dict[str, dict[str, ChatPrompt]]) -> list[Row]:
        """Return what every request of every session took."""
        self._warm_up()
        rows = []
        for session, cases in sessions.items():
            for case, prompt in cases.items():
                if case == _RESTARTED:
                    self._restart()
                rows.append(self._ask(session, case, prompt))
                print(
                    f"{session}: {case}: {rows[-1].ttft_s:.2f} s, {rows[-1].other_ttft_s:.2f} s",
                    file=sys.stderr,
                )
        return rows

    def _restart(self) -> None:
        self._own.wait_written()
        for server in (self._own, self._other):
            server.stop()
            server.start()
        self._warm_up()

    def _warm_up(self) -> None:
        """Ask each a few words, so that no case pays for the first use of anything."""
        self._both(ChatPrompt((Message("user", "Begin."),)))

    def _ask(self, session: str, case: str, prompt: ChatPrompt) -> Row:
        own, other = self._both(prompt)
        cached = (own.cached_tokens, other.cached_tokens)
        times = (own.ttft_s, other.ttft_s, own.total_s, other.total_s)
        return Row(session, case, own.prompt_tokens, other.prompt_tokens, *cached, *times)

    def _both(self, prompt: ChatPrompt) -> tuple[Reply, Reply]:
        """Ask both; who is first changes from request to request."""
        body = chat_body(prompt) | {"max_tokens": self._answer, "temperature": 0}
        servers = list(zip((self._own, self._other), self._names, strict=True))
        first = self._asked % 2
        self._asked += 1
        replies: dict[int, Reply] = {}
        for index in (first, 1 - first):
            server, name = servers[index]
            replies[index] = server.client.stream("/v1/chat/completions", body | {"model": name})
        return replies[0], replies[1]
