"""Sessions for the benchmarks are what was recorded, and keep their prefixes when they are cut or stretched."""

import json
from itertools import pairwise

import pytest

from omlx.cli.sessions import chat_body, lengthened, made_session, num_tokens, read_session, shortened
from omlx.errors import UsageError
from omlx.server.dialects import read_request
from omlx.testing import ByteTokenizer
from tests.serving import TRACES

TOKENIZER = ByteTokenizer()


@pytest.mark.parametrize("agent", ["claude", "openclaw", "codex", "pi"])
def test_a_recorded_session_survives_as_chat_bodies(agent):
    """Every conversation, of any dialect, is read back from its chat body as it was, calls and results included."""
    session = read_session(str(TRACES / f"{agent}.jsonl.gz"))
    for prompt in session:
        raw = json.dumps(chat_body(prompt)).encode()
        again = read_request(raw, "/v1/chat/completions")[1].prompt
        assert TOKENIZER.render(prompt) == TOKENIZER.render(again)


def test_a_session_is_cut_alike_in_every_turn():
    """Cut to a length, the last turn fits, and each turn still begins with the one before."""
    session = read_session(str(TRACES / "pi.jsonl.gz"))[:4]
    room = num_tokens(session[-1], TOKENIZER) - 1_000
    cut = shortened(session, TOKENIZER, room)
    texts = [TOKENIZER.render(prompt, add_generation_prompt=False) for prompt in cut]
    assert room - 100 < num_tokens(cut[-1], TOKENIZER) <= room
    assert all(later.startswith(text) for text, later in pairwise(texts))
    with pytest.raises(UsageError, match="does not fit"):
        shortened(session, TOKENIZER, 100)


def test_a_conversation_is_stretched():
    """Stretched to a length, it has that length and one head."""
    [*_, prompt] = made_session(2)
    longer = lengthened(prompt, TOKENIZER, 60_000)
    assert num_tokens(longer, TOKENIZER) >= 60_000
    assert 1 == sum(message.role == "system" for message in longer.messages)
