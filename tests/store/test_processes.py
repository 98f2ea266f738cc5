"""Several processes on one directory, and processes that are killed."""

import os
import random
import subprocess
import sys
import time
from pathlib import Path

from omlx.types import as_tokens
from tests.sequences import SLIDING, chain, even, record

MIB = 1024**2
ROOT = Path(__file__).parents[2]


def start(directory, seed, budget=8 * MIB, **environment):
    """Start a process that puts conversations without end."""
    return subprocess.Popen(
        [sys.executable, "-m", "tests.store.endless_writer", str(directory), str(seed), str(budget)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
        cwd=ROOT,
    )


def check(store, numbers):
    """Load the conversations of these numbers.

    Every record is what was put, and nothing is counted as damaged.
    """
    total = 0
    for number in numbers:
        tokens = [*range(32), *range(1000 * number, 1000 * number + 32)]
        blocks = chain(tokens, even(4))
        loaded = store.load(store.match(blocks[0].fingerprint, as_tokens([*tokens, 1]), SLIDING), SLIDING)
        total += loaded.resume
        for piece in loaded.pieces:
            for kind, found in piece.records.items():
                expected = record(piece.block, kind, SLIDING).buffers
                assert {n: a.tobytes() for n, a in expected.items()} == {
                    n: a.tobytes() for n, a in found.buffers.items()
                }
    assert 0 == store.stats().cold.corrupt_records
    return total


def test_a_killed_writer_leaves_nothing_wrong(stores, du):
    """B9: killed at random, ten times over one directory: every start is clean, every record right."""
    rng = random.Random(0)
    reused = 0
    for turn in range(10):
        process = start(stores.directory, 5 * turn, budget=MIB)
        process.stdout.readline()
        time.sleep(rng.random() * 0.15)
        process.kill()
        process.communicate()
        store = stores.store(hot=None, cold=MIB)
        assert [] == store.verify()
        assert du() <= MIB
        reused += check(store, range(50))
        assert store.stats().cold.missing_records == 0
        stores.close(store)
    assert reused > 1000


def test_two_processes_share_one_directory(stores, du):
    """B16: two writers and a reader at once: records are right, the budget holds, a kill blocks nobody."""
    budget = MIB + 256 * 1024
    first, second = start(stores.directory, 0, budget), start(stores.directory, 25, budget)
    first.stdout.readline()
    second.stdout.readline()
    store = stores.store(hot=None, cold=budget)
    for _ in range(6):
        check(store, range(50))
        assert du() <= budget
        time.sleep(0.1)
    first.kill()
    first.communicate()
    second.stdout.readline()
    for _ in range(20):
        second.stdout.readline()
    assert check(store, range(50)) > 0
    second.kill()
    second.communicate()
    (extra,) = chain(range(900_000, 900_016), [16])
    store.put(extra, {kind: record(extra, kind, SLIDING) for kind in ("kv", "window")}, SLIDING)
    assert store.flush(30)
    assert store._cold.holds(extra.name)
    stores.close(store)
    store = stores.store(hot=None, cold=budget)  # what was killed in mid-eviction is cleaned up at start
    assert store._cold.holds(extra.name)
    assert [] == store.verify()
    assert du() <= budget


def test_another_process_elsewhere_finds_the_blocks(stores, tmp_path):
    """B12: names depend on neither the working directory nor PYTHONHASHSEED."""
    script = (
        "import sys; from pathlib import Path; from tests.sequences import *\n"
        "from omlx.store.cold import ColdTier\n"
        "from omlx.store.store import BlockStore\n"
        "store = BlockStore(None, ColdTier(Path(sys.argv[1]), 2**24, min_free_bytes=0))\n"
        "blocks = chain(range(96), even(6))\n"
        "found = store.load(store.match(MODEL, as_tokens(range(100)), HYBRID), HYBRID).resume\n"
        "[store.put(block, records(block, HYBRID), HYBRID) for block in blocks]\n"
        "store.close(); print('resume', found)\n"
    )
    for seed, expected in (("1", "resume 0"), ("2", "resume 96"), ("3", "resume 96")):
        folder = tmp_path / seed
        folder.mkdir()
        done = subprocess.run(
            [sys.executable, "-c", script, str(stores.directory)],
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONHASHSEED": seed},
            cwd=folder,
            capture_output=True,
            text=True,
            check=True,
        )
        assert expected == done.stdout.splitlines()[-1]
