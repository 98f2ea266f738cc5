"""What the server itself takes before a prompt is computed, by part, and how long its event loop is kept.

A long conversation is sent to a real server over HTTP, then with one more turn, over a model that computes next to
nothing but has the tokenizer and the chat template of the model to measure. The parts:

    http        accepting, reading the body, headers back: what the others leave of the time to the headers
    json        bytes to the API's own values
    convert     these to a conversation in neutral form
    template    rendering it
    tokenize    text to tokens
    normalize, segment, coalesce, lookup, fetch    the stages of those names

Exit code 1 when the loop worked longer in one go than --most-ms, or a further turn saves less than --least-ratio in
template, tokenize and segment together.
"""

import argparse
import contextlib
import http.client
import json
import re
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from omlx.cli.client import Client
from omlx.cli.sessions import chat_body, lengthened, made_session, num_tokens, read_session, renewed
from omlx.cli.table import format_table
from omlx.config.settings import CacheSettings, ModelSettings, ServerSettings, Settings
from omlx.telemetry import configure_logging
from omlx.text.chat import ChatPrompt, Message
from omlx.text.tokenizer import FolderTokenizer

if TYPE_CHECKING:
    from omlx.server.lag import LagProbe

_PARTS = (
    "http", "json", "convert", "normalize", "template", "tokenize", "segment", "coalesce", "lookup", "fetch",
)  # fmt: skip
#: The parts that remembering makes cheaper.
_REMEMBERED = ("template", "tokenize", "segment")


