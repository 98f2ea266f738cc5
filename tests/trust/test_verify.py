"""`omlx verify`: the contract holds for every family of caches, and a broken one is found."""

import json
import os
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from omlx.cli import main
from omlx.config.settings import ModelSettings, Settings
from omlx.runtime.bare import BareChain
from omlx.runtime.verify import BOUND, Extent, Run, Tally, tips, verify
from omlx.types import as_tokens
from tests.serving import REPOSITORY
from tests.tiny_models import CONFIGS

GRID = {"chunk_tokens": 64}
EXTENT = Extent(triples=2, tokens=180, answer=2)
#: Enough tokens for a median where single ones may jump.
WIDER = Extent(triples=2, tokens=240, answer=3)


def reported(folder: Path, scratch: Path, *, extent: Extent = EXTENT, **prefill):
    """Return the report on a model."""
    model = ModelSettings(path=str(folder), stages={"prefill": {**GRID, **prefill}})
    with closing(BareChain(Settings(models={"m": model}), "m", Path(REPOSITORY), record=True)) as chain:
        return verify(chain, scratch, extent)


@pytest.mark.parametrize("family", CONFIGS)
def test_every_family_keeps_the_contract(folder_of, tmp_path, family):
    """On the grid every bit is that of a cold run, from RAM, from disk and after a restart; elsewhere rounding is."""
    report = reported(folder_of(family), tmp_path)
    places = [(tier, place) for tier in ("hot", "cold", "restarted") for place in ("grid", "between")]
    assert places == [(row.tier, row.place) for row in report.rows]
    assert report.kept
    assert {0.0} == {row.largest for row in report.rows if row.place == "grid"}
    assert max(row.median if report.tips else row.largest for row in report.rows) <= BOUND
    assert 1.0 == min(row.reused for row in report.rows if row.tier != "hot")
    assert 0 == sum(row.differing for row in report.rows)


@pytest.mark.parametrize("bits", [8, 4])
def test_quantized_keys_and_values_keep_the_contract(folder_of, tmp_path, bits):
    """Quantized, the same holds, with what quantization itself may tip."""
    report = reported(
        folder_of("llama", hidden_size=128), tmp_path, extent=WIDER, kv_bits=bits, kv_group_size=32
    )
    assert report.kept
    assert report.tips
    assert {0.0} == {row.largest for row in report.rows if row.place == "grid"}


def test_an_exact_pipeline_has_no_bound(folder_of, tmp_path):
    """Behind `exact` every difference breaks the contract, wherever a run was resumed."""
    report = reported(folder_of("qwen3_5"), tmp_path, exact=True)
    assert report.exact
    assert {0.0} == {row.bound for row in report.rows} == {row.largest for row in report.rows}


def test_differences_are_counted_as_far_as_both_ran_the_same_tokens():
    """After the first token of an answer that differs there is nothing to compare; the token is named."""
    cold = Run(0, np.zeros((8, 2), np.float32), as_tokens([5, 6, 7]))
    found = Run(2, np.zeros((6, 2), np.float32), as_tokens([5, 9, 7]))
    found.logits[3, 1] = 0.5
    found.logits[5] = 9.0
    tally = Tally()
    tally.add(found, cold, 4)
    assert ([1], 0.5, 5) == (tally.differing, tally.largest, len(tally.by_token[0]))


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"hidden_size": 4}, False),
        ({"text_config": {"num_local_experts": 4}}, True),
        ({"num_experts": 0}, False),
        ({"index_topk": 64}, True),
    ],
)
def test_a_config_tells_whether_rounding_may_tip_a_choice(config, expected):
    """Experts and tokens picked by a score are choices; their absence is none."""
    assert expected == tips(config)


#: A stage that moves restored keys by less than a percent: what a wrong restore would be.
SPOILER = '''
import msgspec
from omlx.pipeline.stage import Stage
from omlx.pipeline.state import Restored
from omlx.pipeline.work import Piece
from omlx.store.record import Record


def moved(record):
    buffers = {name: buffer * 1.01 for name, buffer in record.buffers.items()}
    return Record(record.kind, buffers, None)


class Spoiler(Stage, frozen=True, tag="spoiler"):
    """Spoil what was fetched."""

    requires = ("restored",)
    lane = "io"

    def run(self, state, services):
        """Move every record by a percent, in place of what was fetched."""
        pieces = tuple(
            Piece(piece.used, piece.num_tokens, {kind: moved(each) for kind, each in piece.records.items()})
            for piece in state.restored.pieces
        )
        object.__setattr__(state.restored, "pieces", pieces)
'''


@pytest.fixture
def spoiled(tmp_path: Path) -> Path:
    """Return a folder with a models.toml whose pipeline spoils what it restores."""
    pipelines = tmp_path / "pipelines"
    pipelines.mkdir()
    (pipelines / "spoiler.py").write_text(SPOILER)
    shipped = (REPOSITORY / "pipelines" / "default.toml").read_text()
    stage = '[[stage]]\nuse = "spoiler:Spoiler"\n\n[[stage]]            # compute the rest'
    (pipelines / "spoiled.toml").write_text(shipped.replace("[[stage]]            # compute the rest", stage))
    return tmp_path


def test_a_broken_contract_is_found_and_told_by_the_exit_code(folder_of, spoiled, capsys):
    """Records that differ by a percent break the contract in every row: exit code 1, and JSON that says so."""
    folder = folder_of("llama")
    (spoiled / "models.toml").write_text(f'[models.m]\npath = "{folder}"\npipeline = "spoiled"\n')
    arguments = ["verify", "m", "--models", str(spoiled / "models.toml"), "--triples", "2", "--tokens", "240"]
    assert 1 == main([*arguments, "--prefill", "chunk_tokens=64", "--json"])
    [report] = json.loads(capsys.readouterr().out)
    assert not report["kept"]
    assert {False} == {row["kept"] for row in report["rows"]}


def test_the_tool_prints_a_table_of_several_models(folder_of):
    """Models by folder, a table of each on standard output, exit code 0, and nothing else after it."""
    folders = [str(folder_of("llama")), str(folder_of("gemma3"))]
    tool = [
        sys.executable,
        str(REPOSITORY / "tools" / "parity.py"),
        *folders,
        "--triples",
        "2",
        "--tokens",
        "200",
    ]
    found = subprocess.run(
        [*tool, "--prefill", "chunk_tokens=64"],
        capture_output=True,
        text=True,
        check=False,
        env=dict(os.environ),
    )
    assert 0 == found.returncode, found.stderr
    assert 2 * 6 == found.stdout.count(" kept\n") + found.stdout.endswith(" kept")
    assert "BROKEN" not in found.stdout


def test_a_pipeline_without_a_cache_has_nothing_to_verify(folder_of, capsys):
    """Said with exit code 2 and what to do, not as success."""
    arguments = [
        "verify",
        str(folder_of("llama")),
        "--pipeline",
        "no_cache",
        "--triples",
        "2",
        "--tokens",
        "200",
    ]
    assert 2 == main([*arguments, "--prefill", "chunk_tokens=64"])
    assert "nothing was reused" in capsys.readouterr().err
