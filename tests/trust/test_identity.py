"""Other weights, another adapter, another precision: never the same blocks, whatever the names."""

import json
import shutil
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from omlx.config.settings import ModelSettings
from tests.serving import serving
from tests.trust.talk import STAGES, answer, small, small_server, tokens_of

PROMPT = tokens_of(1, 150)
#: What the first run, and one that finds everything, restore.
NOTHING, ALL = 0, len(PROMPT) - 1


def write_adapter(folder: Path, seed: int) -> Path:
    """Write a LoRA adapter of the tiny llama, in mlx-lm's format, with weights that matter."""
    rng = np.random.default_rng(seed)
    keys = {"self_attn.q_proj": 64, "self_attn.v_proj": 32}
    weights = {}
    for layer in range(3):
        for key, width in keys.items():
            path = f"model.layers.{layer}.{key}"
            weights[f"{path}.lora_a"] = rng.normal(size=(64, 4)).astype(np.float32)
            weights[f"{path}.lora_b"] = rng.normal(size=(4, width)).astype(np.float32)
    folder.mkdir(parents=True, exist_ok=True)
    save_file(weights, folder / "adapters.safetensors")
    parameters = {"rank": 4, "scale": 2.0, "dropout": 0.0, "keys": list(keys)}
    config = {"fine_tune_type": "lora", "num_layers": 3, "lora_parameters": parameters}
    (folder / "adapter_config.json").write_text(json.dumps(config))
    return folder


def test_a_model_and_its_adapters_share_no_blocks(folder_of, tmp_path):
    """A8: base, adapter, and another adapter under the same name each compute for themselves, and differ."""
    folder, adapter = folder_of("llama"), write_adapter(tmp_path / "adapter", 1)
    settings = small(folder, tmp_path / "cache")
    tuned = ModelSettings(path=str(folder), adapter=str(adapter), stages=STAGES)
    settings = msgspec.structs.replace(settings, models={**settings.models, "tuned": tuned})
    with serving(settings) as server:
        runs = [answer(server, PROMPT, model=name) for name in ("tiny", "tuned")]
        again = [answer(server, PROMPT, model=name) for name in ("tiny", "tuned")]
    write_adapter(adapter, 2)
    with serving(settings) as server:
        runs.append(answer(server, PROMPT, model="tuned"))
        again.append(answer(server, PROMPT, model="tuned"))
    assert [NOTHING] * 3 == [cached for _, cached in runs]
    assert 3 == len({text for text, _ in runs})
    assert [(text, ALL) for text, _ in runs] == again


def perturb(folder: Path) -> None:
    """Change the values of all weights by a tenth, in place: names, shapes and sizes stay."""
    path = folder / "model.safetensors"
    content = bytearray(path.read_bytes())
    start = 8 + int.from_bytes(content[:8], "little")
    content[start:] = (np.frombuffer(content[start:], np.float32) * np.float32(1.1)).tobytes()
    path.write_bytes(content)


def edit_rope(folder: Path) -> None:
    """Change the base of the rotary embedding."""
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "rope_theta": 500.0}))


def edit_template(folder: Path) -> None:
    """Change a letter of the chat template."""
    config = json.loads((folder / "tokenizer_config.json").read_text())
    config["chat_template"] = config["chat_template"].replace("You help.", "You hold.")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))


@pytest.mark.parametrize("change", [perturb, edit_rope, edit_template])
def test_a_model_that_was_changed_in_place_starts_anew(folder_of, tmp_path, change):
    """I1: under the same name, other weights, rope values or templates find no block, and answer as cold."""
    folder = Path(shutil.copytree(folder_of("llama"), tmp_path / "model"))
    with small_server(folder, tmp_path / "cache") as server:
        before, _ = answer(server, PROMPT)
    change(folder)
    with small_server(folder, tmp_path / "cold") as server:
        cold, _ = answer(server, PROMPT)
    with small_server(folder, tmp_path / "cache") as server:
        assert (cold, NOTHING) == answer(server, PROMPT)
        assert (cold, ALL) == answer(server, PROMPT)
    assert (before != cold) == (change is not edit_template)


def test_a_change_of_precision_and_back_finds_its_own_blocks(folder_of, tmp_path):
    """I3: over one directory, at full precision, 8 bits, 4 bits and back, no run meets blocks of another."""
    folder, found = folder_of("llama", hidden_size=128), []
    for bits in (None, 8, 4, None):
        stages = {**STAGES, "prefill": {"chunk_tokens": 64, "kv_bits": bits, "kv_group_size": 32}}
        if bits is None:
            stages = STAGES
        with small_server(folder, tmp_path, stages=stages) as server:
            found += [answer(server, PROMPT), answer(server, PROMPT)]
    assert [0, ALL, 0, ALL, 0, ALL, ALL, ALL] == [cached for _, cached in found]
    assert all(first[0] == second[0] for first, second in zip(found[::2], found[1::2], strict=True))
    assert found[0][0] == found[-1][0]
