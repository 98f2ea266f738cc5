"""The tier on disk: budget, clean-up, trouble, privacy."""

import errno
import logging
import os
import shutil
import sqlite3
import subprocess
import time
from contextlib import closing, suppress
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from omlx.errors import CacheError, ConfigError
from omlx.store import rows
from omlx.store.disk import DATABASE, filename_of, write_file
from omlx.store.schema import SCHEMA_VERSION, encode_row
from omlx.store.volume import Allowance
from tests.sequences import FULL, HYBRID, MODEL, OTHER_MODEL, branch, chain, even, record, records, wide

MIB = 1024**2
BIG = wide(512)  # 8 KiB per token: 128 KiB per block of 16
BIG_BYTES = 16 * 2 * 2 * 512 * 4


def write(tier, blocks, layout=FULL):
    """Write blocks in order."""
    return [tier.write(block, records(block, layout), layout.window_tokens()) for block in blocks]


def files(directory: Path):
    """Return all files of ours."""
    return sorted(path for path in directory.rglob("*.omlx.*") if path.is_file())


def file_of(tier, block, kind="kv"):
    """Return the file of a record."""
    return tier.directory / tier._table.ledger.records(block.name)[kind].filename


def test_records_come_back(stores):
    """B12: what one process wrote, the next one reads, bit for bit."""
    tier = stores.cold()
    blocks = chain(range(48), even(3))
    assert [True] * 3 == write(tier, blocks, HYBRID)
    stores.close(tier)
    tier = stores.cold()
    for block in blocks:
        assert {"kv", "state"} == set(tier.kinds(block.name))
        assert block == tier.block(block.name)
        for kind in ("kv", "state"):
            expected, found = record(block, kind, HYBRID), tier.read(block.name, kind)
            assert {n: a.tobytes() for n, a in expected.buffers.items()} == {
                n: a.tobytes() for n, a in found.buffers.items()
            }
    assert [] == tier.verify()


def test_writing_again_writes_nothing(stores):
    """B15: a record that is on disk is not written again; another kind of the same block is added to it."""
    tier = stores.cold()
    (block,) = chain(range(16), [16])
    tier.write(block, records(block, HYBRID, ["kv"]), 0)
    written = tier.stats().written_bytes
    tier.write(block, records(block, HYBRID, ["kv"]), 0)
    assert written == tier.stats().written_bytes
    tier.write(block, records(block, HYBRID), 0)
    assert (2, 2) == (tier.stats().written_records, tier.stats().records)


def test_a_block_needs_its_parent(stores):
    """B6: a block whose parent is not on disk is refused: it could never be found."""
    tier = stores.cold()
    blocks = chain(range(32), even(2))
    assert not tier.write(blocks[1], records(blocks[1], FULL), 0)
    assert [True, True] == write(tier, blocks)


