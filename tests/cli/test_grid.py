"""bench grid: what it costs that chunks end where messages do."""

import json

import pytest

from omlx.cli import main
from tests.tiny_models import make_model


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Return the folder of a tiny model."""
    return make_model(tmp_path_factory.mktemp("grid") / "model", "llama")


def test_a_chat_is_computed_both_ways(folder, capsys):
    """The same chat is cut at its messages or in chunks of one size, run by run; the ratios are of these pairs."""
    arguments = ["bench", "grid", "--model", str(folder), "--tokens", "600", "--messages", "6", "--runs", "2"]
    assert 0 == main([*arguments, "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["grid_chunks"] > found["free_chunks"] >= found["prompt_tokens"] // 512
    assert 2 == len(found["grid_s"]) == len(found["free_s"]) == len(found["ratios"])
    assert all(ratio > 0 for ratio in found["ratios"])


def test_the_cost_is_said_in_a_few_lines(folder, capsys):
    """Without --json the two ways stand under each other, with the ratio."""
    arguments = ["bench", "grid", "--model", str(folder), "--tokens", "300", "--messages", "4", "--runs", "1"]
    assert 0 == main(arguments)
    assert "ratio: median" in capsys.readouterr().out