@dataclass(frozen=True)
class Turn:
    """One request: its size, the milliseconds of each part, and of the longest that the loop was kept."""

    name: str
    prompt_tokens: int
    body_bytes: int
    ms: dict[str, float]
    loop_gap_ms: float
    loop_busy_ms: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the benchmark's options."""
    parser.add_argument(
        "--model", required=True, metavar="FOLDER_OR_NAME", help="whose tokenizer and template"
    )
    parser.add_argument("--trace", metavar="FILE", help="a recorded session (default: one made here)")
    parser.add_argument(
        "--tokens", type=int, default=24_000, help="length of the conversation (default 24000)"
    )
    parser.add_argument(
        "--repeat", type=int, default=5, help="conversations; the best of them is shown (default 5)"
    )
    parser.add_argument(
        "--most-ms", type=float, default=20.0, help="the longest the loop may work (default 20)"
    )
    parser.add_argument("--least-ratio", type=float, default=3.0, help="what a turn must save (default 3)")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Measure and print the table."""
    with tempfile.TemporaryDirectory(prefix="omlx-server-") as scratch:
        first, following = measure(options, Path(scratch))
    ratio = _sum(first) / _sum(following)
    if options.json:
        print(json.dumps({"turns": [asdict(first), asdict(following)], "ratio": ratio}, indent=2))
    else:
        print(render(first, following, ratio))
    busiest = max(first.loop_busy_ms, following.loop_busy_ms)
    return 0 if busiest <= options.most_ms and ratio >= options.least_ratio else 1


def render(first: Turn, following: Turn, ratio: float) -> str:
    """Return both turns beside each other, part by part."""
    rows: list[tuple[object, ...]] = [
        (f"{part}, ms", f"{first.ms[part]:.2f}", f"{following.ms[part]:.2f}") for part in _PARTS
    ]
    rows += [
        ("all, ms", f"{sum(first.ms.values()):.2f}", f"{sum(following.ms.values()):.2f}"),
        ("longest step of the loop, ms", f"{first.loop_busy_ms:.2f}", f"{following.loop_busy_ms:.2f}"),
        ("largest gap of the loop, ms", f"{first.loop_gap_ms:.2f}", f"{following.loop_gap_ms:.2f}"),
        ("prompt, tokens", first.prompt_tokens, following.prompt_tokens),
        ("body, bytes", first.body_bytes, following.body_bytes),
    ]
    table = format_table(("part", "first turn", "next turn"), rows)
    return f"{table}\n\ntemplate, tokenize and segment: {ratio:.1f} times less in the next turn"


def measure(options: argparse.Namespace, scratch: Path) -> tuple[Turn, Turn]:
    """Return the best of first turns of new conversations, and of the turns that follow them."""
    from omlx.models.resolve import resolve_folder  # noqa: PLC0415 - loads the BLAS and huggingface_hub: 0.5 s
    from omlx.testing.thin import write_thin_model  # noqa: PLC0415 - tokenizers and the other fakes: 0.15 s

    folder = write_thin_model(scratch / "thin", text_of=resolve_folder(options.model))
    tokenizer = FolderTokenizer(folder)
    session = read_session(options.trace) if options.trace else made_session(4)
    talk = lengthened(session[-1], tokenizer, options.tokens)
    turns: tuple[list[Turn], list[Turn]] = ([], [])
    with _serving(folder, scratch) as (port, probe):
        _ask(port, probe, "warm", ChatPrompt((Message("user", "Begin."),)), tokenizer)
        for number in range(options.repeat):
            first = _renewed(talk, number)
            more = (Message("assistant", "It is done."), Message("user", "And now the next step, please."))
            following = msgspec.structs.replace(first, messages=(*first.messages, *more))
            turns[0].append(_ask(port, probe, "first turn", first, tokenizer))
            turns[1].append(_ask(port, probe, "next turn", following, tokenizer))
    return _best(turns[0]), _best(turns[1])


def _renewed(prompt: ChatPrompt, number: int) -> ChatPrompt:
    """Return the conversation with every message new, so that nothing of another one is remembered."""
    return msgspec.structs.replace(prompt, messages=renewed(prompt.messages, str(number)))


@contextlib.contextmanager
def _serving(folder: Path, scratch: Path) -> Iterator[tuple[int, "LagProbe"]]:
    """Run a server in this process, with a probe on its event loop; yield its port and the probe."""
    import asyncio  # noqa: PLC0415 - 50 ms, for this benchmark alone

    from omlx.runtime import Runtime  # noqa: PLC0415 - imports mlx-lm and transformers: 2 to 5 s
    from omlx.server.lag import LagProbe  # noqa: PLC0415 - the same, 0 ms more
    from omlx.server.serve import HttpServer  # noqa: PLC0415 - imports litestar: 0.5 s

    probe = LagProbe()

    class ProbedServer(HttpServer):
        async def startup(self, sockets: Any = None) -> None:
            await super().startup(sockets)
            self.probing = asyncio.create_task(probe.run())

        async def shutdown(self, sockets: Any = None) -> None:
            self.probing.cancel()
            await super().shutdown(sockets)

    configure_logging(level="error")
    settings = Settings(
        models={"thin": ModelSettings(path=str(folder))},
        cache=CacheSettings(directory=str(scratch / "blocks")),
        server=ServerSettings(port=0),
    )
    runtime = Runtime(settings, scratch)
    runtime.start()
    server = ProbedServer(runtime, settings.server, grace_s=0.0)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        runtime.preload().result()
        yield int(server.url.rpartition(":")[2]), probe
    finally:
        server.stop()
        thread.join()
        runtime.close()


def _ask(port: int, probe: "LagProbe", name: str, prompt: ChatPrompt, tokenizer: FolderTokenizer) -> Turn:
    """Send a conversation; return its times: those of the server by its header, the others taken here."""
    body = json.dumps(chat_body(prompt) | {"model": "thin", "stream": True, "max_tokens": 1}).encode()
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    connection.connect()
    probe.reset()
    started = time.perf_counter()
    connection.request("POST", "/v1/chat/completions", body, {"x-omlx-timings": "1"})
    response = connection.getresponse()
    spent = 1000 * (time.perf_counter() - started)
    stages = {
        part: float(ms)
        for part, ms in re.findall(r"(\w+);dur=([\d.]+)", response.headers["server-timing"] or "")
    }
    response.read()
    connection.close()
    _settle(port)
    gap, busy = 1000 * probe.gap_s, 1000 * probe.busy_s
    ms = _alone(body, prompt, tokenizer) | {part: stages.get(part, 0.0) for part in _PARTS if part in stages}
    ms["http"] = max(spent - sum(stages.values()) - ms["json"] - ms["convert"], 0.0)
    return Turn(
        name,
        num_tokens(prompt, tokenizer),
        len(body),
        {part: ms.get(part, 0.0) for part in _PARTS},
        gap,
        busy,
    )


def _settle(port: int) -> None:
    """Wait until what a request stored is on disk, so that the next one has the machine to itself."""
    client = Client(port)
    while (client.get("/health").get("cache") or {}).get("queue", {}).get("records"):
        time.sleep(0.01)


def _alone(body: bytes, prompt: ChatPrompt, tokenizer: FolderTokenizer) -> dict[str, float]:
    """Return what parts take that no stage of the server measures by itself, taken here."""
    from omlx.server.chat.prompt import chat_prompt  # noqa: PLC0415 - the schemas of the API: 30 ms
    from omlx.server.chat.schema import ChatBody  # noqa: PLC0415 - the same, 0 ms more
    from omlx.server.decode import decode_body  # noqa: PLC0415 - the same, 0 ms more

    marks = [time.perf_counter()]
    decoded = decode_body(body, ChatBody)
    marks.append(time.perf_counter())
    chat_prompt(decoded)
    marks.append(time.perf_counter())
    tokenizer.render(prompt)
    marks.append(time.perf_counter())
    names = ("json", "convert", "template")
    return {name: 1000 * (marks[i + 1] - marks[i]) for i, name in enumerate(names)}


def _best(turns: list[Turn]) -> Turn:
    """Return the least of each part, which other work on the machine disturbs least, and the most the loop was kept."""
    ms = {part: min(turn.ms[part] for turn in turns) for part in _PARTS}
    ms["tokenize"] = max(ms["tokenize"] - ms["template"], 0.0)  # the stage renders, too
    gap, busy = max(turn.loop_gap_ms for turn in turns), max(turn.loop_busy_ms for turn in turns)
    return Turn(turns[0].name, turns[0].prompt_tokens, turns[0].body_bytes, ms, gap, busy)


def _sum(turn: Turn) -> float:
    return sum(turn.ms[part] for part in _REMEMBERED)
