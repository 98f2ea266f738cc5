"""The benchmarks run from end to end over models that cost next to nothing."""

import json

import pytest

from omlx.cli import main
from omlx.cli.client import Reply
from omlx.cli.overhead import _PARTS
from omlx.cli.soak import counted, rise
from omlx.cli.speed import decoding_tps
from omlx.cli.wear import KINDS, Asked, _judge
from omlx.errors import OmlxError
from omlx.testing.thin import write_thin_model


def test_the_server_by_part(tmp_path, capsys):
    """`omlx bench server` tells every part of a first and a next turn, and the longest step of the event loop."""
    folder = write_thin_model(tmp_path / "model")
    given = ["bench", "server", "--model", str(folder), "--tokens", "4000", "--repeat", "1", "--json"]
    main([*given, "--most-ms", "1e9", "--least-ratio", "0"])
    found = json.loads(capsys.readouterr().out)
    assert ["first turn", "next turn"] == [turn["name"] for turn in found["turns"]]
    for turn in found["turns"]:
        assert set(_PARTS) == set(turn["ms"])
        assert turn["prompt_tokens"] >= 4000
        assert turn["ms"]["segment"] > 0 < turn["loop_busy_ms"]
    assert 1 == main([*given, "--most-ms", "0"])


def test_side_by_side_with_mlx_lm(tmp_path, capsys):
    """`omlx bench against` asks both servers the same, reads one length from both, and knows what each reused."""
    folder = write_thin_model(tmp_path / "model")
    given = ["bench", "against", "--model", str(folder), "--tokens", "900", "--json"]
    session = tmp_path / "session.json"
    session.write_text(json.dumps({"messages": [{"role": "user", "content": "What is in the log? " * 60}]}))
    assert 0 == main([*given, "--session", str(session)])
    rows = json.loads(capsys.readouterr().out)
    cases = ["cold", "same", "other tail", "edit at half", "back", "restarted"]
    assert [*(("five", case) for case in cases), ("session", "turn 1")] == [
        (row["session"], row["case"]) for row in rows
    ]
    assert 700 < min(row["prompt_tokens"] for row in rows) <= max(row["prompt_tokens"] for row in rows) <= 900
    assert all(row["prompt_tokens"] == row["other_prompt_tokens"] for row in rows)
    assert all(0 < row["other_ttft_s"] <= row["other_total_s"] for row in rows)
    [cold, same, _, edit, _, restarted, _] = rows
    assert cold["cached_tokens"] < 50 < edit["cached_tokens"] < same["cached_tokens"]
    assert restarted["cached_tokens"] > 700 > restarted["other_cached_tokens"]


def test_a_short_soak(capsys):
    """F8: after mixed requests of all kinds, given up and refused ones too, the server holds no more than before."""
    code = main(["bench", "soak", "--requests", "120", "--most-growth", "64MiB", "--json"])
    worn = json.loads(capsys.readouterr().out)
    assert [] == worn["trouble"]
    assert 0 == code
    assert 120 == sum(worn["kinds"].values())
    assert set(KINDS) >= set(worn["kinds"])
    assert {} == worn["left"]


def test_the_speed_of_several_while_all_decode():
    """From the first token of the last to begin to the first end; a piece of text may be more than one token."""

    def reply(first: float, pieces: int, tokens: int) -> Reply:
        came = tuple(first + number for number in range(pieces))
        return Reply("", 0.0, 0.0, {"completion_tokens": tokens}, came_s=came)

    # Both decode from 5 s to 8 s, one at 1 and one at 2 tokens per second.
    early, late = reply(0.0, 9, 9), reply(5.0, 9, 18)
    assert 3.0 == decoding_tps([early, late])
    with pytest.raises(OmlxError, match="at no time"):
        decoding_tps([early, reply(8.0, 3, 3)])


def test_what_is_left_behind_is_found():
    """Counts that must be nothing are found at any depth of /health, and a line that rises is measured."""
    health = {
        "running": 1,
        "models": [{"name": "a", "leases": 0}, {"name": "b", "leases": 3}],
        "cache": {"hot": {"pinned_blocks": 2, "blocks": 9}},
        "status": "ok",
    }
    assert [
        ("running", 1),
        ("models.0.leases", 0),
        ("models.1.leases", 3),
        ("cache.hot.pinned_blocks", 2),
    ] == list(counted(health))
    assert 40.0 == rise([(0, 5), (10, 25), (20, 45)])
    assert 0.0 == rise([(5, 7)])


def test_a_wrong_answer_is_found():
    """A status that the request should not get, a stream that breaks off and a body without an answer are told."""
    streamed = Asked("streamed", "/", {"stream": True})
    assert None is _judge(streamed, 200, b"data: {}\n\ndata: [DONE]\n\n")
    assert "without its end" in str(_judge(streamed, 200, b"data: {}\n\n"))
    assert "answered 500, not 404" in str(_judge(Asked("unknown model", "/", {}), 500, b"x"))
    assert "no answer" in str(_judge(Asked("whole", "/", {}), 200, b"{}"))
