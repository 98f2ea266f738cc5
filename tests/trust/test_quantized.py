"""Quantized keys and values: restored as they were computed, bit for bit, and as small as they should be."""

from pathlib import Path

import pytest

import omlx.models  # noqa: F401 - loads the fast BLAS, before MLX

# isort: split
import mlx.core as mx
from structlog.testing import capture_logs

from omlx.kv.transfer import to_device, to_record
from omlx.store import tensorfile
from omlx.store.cold import ColdTier
from tests.tiny_models import make_model
from tests.trust.talk import ALWAYS, BLOCK, answer, small_server, statistics, tokens_of

#: 24 blocks with ten needles.
PROMPT = tokens_of(1, 24 * BLOCK + 9)
for _number in range(10):
    PROMPT[70 * _number + 11] = 300 + _number

#: Heads wide enough for groups of 32 in float16, and little else.
HALF = {"hidden_size": 256, "num_attention_heads": 2, "num_key_value_heads": 2}
WIDE = {"llama": {"hidden_size": 128}, "gemma3": {"head_dim": 32}, "qwen3_5": {"head_dim": 32}}


def stages(bits: int | None) -> dict:
    """Return small stages that quantize to that many bits."""
    prefill = {"chunk_tokens": 64, "kv_group_size": 32} | ({"kv_bits": bits} if bits else {})
    return {"lookup": ALWAYS, "prefill": prefill, "writeback": {"block_tokens": BLOCK}}


@pytest.mark.parametrize("family", WIDE)
@pytest.mark.parametrize("bits", [None, 8, 4])
def test_a_warm_run_says_what_the_cold_one_said(folder_of, tmp_path, family, bits):
    """A11: at each precision the same prompt answers the same from RAM and after a restart."""
    folder = folder_of(family, **WIDE[family])
    with small_server(folder, tmp_path, stages=stages(bits)) as server:
        cold, warm = answer(server, PROMPT), answer(server, PROMPT)
    with small_server(folder, tmp_path, stages=stages(bits)) as server:
        restarted = answer(server, PROMPT)
    assert (cold[0], len(PROMPT) - 1) == warm == restarted


@pytest.mark.parametrize("bits", [None, 8, 4])
def test_a_record_has_the_same_bytes_after_a_trip_to_the_device(folder_of, tmp_path, bits):
    """A11: read, put on the device, captured and packed again, every file would be written as it stands."""
    with small_server(folder_of("llama", hidden_size=128), tmp_path, stages=stages(bits)) as server:
        answer(server, PROMPT)
    tier = ColdTier(tmp_path, 2**30, min_free_bytes=0)
    for block in tier.blocks():
        written = tier._table.ledger.records(block.name)["kv"].row
        record = to_record("kv", to_device(tier.read(block.name, "kv")))
        assert written == tensorfile.pack(record, written.window).row
    tier.close()


def test_a_sliding_model_says_which_layers_it_leaves_as_they_are(folder_of, tmp_path):
    """G4: with quantized keys and values the layers that keep theirs are named once, when the model is loaded."""
    with (
        capture_logs() as logs,
        small_server(folder_of("gemma3", head_dim=32), tmp_path, stages=stages(4)) as server,
    ):
        server.runtime.preload().result()
    [left] = [line["layers"] for line in logs if line["event"] == "layers keep unquantized keys and values"]
    assert [f"layer {number} (RotatingKVCache)" for number in (0, 1, 3, 4)] == list(left)


def test_quantized_blocks_take_their_share_of_the_disk(tmp_path):
    """G4: on disk, 4 bits take 0.28 to 0.35 of the bytes of float16, scales included."""
    folder = _half_precision(
        make_model(tmp_path / "model", "llama", num_hidden_layers=1, intermediate_size=32, **HALF)
    )
    written = []
    for bits in (None, 4):
        with small_server(folder, tmp_path / str(bits), stages=_wide_blocks(bits)) as server:
            answer(server, PROMPT[:513], max_tokens=1)
            server.runtime._store.flush(30)
            written.append(statistics(server)["cold"]["written_bytes"])
    assert 0.28 <= written[1] / written[0] <= 0.35


def _half_precision(folder: Path) -> Path:
    weights = mx.load(str(folder / "model.safetensors"))
    halves = {name: weight.astype(mx.float16) for name, weight in weights.items()}
    mx.save_safetensors(str(folder / "model.safetensors"), halves, metadata={"format": "mlx"})
    return folder


def _wide_blocks(bits: int | None) -> dict:
    return {**stages(bits), "writeback": {"block_tokens": 256}}


def test_a_long_prompt_takes_less_memory_all_the_time(tmp_path):
    """G5: with 4 bits the memory of a forty-block prompt grows by 0.6 of that with float16 at the most, at its peak."""
    thin = {"hidden_size": 32, "intermediate_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1}
    folder = _half_precision(
        make_model(tmp_path / "model", "llama", head_dim=256, num_hidden_layers=6, **thin)
    )
    grown = []
    for bits in (None, 4):
        small = {**stages(bits), "writeback": {"block_tokens": 16}}
        with small_server(folder, tmp_path / str(bits), stages=small, hot=1) as server:
            answer(server, tokens_of(2, 70), max_tokens=1)
            server.runtime._store.flush(30)
            mx.clear_cache()
            mx.reset_peak_memory()
            before = mx.get_active_memory()
            answer(server, tokens_of(3, 40 * 16), max_tokens=1)
            grown.append(mx.get_peak_memory() - before)
    assert grown[1] <= 0.6 * grown[0], grown
