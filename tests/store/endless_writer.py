"""A process that puts conversations into a store until it is killed.

`endless_writer.py DIRECTORY SEED BUDGET`.

It prints one line per conversation that it has put and read back.
"""

import itertools
import sys
from pathlib import Path

import structlog

from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.types import as_tokens
from tests.sequences import SLIDING, chain, even, records


def main(directory: str, seed: str, budget: str) -> None:
    """Put, flush and load conversations without end."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    cold = ColdTier(Path(directory), int(budget), min_free_bytes=0)
    store = BlockStore(HotTier(64 * 1024), cold)
    for number in itertools.count(int(seed)):
        tokens = [*range(32), *range(1000 * (number % 50), 1000 * (number % 50) + 32)]
        blocks = chain(tokens, even(4))
        for block in blocks:
            store.put(block, records(block, SLIDING), SLIDING)
        store.flush(10)
        match = store.match(blocks[0].fingerprint, as_tokens([*tokens, 1]), SLIDING)
        store.load(match, SLIDING)
        print(number, flush=True)  # noqa: T201 - the parent reads it


if __name__ == "__main__":
    main(*sys.argv[1:])
