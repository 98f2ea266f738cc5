"""Missing and damaged records: what is left is used, what is wrong is a miss, and nothing else is touched."""

import pytest

from tests.trust.talk import (
    BLOCK,
    EVERY_BLOCK,
    answer,
    block_files,
    small_server,
    statistics,
    tokens_of,
)

#: Eight whole blocks, and the token that is always computed.
PROMPT = tokens_of(1, 8 * BLOCK + 1)


@pytest.fixture(scope="module")
def cold(tmp_path_factory):
    """Return what computes a prompt's text by a server that knows nothing, once."""
    found: dict[tuple, str] = {}

    def text(folder, prompt=PROMPT) -> str:
        key = (folder, *prompt)
        if key not in found:
            with small_server(folder, tmp_path_factory.mktemp("cold"), stages=EVERY_BLOCK) as server:
                found[key] = answer(server, prompt)[0]
        return found[key]

    return text


@pytest.mark.parametrize("lost", [1, 5, 8])
def test_what_stands_before_a_lost_block_is_used(folder, tmp_path, cold, lost):
    """A3: without the files of one block the blocks before it are restored, and the block is written again."""
    cache, expected = tmp_path / "cache", cold(folder)
    with small_server(folder, cache, stages=EVERY_BLOCK) as server:
        answer(server, PROMPT)
    for file in block_files(cache):
        if file.range == ((lost - 1) * BLOCK, lost * BLOCK):
            file.path.unlink()
    with small_server(folder, cache, stages=EVERY_BLOCK) as server:
        assert (expected, (lost - 1) * BLOCK) == answer(server, PROMPT)
    with small_server(folder, cache, stages=EVERY_BLOCK) as server:
        assert (expected, 8 * BLOCK) == answer(server, PROMPT)


def test_a_flipped_file_is_a_miss_and_no_more(folder, tmp_path, cold):
    """A6: 64 flipped bytes cost what stands from there on: answers are the cold ones, the file is gone and counted."""
    cache, other = tmp_path / "cache", tokens_of(2, 3 * BLOCK)
    colds = [cold(folder), cold(folder, other)]
    with small_server(folder, cache, stages=EVERY_BLOCK) as server:
        answer(server, PROMPT)
    file = next(file for file in block_files(cache) if file.kind == "kv" and file.range[0] == 3 * BLOCK)
    content = bytearray(file.path.read_bytes())
    for at in range(len(content) - 128, len(content) - 64):
        content[at] ^= 0xFF
    file.path.write_bytes(content)
    with small_server(folder, cache, stages=EVERY_BLOCK) as server:
        assert (colds[0], 3 * BLOCK) == answer(server, PROMPT)
        assert (colds[1], 0) == answer(server, other)
        assert 1 == statistics(server)["cold"]["corrupt_records"]
    assert not file.path.exists()


@pytest.mark.parametrize("kept", [4, 0])
def test_keys_without_their_state_are_not_resumed(folder_of, tmp_path, cold, kept):
    """A10: where the states of the last blocks are gone a hybrid model resumes at the last state that is left."""
    folder, cache, prompt = folder_of("qwen3_5"), tmp_path / "cache", PROMPT[: 6 * BLOCK + 1]
    expected = cold(folder, prompt)
    with small_server(folder, cache, stages=EVERY_BLOCK) as server:
        answer(server, prompt)
    for file in block_files(cache):
        if file.kind == "state" and file.range[1] > kept * BLOCK:
            file.path.unlink()
    with small_server(folder, cache, stages=EVERY_BLOCK) as server:
        assert (expected, kept * BLOCK) == answer(server, prompt)
        assert (expected, 6 * BLOCK) == answer(server, prompt)