def test_nothing_goes_for_a_block_that_is_refused(stores):
    """A block without its parent takes no room from others."""
    tier = stores.cold(4 * MIB)
    for start in range(0, 4000, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
    before = tier.stats()
    assert [False] == write(tier, chain(range(9000, 9032), even(2))[1:], BIG)
    assert (before.evicted_records, before.bytes) == (tier.stats().evicted_records, tier.stats().bytes)


def test_a_failed_transaction_is_rolled_back_in_memory(stores):
    """When the table fails after rows were deleted, what is in memory equals the table again."""
    tier = stores.cold(4 * MIB)
    for start in range(0, 4000, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
    held = tier.stats().records
    with closing(sqlite3.connect(stores.directory / DATABASE)) as table, table:
        table.execute(
            "CREATE TRIGGER fault BEFORE INSERT ON Cache WHEN hex(NEW.key) LIKE '72%' "
            "BEGIN SELECT RAISE(FAIL, 'no reservations today'); END"
        )
    assert [False] == write(tier, chain(range(9000, 9128), [128]), BIG)
    assert "no reservations today" in tier.stats().suspended
    assert held == tier.stats().records
    assert not [problem for problem in tier.verify() if problem.startswith("sizes")]
    with closing(sqlite3.connect(stores.directory / DATABASE)) as table, table:
        table.execute("DROP TRIGGER fault")
    time.sleep(0.25)
    assert [True] == write(tier, chain(range(9000, 9016), [16]), BIG)


@pytest.mark.parametrize("at", [0, 1])
def test_a_cache_cleared_while_a_block_is_written(stores, monkeypatch, at):
    """B16: another process clears the cache between reservation and commit: refused, nothing stays."""
    tier, other = stores.cold(), stores.cold()
    blocks = chain(range(32), even(2))
    write(tier, blocks[:at])

    def interrupted(*arguments):
        size = write_file(*arguments)
        other.clear()
        return size

    monkeypatch.setattr("omlx.store.cold.write_file", interrupted)
    assert [False] == write(tier, blocks[at : at + 1])
    assert [] == files(stores.directory)
    monkeypatch.undo()
    assert [True, True] == write(tier, blocks)
    assert [] == tier.verify()


def test_a_failed_write_leaves_nothing_behind(stores, monkeypatch):
    """A write that fails after its file is in place takes file and reservation back."""
    tier = stores.cold()

    def failing(*arguments):
        write_file(*arguments)
        raise OSError(errno.EIO, "bad sector")

    monkeypatch.setattr("omlx.store.cold.write_file", failing)
    assert [False] == write(tier, chain(range(16), [16]))
    assert "bad sector" in tier.stats().suspended
    tier.refresh()
    assert [] == files(stores.directory)
    assert {} == tier._table.ledger.reservations()


def test_reservations_hold_while_their_process_lives(stores):
    """B16: a file that another writer is about to announce is left alone; one of a dead process is not."""
    tier = stores.cold()
    (block,) = chain(range(16), [16])
    stems = ["a" * 32, "b" * 32]
    kept = tier._table.reserve(block, stems[:1], 4096, set())
    tier._table._active.clear()
    paths = [stores.directory / filename_of(stem) for stem in stems]
    for path in paths:
        path.write_bytes(b"x")
        os.utime(path, (1, 1))
    other = stores.cold()
    assert [True, False] == [path.exists() for path in paths]
    assert kept in other._table.ledger.reservations()
    gone = msgspec.structs.replace(other._table.ledger.reservations()[kept][0], pid=2**22 + 1)
    with closing(sqlite3.connect(stores.directory / DATABASE)) as table, table:
        table.execute("UPDATE Cache SET value = ? WHERE key = ?", (encode_row(gone), kept))
    last = stores.cold()
    assert not paths[0].exists()
    assert {} == last._table.ledger.reservations()


def test_block_without_records_is_kept_as_a_bridge(stores):
    """A block without records keeps a row, so that what continues it is found after a restart."""
    tier = stores.cold()
    blocks = chain(range(32), even(2))
    assert tier.write(blocks[0], {}, 0)
    assert tier.write(blocks[1], records(blocks[1], FULL), 0)
    stores.close(tier)
    assert {b.name for b in blocks} == {b.name for b in stores.cold().blocks()}


def test_budget_holds_while_writing(stores, du):
    """B13: at no time does the directory take more than the budget, as `du` counts; stats agree."""
    budget = 4 * MIB
    tier = stores.cold(budget)
    for start in range(0, 4000, 100):
        write(tier, chain(range(start, start + 32), even(2)), BIG)
        assert du() <= budget
    assert tier.stats().evicted_records > 0
    assert abs(tier.stats().bytes - du()) <= 0.01 * du()
    assert tier.stats().bytes > budget * 0.7
    assert [] == tier.verify()


def test_a_log_that_grew_while_others_read_is_shrunk(stores, du):
    """The log takes part of the budget; when it has grown to take it all, it makes way."""
    budget = MIB + 256 * 1024
    tier = stores.cold(budget)
    numbers = iter(range(0, 16_000_000, 1000))
    with closing(rows.connect(tier.directory, "ro")) as reader:
        reader.execute("BEGIN")
        reader.execute("SELECT COUNT(*) FROM Cache").fetchall()
        while all(write(tier, chain(range(at := next(numbers), at + 16), [16]))):
            pass
    assert tier.stats().refused_records == 1
    others = [chain(range(at, at + 16), [16])[0] for at in range(5, 100_000, 20_000)]
    assert [True] * 5 == write(tier, others)
    assert du() <= budget


def test_budget_counts_what_was_there_at_start(stores, du):
    """B1: a directory filled by an earlier run counts from the first write on."""
    budget = 4 * MIB
    tier = stores.cold(budget)
    for start in range(0, 2500, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
    stores.close(tier)
    tier = stores.cold(budget)
    assert tier.stats().bytes > 2 * MIB
    for start in range(5000, 6500, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
        assert du() <= budget
    assert abs(tier.stats().bytes - du()) <= 0.01 * du()


def test_smaller_budget_holds_right_after_start(stores, du):
    """B1: with a smaller budget than the directory is full, start brings it down before anything else."""
    tier = stores.cold(8 * MIB)
    blocks = chain(range(40 * 16), even(40))
    write(tier, blocks, BIG)
    assert du() > 4 * MIB
    stores.close(tier)
    tier = stores.cold(3 * MIB)
    assert du() <= 3 * MIB
    kept = [tier.holds(b.name) for b in blocks]
    assert kept == sorted(kept, reverse=True), "heads stay, tails go"
    assert 10 < sum(kept) < 25
    assert [] == tier.verify()


def test_all_models_share_the_budget(stores, du):
    """B2: another model's blocks count, and the least recently used go first, whosever they are."""
    budget = 6 * MIB
    tier = stores.cold(budget)
    ours = [chain(range(s, s + 16), [16]) for s in range(0, 3000, 100)]
    theirs = [chain(range(s, s + 16), [16], OTHER_MODEL) for s in range(0, 3000, 100)]
    for blocks in (*ours, *theirs):
        write(tier, blocks, BIG)
        assert du() <= budget
    assert all(tier.holds(b.name) for (b,) in theirs)
    left = [tier.holds(b.name) for (b,) in ours]
    assert left == sorted(left), "the oldest went first"
    assert 0 < sum(left) < len(left)


def test_uses_survive_a_restart(stores):
    """What was used last, and again, before a restart is evicted last after it."""
    tier = stores.cold(4 * MIB)
    blocks = [chain(range(s, s + 16), [16])[0] for s in range(0, 800, 100)]
    write(tier, blocks, BIG)
    tier.touch([blocks[0].name])
    stores.close(tier)
    tier = stores.cold(4 * MIB)
    for start in range(5000, 9000, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
    assert [True] + [False] * 7 == [tier.holds(b.name) for b in blocks]


def test_giant_prompt_does_not_flush_the_disk(stores):
    """A prompt larger than the budget leaves what was used again; what does not fit of it is its tail."""
    tier = stores.cold(4 * MIB)
    used = [chain(range(s, s + 16), [16])[0] for s in range(0, 800, 100)]
    write(tier, used, BIG)
    tier.touch([b.name for b in used])
    giant = chain(range(10000, 10000 + 60 * 16), even(60))
    stored = write(tier, giant, BIG)
    assert all(tier.holds(b.name) for b in used)
    assert stored == sorted(stored, reverse=True)
    assert stored == [tier.holds(b.name) for b in giant]
    assert 10 < sum(stored) < 30
    assert [] == tier.verify()


def test_old_window_records_leave_the_block(stores):
    """A block that loses a record keeps the others, and its place in the chain."""
    tier = stores.cold(3 * MIB)
    layout = msgspec.structs.replace(
        BIG, groups=(*BIG.groups, msgspec.structs.replace(wide(512).groups[0], kind="window", window=32))
    )
    layout.groups[1].tensors  # noqa: B018
    blocks = chain(range(12 * 16), even(12))
    for block in blocks:
        kv = record(block, "kv", BIG)
        window = type(kv)("window", kv.buffers, None)
        tier.write(block, {"kv": kv, "window": window}, 32)
    assert all("kv" in tier.kinds(b.name) for b in blocks[:10])
    assert "window" not in tier.kinds(blocks[0].name)
    assert [] == tier.verify()


def test_a_free_space_floor_stays(stores):
    """B4: the volume keeps its floor of free bytes, whatever the budget; the cache stops, then gives way."""
    free = [3 * MIB]
    taken = {}

    def measure(directory: Path) -> int:
        now = sum(path.stat().st_size for path in files(directory))
        taken.setdefault("start", now)
        return free[0] - (now - taken["start"])

    tier = stores.cold(100 * MIB, min_free_bytes=MIB, free=measure, max_share=1.0)
    for start in range(0, 3000, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
        assert measure(stores.directory) >= MIB
    assert tier.stats().records > 8
    before = tier.stats().bytes
    free[0] -= MIB
    write(tier, chain(range(9000, 9016), [16]), BIG)
    assert tier.stats().bytes <= before - MIB * 0.8


def test_share_of_free_space_is_kept(stores):
    """B4: without a sensible budget, the cache takes no more than its share of what is free."""
    total = 8 * MIB

    def measure(directory: Path) -> int:
        return total - sum(path.stat().st_size for path in files(directory))

    tier = stores.cold(10**15, max_share=0.5, free=measure)
    for start in range(0, 6000, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
        assert tier.stats().bytes <= 0.5 * (tier.stats().bytes + measure(stores.directory))
    assert tier.stats().bytes > 3 * MIB


def test_allowance_arithmetic():
    """The tightest of budget, share and floor decides how much must go."""
    allowance = Allowance(budget_bytes=100, max_share=0.5, min_free_bytes=20)
    assert 0 == allowance.excess(ours=50, free=200, need=50)
    assert 10 == allowance.excess(ours=60, free=200, need=50)
    assert 25 == allowance.excess(ours=50, free=50, need=25)
    assert 10 == Allowance(1000, 1.0, 20).excess(ours=5, free=60, need=50)


def test_leftovers_of_a_crash_are_cleaned_up(stores, du):
    """B8: old temporary and unannounced files of ours go, young ones are counted, others are left alone.

    One line.
    """
    tier = stores.cold()
    write(tier, chain(range(16), [16]))
    stores.close(tier)
    folder = stores.directory / "a"
    old = [folder / ("0" * 31 + ".omlx.tmp"), folder / ("1" * 31 + ".omlx.safetensors")]
    young = [folder / ("2" * 31 + ".omlx.tmp")]
    foreign = [stores.directory / "notes.txt", stores.directory / "x.tmp", folder / "model.safetensors"]
    for path in (*old, *young, *foreign):
        path.write_bytes(b"x" * 100_000)
    for path in (*old, *foreign):
        os.utime(path, (1, 1))
    with capture_logs() as lines:
        tier = stores.cold()
    assert [False, False] == [path.exists() for path in old]
    assert all(path.exists() for path in (*young, *foreign))
    assert abs(tier.stats().bytes - du()) <= 0.01 * du()
    (line,) = [line for line in lines if line["event"] == "cache directory"]
    assert (2, 4, 1) == (line["removed_files"], line["other_files"], line["blocks"])
    assert 1 == len(lines)


def test_empty_and_truncated_files_are_misses(stores):
    """B8: a file of 0 bytes, and a cut one, are found out when they are read, dropped, and counted."""
    tier = stores.cold()
    blocks = [chain(range(s, s + 16), [16])[0] for s in (0, 100)]
    write(tier, blocks[:1])
    file_of(tier, blocks[0]).write_bytes(b"")
    write(tier, blocks[1:])
    os.truncate(file_of(tier, blocks[1]), 500)
    for block in blocks:
        with pytest.raises(CacheError):
            tier.read(block.name, "kv")
        assert () == tier.kinds(block.name)
    assert (2, 0) == (tier.stats().corrupt_records, tier.stats().records)
    assert [] == files(stores.directory)
    assert [] == tier.verify()


def test_deleted_file_is_a_miss(stores):
    """A file that somebody deleted is a miss, its row goes, at the next start at the latest."""
    tier = stores.cold()
    blocks = chain(range(32), even(2))
    write(tier, blocks)
    file_of(tier, blocks[1]).unlink()
    with pytest.raises(CacheError, match="lost its file"):
        tier.read(blocks[1].name, "kv")
    assert 1 == tier.stats().missing_records
    files(stores.directory)[0].unlink()
    stores.close(tier)
    tier = stores.cold()
    assert 0 == tier.stats().records
    assert [] == tier.verify()


def test_rows_of_other_versions_are_left_alone(stores):
    """A row of a newer schema is a miss, is not deleted, counts, and is evicted only when room is needed."""
    tier = stores.cold(4 * MIB)
    (block,) = chain(range(16), [16])
    write(tier, [block], BIG)
    stores.close(tier)
    with closing(sqlite3.connect(stores.directory / DATABASE)) as table, table:
        for rowid, value in table.execute("SELECT rowid, value FROM Cache").fetchall():
            version, body = msgspec.msgpack.decode(value)
            newer = msgspec.msgpack.encode([version + 1, body])
            table.execute("UPDATE Cache SET value = ? WHERE rowid = ?", (newer, rowid))
    tier = stores.cold(4 * MIB)
    assert SCHEMA_VERSION == version
    assert not tier.holds(block.name)
    assert 1 == len(files(stores.directory))
    assert tier.stats().bytes > BIG_BYTES
    for start in range(1000, 5000, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
    stores.close(tier)
    keys = [row.key[:20] for row in rows.Rows(stores.directory).changes().added]
    assert block.name in keys or tier.stats().evicted_records > 0


def test_damaged_table_starts_empty(stores):
    """A table that is no database is replaced; the files it knew are cleaned up like those of a crash."""
    tier = stores.cold()
    write(tier, chain(range(16), [16]))
    stores.close(tier)
    (stores.directory / DATABASE).write_bytes(b"not a database, but long enough to look like one" * 100)
    tier = stores.cold(grace_s=-1)
    assert 0 == tier.stats().blocks
    assert [] == files(stores.directory)
    assert [True] == write(tier, chain(range(16), [16]))


def test_unusable_directory_is_an_error_at_start(tmp_path, stores):
    """B19: a directory that cannot be made is an error that names it and the key, not silence."""
    (tmp_path / "cache").write_text("a file in the way")
    with pytest.raises(ConfigError, match=r"cache.*\[cache\] directory"):
        stores.cold()


def test_removed_directory_gives_misses_then_recovers(stores):
    """B5: the directory is removed while in use: reads miss, and writing goes on in a new one."""
    tier = stores.cold()
    blocks = chain(range(32), even(2))
    write(tier, blocks)
    shutil.rmtree(stores.directory)
    with pytest.raises(CacheError):
        tier.read(blocks[0].name, "kv")
    tier.refresh()
    write(tier, blocks)
    time.sleep(0.25)
    assert [True, True] == write(tier, blocks)
    assert tier.stats().suspended is None
    assert tier.read(blocks[1].name, "kv") is not None
    assert [] == tier.verify()


def test_directory_is_not_made_on_another_device(tmp_path, stores):
    """B5: when the drive is gone, its mount point is not filled in its stead.

    When it is back, writing goes on.
    """
    tier = stores.cold()
    (block,) = chain(range(16), [16])
    write(tier, [block])
    tier._device += 1
    moved = tmp_path / "drive"
    stores.directory.rename(moved)
    assert [False] == write(tier, chain(range(100, 116), [16]))
    assert "not mounted" in tier.stats().suspended
    assert not stores.directory.exists()
    moved.rename(stores.directory)
    time.sleep(0.25)
    assert [True] == write(tier, chain(range(100, 116), [16]))


@pytest.fixture
def small_volume(tmp_path):
    """A volume of 6 MiB of its own, where the system lets us mount one."""
    target = tmp_path / "cache"
    target.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=6m", "tmpfs", str(target)]
    if shutil.which("mount") is None or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("mounting a tmpfs needs root on Linux")
    yield target
    subprocess.run(["umount", "-l", str(target)], check=True)


def test_full_volume_evicts_and_goes_on(small_volume, stores):
    """B5: a volume fills before the budget is reached: older blocks go, newer ones are written."""
    tier = stores.cold(100 * MIB, max_share=1.0)
    stored = [write(tier, chain(range(s, s + 16), [16]), BIG) for s in range(0, 8000, 100)]
    assert all(stored)
    assert tier.stats().evicted_records > 30
    assert tier.stats().suspended is None
    assert [] == tier.verify()


def test_volume_that_is_smaller_than_it_says(small_volume, stores):
    """B5: the volume is full though it said it was not: older blocks go, and the write is tried again."""
    tier = stores.cold(100 * MIB, max_share=1.0, free=lambda _: 10**9)
    stored = [write(tier, chain(range(s, s + 16), [16]), BIG) for s in range(0, 8000, 100)]
    assert all(stored)
    assert [[True]] * 80 == stored
    assert tier.stats().evicted_records > 30
    assert [] == tier.verify()


def test_volume_filled_by_others_suspends_and_recovers(small_volume, stores):
    """B5: somebody else fills the volume: writing is suspended, visibly, until space returns."""
    tier = stores.cold(100 * MIB, max_share=1.0, free=lambda _: 10**9)
    (first,) = chain(range(16), [16])
    write(tier, [first], BIG)
    film = small_volume / "film.bin"
    with film.open("wb", buffering=0) as file, suppress(OSError):
        while file.write(bytes(4096)):
            pass
    shown = []
    for start in range(1000, 1500, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
        shown.append(tier.stats().suspended)
    assert any("space" in (reason or "") or "full" in (reason or "") for reason in shown)
    assert not list(small_volume.rglob("*.omlx.tmp"))
    film.unlink()
    assert {} == tier._table.ledger.reservations()
    time.sleep(0.25)
    assert [True] == write(tier, chain(range(2000, 2016), [16]), BIG)
    assert tier.stats().suspended is None
    assert [] == tier.verify()


def test_private_at_rest(stores):
    """B20: under umask 022 the directory is 0700, also when it was there before, and every file 0600."""
    old = os.umask(0o022)
    try:
        stores.directory.mkdir(mode=0o755)
        tier = stores.cold()
        write(tier, chain(range(32), even(2)))
        assert 0o700 == stores.directory.stat().st_mode & 0o777
        for path in stores.directory.rglob("*"):
            assert path.stat().st_mode & 0o077 == 0, path
    finally:
        os.umask(old)


def test_prompt_is_not_in_the_clear(stores):
    """B20: neither the text of a prompt nor its token ids as they are can be found by searching the files."""
    tier = stores.cold()
    secret = list(b"my password is hunter2, do not tell")
    (block,) = chain(secret, [len(secret)])
    layout = HYBRID
    write(tier, [block], layout)
    stores.close(tier)
    data = b"".join(path.read_bytes() for path in stores.directory.rglob("*") if path.is_file())
    assert b"hunter2" not in data
    assert block.token_bytes not in data


def test_clear_leaves_no_file(stores):
    """B20: clearing all leaves no block file; clearing one model leaves the other's."""
    tier = stores.cold()
    ours, theirs = chain(range(48), even(3)), chain(range(48), even(3), OTHER_MODEL)
    write(tier, [*ours, *theirs])
    (stores.directory / "a" / ("0" * 31 + ".omlx.tmp")).write_bytes(b"left over")
    assert 3 == tier.clear(MODEL)
    assert [] == [b for b in ours if tier.holds(b.name)]
    assert all(tier.holds(b.name) for b in theirs)
    assert 3 == tier.clear()
    assert [] == files(stores.directory)
    assert [] == tier.verify()


def test_scan_changes_nothing(stores):
    """The tracer's scan reads a cache that is closed, in use, or left by a crash, and changes no file."""

    def state():
        return {
            path: (path.stat().st_size, path.stat().st_mtime_ns)
            for path in stores.directory.rglob("*")
            if path.is_file()
        }

    assert [] == list(rows.scan(stores.directory))
    tier = stores.cold()
    blocks = chain(range(32), even(2))
    write(tier, blocks)
    before = state()
    assert 4 == len(list(rows.scan(stores.directory)))
    crashed = stores.directory.with_name("crashed")
    shutil.copytree(stores.directory, crashed)
    (crashed / f"{DATABASE}-shm").unlink()
    assert 4 == len(list(rows.scan(crashed)))
    assert not (crashed / f"{DATABASE}-shm").exists()
    assert before == state()
    stores.close(tier)
    before = state()
    assert 4 == len(list(rows.scan(stores.directory)))
    assert before == state()


def test_branches_are_children_of_the_block_they_leave(stores):
    """A block that begins inside another is kept with it: neither is evicted before what continues it."""
    tier = stores.cold(3 * MIB)
    stored = chain(range(64), even(4))
    write(tier, stored, BIG)
    fork = branch([*range(24), *range(500, 540)], 24, [40, 56], stored[1])
    write(tier, fork, BIG)
    for start in range(1000, 4000, 100):
        write(tier, chain(range(start, start + 16), [16]), BIG)
        assert [] == tier.verify()


def test_trouble_is_logged_once(stores, caplog):
    """A write that fails again for the same reason does not fill the log."""
    caplog.set_level(logging.DEBUG)
    tier = stores.cold(retry_s=0.0)
    tier._device += 1
    shutil.rmtree(stores.directory)
    with capture_logs() as lines:
        for start in range(0, 300, 100):
            write(tier, chain(range(start, start + 16), [16]))
    assert 1 == sum(line["event"] == "cache writes suspended" for line in lines)
