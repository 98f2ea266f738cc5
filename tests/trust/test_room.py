"""Little room: heads of chains outlive their tails, and main conversations outlive what passes by."""

import json

import pytest

from tests.tiny import QWEN3
from tests.trust.talk import BLOCK, answer, prose, small_server, statistics, tokens_of

SYSTEM = tokens_of(1, 4 * BLOCK)


def block_bytes(folder, tmp_path) -> int:
    """Return what a whole block holds in RAM."""
    with small_server(folder, tmp_path / "measure", pipeline="ram_only") as server:
        answer(server, tokens_of(2, 20 * BLOCK + 1), max_tokens=1)
        hot = statistics(server)["hot"]
        return hot["bytes"] // hot["blocks"]


def test_a_long_conversation_keeps_its_head(folder, tmp_path):
    """B11: with room for twelve blocks thirty turns never start anew: the tail goes first, then what is before it."""
    room = 12 * block_bytes(folder, tmp_path)
    talk, cached = tokens_of(3, 31 * BLOCK), []
    with small_server(folder, tmp_path / "small", pipeline="ram_only", hot=room) as server:
        for turn in range(1, 31):
            cached.append(answer(server, talk[: turn * BLOCK + 1], max_tokens=1)[1])
            assert statistics(server)["hot"]["bytes"] <= room
    assert [0, *(turn * BLOCK + 1 for turn in range(1, 10))] == cached[:10]
    assert min(cached[10:]) >= 8 * BLOCK


def test_what_passes_by_does_not_push_out_the_conversation(folder, kind, tmp_path):
    """C10: short prompts and sub-agents between its turns leave the main chat its blocks, and share its head."""
    # each prompt of a hybrid model holds a state, too, as large as a block and more
    room = (28 if kind == "hybrid" else 20) * block_bytes(folder, tmp_path)
    main = [*SYSTEM, *tokens_of(4, 12 * BLOCK)]
    with small_server(folder, tmp_path / "small", pipeline="ram_only", hot=room) as server:
        answer(server, [*SYSTEM, 7], max_tokens=1)
        answer(server, main[: 11 * BLOCK + 1], max_tokens=1)
        for turn in range(4):
            length = 12 * BLOCK + turn * BLOCK // 4 + 1
            assert answer(server, main[:length], max_tokens=1)[1] >= 11 * BLOCK
            for number in range(10):
                answer(server, tokens_of(100 * turn + number + 50, 20), max_tokens=1)
            for number in range(3):
                agent = [*SYSTEM, *tokens_of(1000 + 10 * turn + number, BLOCK)]
                cached = answer(server, agent, max_tokens=1)[1]
                assert cached >= 4 * BLOCK or (kind == "hybrid" and turn == 0)


def test_a_summary_leaves_the_old_branch_and_shares_the_system_prompt(folder, tmp_path):
    """C11: after a compaction the new chat hits the system prompt, and the old one is still there."""
    talk = [*SYSTEM, *tokens_of(4, 26 * BLOCK)]
    with small_server(folder, tmp_path) as server:
        answer(server, [*SYSTEM, 7], max_tokens=1)
        answer(server, talk)
        assert 0 == answer(server, [*tokens_of(5, BLOCK), *talk[4 * BLOCK :]])[1]
        assert 4 * BLOCK == answer(server, [*SYSTEM, *tokens_of(6, 2 * BLOCK)])[1]
        assert len(talk) - 1 == answer(server, talk)[1]


def test_short_turns_are_reused_to_the_token(folder, tmp_path):
    """C14: over twelve turns of less than half a block each reuses the whole prompt before it."""
    talk, step = tokens_of(7, 40 * BLOCK), int(0.4 * BLOCK)
    with small_server(folder, tmp_path) as server:
        lengths = [BLOCK + turn * step for turn in range(13)]
        cached = [answer(server, talk[:length], max_tokens=1)[1] for length in lengths]
    assert [0, *lengths[:-1]] == cached


def test_two_chats_share_a_system_prompt_that_ends_inside_a_block(folder_of, tmp_path):
    """C14: a second chat with the same system prompt of one and a half blocks reuses all of it."""
    for family in ("llama", "gemma3"):
        with small_server(folder_of(family), tmp_path / family) as server:
            system = tokens_of(8, 3 * BLOCK // 2)
            answer(server, [*system, *tokens_of(9, 20)])
            assert len(system) == answer(server, [*system, *tokens_of(10, 20)])[1]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("options", [None, False, True])
@pytest.mark.parametrize("tools", [False, True])
def test_every_kind_of_call_is_stored(thinking_server, stream, options, tools):
    """C13: streamed or not, with template options and tools or without, the second call hits."""
    tool = {
        "type": "function",
        "function": {"name": "read", "parameters": {"type": "object", "properties": {}}},
    }
    seed = 8 * stream + 4 * tools + (2 if options is None else int(options))
    body = {"messages": [{"role": "user", "content": prose(seed, 60)}], "temperature": 0, "max_tokens": 4}
    body |= {"tools": [tool]} if tools else {}
    body |= {} if options is None else {"chat_template_kwargs": {"enable_thinking": options}}
    body |= {"stream": True, "stream_options": {"include_usage": True}} if stream else {}
    first, second = (_usage(thinking_server, body) for _ in range(2))
    assert first["prompt_tokens"] - 1 == second["prompt_tokens_details"]["cached_tokens"]
    assert 50 >= first["prompt_tokens_details"]["cached_tokens"]


@pytest.fixture(scope="module")
def thinking_server(folder_of, tmp_path_factory):
    """Return a server whose template knows whether to think."""
    with small_server(folder_of("llama", template=QWEN3), tmp_path_factory.mktemp("thinking")) as server:
        yield server


def _usage(server, body: dict) -> dict:
    """Return the usage of a chat completion, streamed or not."""
    reply = server.http.post("/v1/chat/completions", json=body)
    assert 200 == reply.status_code, reply.text
    if not body.get("stream"):
        return reply.json()["usage"]
    chunks = [json.loads(line[6:]) for line in reply.text.splitlines() if line.startswith("data: {")]
    return chunks[-1]["usage"]


def test_a_picture_is_refused_by_name(thinking_server):
    """A12: a part that is no text is a 400 that names it: never dropped, never answered from another's blocks."""
    parts = [
        {"type": "text", "text": "what is this"},
        {"type": "image_url", "image_url": {"url": "https://example.org/1.png"}},
    ]
    body = {"messages": [{"role": "user", "content": parts}]}
    reply = thinking_server.http.post("/v1/chat/completions", json=body)
    assert 400 == reply.status_code
    assert "messages[0].content[1]" == reply.json()["error"]["param"]
