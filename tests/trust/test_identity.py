"""Other weights, another adapter, another precision: never the same blocks, whatever the names."""

import json
import os
import shutil
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import pytest
from safetensors.numpy import save_file

from omlx.config.settings import ModelSettings, Settings
from omlx.pipeline.stage import Services
from omlx.runtime.bare import BareChain
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.text.chat import TokenPrompt
from tests.serving import REPOSITORY, serving
from tests.tiny_models import make_module
from tests.trust.talk import STAGES, answer, small, small_server, tokens_of

# isort: split
import mlx.core as mx
from mlx import nn
from mlx.utils import tree_flatten

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


def edit_tokenizer(folder: Path) -> None:
    """Take the last merge out of the tokenizer."""
    content = json.loads((folder / "tokenizer.json").read_text())
    content["model"]["merges"].pop()
    (folder / "tokenizer.json").write_text(json.dumps(content))


def requantize(folder: Path) -> None:
    """Quantize the weights, to 8 bits, or to 4 where they are quantized."""
    config = json.loads((folder / "config.json").read_text())
    bits = 4 if config.pop("quantization", None) else 8
    module = make_module(config)
    nn.quantize(module, group_size=32, bits=bits)
    weights = dict(tree_flatten(module.parameters()))
    mx.save_safetensors(str(folder / "model.safetensors"), weights, metadata={"format": "mlx"})
    config["quantization"] = {"group_size": 32, "bits": bits}
    (folder / "config.json").write_text(json.dumps(config))


def swap_adapter(folder: Path) -> None:
    """Write another adapter under the same name."""
    write_adapter(folder.parent / "adapter", 2)


CHANGES = [perturb, requantize, edit_rope, edit_tokenizer, edit_template, swap_adapter]


def loaded(folder: Path) -> BareChain:
    """Load the model in a folder, under its adapter."""
    adapter = str(folder.parent / "adapter")
    model = ModelSettings(path=str(folder), adapter=adapter, stages=STAGES)
    return BareChain(Settings(models={"tiny": model}), "tiny", Path(REPOSITORY))


def ran(chain: BareChain, store: BlockStore | None) -> tuple[int, list[int]]:
    """Return how many tokens of the prompt were restored, and all tokens at the end."""
    state = chain.run(TokenPrompt(tuple(PROMPT)), Services(store), max_tokens=8)
    return state.sequence.resumed, state.sequence.tokens.tolist()


@pytest.mark.parametrize("change", CHANGES)
def test_a_model_loaded_again_meets_no_block_of_what_it_was(folder_of, tmp_path, change):
    """I1, A8: changed in place and loaded again without a restart, a model finds nothing in RAM or on disk."""
    folder = Path(shutil.copytree(folder_of("llama"), tmp_path / "model"))
    write_adapter(tmp_path / "adapter", 1)
    with closing(BlockStore(HotTier(2**28), ColdTier(tmp_path / "cache", 2**28, min_free_bytes=0))) as store:
        for happens in (lambda _: None, change):
            happens(folder)
            with closing(loaded(folder)) as chain:
                _, cold = ran(chain, None)
                assert [(NOTHING, cold), (ALL, cold)] == [ran(chain, store), ran(chain, store)]
    with (
        closing(loaded(folder)) as chain,
        closing(BlockStore(None, ColdTier(tmp_path / "cache", 2**28, min_free_bytes=0))) as alone,
    ):
        assert (ALL, cold) == ran(chain, alone)


@pytest.mark.parametrize("way", ["copied", "moved", "touched", "linked"])
def test_a_model_in_another_place_finds_its_blocks(folder_of, tmp_path, way):
    """A8: copied, moved, touched or behind a symlink, a model is the one it was: all of its prompt is restored."""
    folder = Path(shutil.copytree(folder_of("llama"), tmp_path / "model"))
    with small_server(folder, tmp_path / "cache") as server:
        before, _ = answer(server, PROMPT)
    match way:
        case "copied":
            folder = Path(shutil.copytree(folder, tmp_path / "copy"))
        case "moved":
            folder = folder.rename(tmp_path / "elsewhere")
        case "linked":
            (tmp_path / "link").symlink_to(folder)
            folder = tmp_path / "link"
        case "touched":
            for file in folder.iterdir():
                os.utime(file, (1, 1))
    with small_server(folder, tmp_path / "cache") as server:
        assert (before, ALL) == answer(server, PROMPT)


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
