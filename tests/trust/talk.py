"""What the trust tests share: servers over tiny models with small blocks, scripted answers, files of blocks."""

import contextlib
import random
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

import omlx.models  # noqa: F401 - loads the fast BLAS, before MLX

# isort: split
import mlx.core as mx

from omlx.config.settings import Settings
from omlx.store.cold import ColdTier
from omlx.text.chat import ChatPrompt, Message
from omlx.text.tokenizer import FolderTokenizer
from omlx.types import RecordKind
from omlx.units import ByteSize
from tests.serving import Served, serving, settings_for

#: A family for each way in which layers keep what they need.
KINDS = {"full": "llama", "sliding": "gemma3", "hybrid": "qwen3_5"}
BLOCK = 32
CHUNK = 64
#: What is measured of tiny models on a busy machine says nothing: no test may hang on it.
ALWAYS: dict[str, Any] = {"prefer": "reuse"}
STAGES: dict[str, dict[str, Any]] = {
    "lookup": ALWAYS,
    "prefill": {"chunk_tokens": CHUNK},
    "writeback": {"block_tokens": BLOCK},
}
#: A chunk, a block and a state at every multiple of `BLOCK`.
EVERY_BLOCK: dict[str, dict[str, Any]] = {
    "lookup": ALWAYS,
    "prefill": {"chunk_tokens": BLOCK},
    "writeback": {"block_tokens": BLOCK, "state_every_tokens": BLOCK},
}

WORDS = "the agent reads a file and answers with a tool call about paris today in one sentence".split()  # noqa: SIM905 - a list of one a line would fill the page


def prose(seed: int, words: int) -> str:
    """Return seeded words."""
    rng = random.Random(seed)
    return " ".join(rng.choice(WORDS) for _ in range(words))


def tokens_of(seed: int, count: int) -> list[int]:
    """Return seeded tokens that are no special ones."""
    return np.random.default_rng(seed).integers(8, 350, count).tolist()


def small(
    folder: Path,
    cache: Path,
    *,
    stages: dict[str, Any] = STAGES,
    hot: int | None = None,
    cold: int | None = None,
    **model: Any,
) -> Settings:
    """Return settings of one tiny model with small chunks and blocks; `hot` and `cold` are bytes."""
    settings = settings_for(folder, cache, stages=stages, **model)
    limits = {name: ByteSize(size) for name, size in (("hot", hot), ("cold", cold)) if size is not None}
    return msgspec.structs.replace(settings, cache=msgspec.structs.replace(settings.cache, **limits))


@contextlib.contextmanager
def small_server(folder: Path, cache: Path, **options: Any) -> Iterator[Served]:
    """Run a server over one tiny model, see `small`."""
    with serving(small(folder, cache, **options)) as server:
        yield server


def answer(server: Served, prompt: list[int], **body: Any) -> tuple[str, int]:
    """Return the text after a prompt of tokens, 24 tokens unless told otherwise, and how many were restored."""
    found = server.complete(prompt, **{"max_tokens": 24, "ignore_eos": True, **body})
    return found["choices"][0]["text"], restored(found)


def restored(found: dict[str, Any]) -> int:
    """Return the restored prompt tokens of an answer."""
    return found["usage"]["prompt_tokens_details"]["cached_tokens"]


def prompt_tokens(found: dict[str, Any]) -> int:
    """Return the length of an answer's prompt."""
    return found["usage"]["prompt_tokens"]


def said(found: dict[str, Any]) -> str:
    """Return the visible text of a chat completion."""
    return found["choices"][0]["message"]["content"]


def statistics(server: Served) -> dict[str, Any]:
    """Return what `/health` says of the cache."""
    return server.http.get("/health").json()["cache"]


def settled(question: Callable[[], bool], *, within_s: float = 20.0) -> bool:
    """Wait until a question is answered with yes; return False when it never is."""
    deadline = time.monotonic() + within_s
    while not question():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.005)
    return True


class BlockFile:
    """A record's file, and the tokens it is of."""

    def __init__(self, path: Path, kind: RecordKind, start: int, end: int) -> None:
        self.path = path
        self.kind = kind
        self.range = (start, end)


def block_files(cache: Path) -> list[BlockFile]:
    """Return the files of a cache that no server has open, by position."""
    tier = ColdTier(cache, 2**40, min_free_bytes=0)
    try:
        ledger = tier._table.ledger
        found = [
            BlockFile(cache / record.filename, kind, block.start, block.end)
            for block in tier.blocks()
            for kind, record in ledger.records(block.name).items()
        ]
    finally:
        tier.close()
    return sorted(found, key=lambda file: file.range)


class Scripted:
    """A module whose logits are bent towards a script: the model computes as ever, and says what it is told.

    After the longest part of the script that it has just been fed it says the next token of it, at the end `eos`.
    """

    def __init__(self, module: Any, script: list[int], eos: int) -> None:
        self._module = module
        self._script = [*script, eos]
        self._fed: dict[int, tuple[Any, list[int]]] = {}

    def __call__(self, tokens: mx.array, cache: Any) -> mx.array:
        """Return the logits `(1, tokens, vocabulary)`, the last of them bent."""
        fed = self._fed.setdefault(id(cache), (cache, []))[1]
        fed += tokens[0].tolist()
        length = min(len(self._script) - 1, len(fed))
        spoken = next(k for k in range(length, -1, -1) if fed[len(fed) - k :] == self._script[:k])
        logits = self._module(tokens, cache=cache)
        bend = mx.zeros(logits.shape[-1:])
        bend[self._script[spoken]] = 1e6
        return logits + bend


def script(server: Served, folder: Path, text: str) -> list[int]:
    """Make the server's model say a text and end; return the text's tokens."""
    loaded = server.runtime.preload("tiny").result()
    tokens = FolderTokenizer(folder).encode(text).tokens.tolist()
    module = loaded.module._module if isinstance(loaded.module, Scripted) else loaded.module
    scripted = Scripted(module, tokens, min(loaded.model.eos_tokens))
    server.runtime._pool._loaded["tiny"] = replace(loaded, module=scripted)
    return tokens


def rendered(folder: Path, messages: list[dict[str, Any]], **options: Any) -> list[int]:
    """Return the tokens of a chat of plain messages, with its generation prompt."""
    prompt = ChatPrompt(
        tuple(Message(each["role"], each["content"]) for each in messages), template_options=options
    )
    tokenizer = FolderTokenizer(folder)
    return tokenizer.encode(tokenizer.render(prompt)).tokens.tolist()
