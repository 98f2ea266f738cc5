"""The benchmarks run from end to end over models that cost next to nothing."""

import json

from omlx.cli import main
from omlx.cli.overhead import _PARTS
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
