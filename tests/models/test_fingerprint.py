"""The identity of a model follows its content: nothing else, and all of it."""

import json
import os
import shutil
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from omlx.errors import ModelLoadError
from omlx.models.fingerprint import fingerprint
from tests.tiny_models import make_model


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    return make_model(tmp_path_factory.mktemp("identity") / "model", "llama")


@pytest.fixture
def copy(original, tmp_path) -> Path:
    return Path(shutil.copytree(original, tmp_path / "copy"))


def _edit(path: Path, change) -> None:
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))


@pytest.mark.parametrize("way", ["copied", "moved", "touched", "linked"])
def test_the_same_content_keeps_its_identity(original, copy, tmp_path, way):
    """Copied, moved, touched or symlinked, a model is the same model."""
    folder = copy
    if way == "moved":
        folder = copy.rename(tmp_path / "elsewhere")
    elif way == "touched":
        for file in copy.iterdir():
            os.utime(file, (1, 1))
    elif way == "linked":
        folder = tmp_path / "link"
        folder.symlink_to(copy)
    assert fingerprint(original) == fingerprint(folder)


def _perturb_weights(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    name = min(weights)
    weights[name] = weights[name] + np.float32(0.001)
    save_file(weights, folder / "model.safetensors", metadata={"format": "mlx"})


CHANGES = {
    "weights": _perturb_weights,
    "rope value": lambda folder: _edit(folder / "config.json", lambda c: c.update(rope_theta=5000.0)),
    "quantization": lambda folder: _edit(
        folder / "config.json", lambda c: c.update(quantization={"bits": 4})
    ),
    "chat template": lambda folder: _edit(
        folder / "tokenizer_config.json", lambda c: c.update(chat_template=c["chat_template"] + " ")
    ),
    "tokenizer": lambda folder: _edit(folder / "tokenizer.json", lambda c: c["model"]["merges"].pop()),
    "code": lambda folder: (folder / "model.py").write_text("SCALE = 2\n"),
}


@pytest.mark.parametrize("what", CHANGES)
def test_changed_content_changes_the_identity(original, copy, what):
    """I1: a weight, a rope value, the quantization, the template or the tokenizer edited in place: another model."""
    CHANGES[what](copy)
    assert fingerprint(original) != fingerprint(copy)


def test_an_adapter_and_its_swap_change_the_identity(original, tmp_path):
    """A8: base, adapter, and another adapter under the same name are three models."""
    adapter = tmp_path / "adapter"
    adapter.mkdir()
    seen = {fingerprint(original)}
    for value in (1.0, 2.0):
        save_file({"lora_a": np.full((2, 2), value, np.float32)}, adapter / "adapters.safetensors")
        seen.add(fingerprint(original, adapter=adapter))
    assert 3 == len(seen)


def test_options_that_change_kv_change_the_identity(original):
    """I3: another KV precision never meets blocks of the first."""
    assert 3 == len({fingerprint(original, {"kv_bits": bits}) for bits in (None, 8, 4)})


def test_a_folder_without_weights_or_with_half_a_file_is_refused(tmp_path, copy):
    """No weights, or a truncated file, is an error that says so."""
    with pytest.raises(ModelLoadError, match=r"no .*weights"):
        fingerprint(tmp_path)
    (copy / "model.safetensors").write_bytes(b"\xff\xff\xff\xff\xff\xff\xff\x00")
    with pytest.raises(ModelLoadError, match="not a complete"):
        fingerprint(copy)


@pytest.mark.parametrize("name", ["first", "norm", "last"])
@pytest.mark.parametrize("part", ["begin", "end"])
def test_each_tensor_of_a_large_file_counts(tmp_path, original, name, part):
    """I1: among large tensors a changed norm, or the edge of a changed matrix, makes another model."""
    folder = Path(shutil.copytree(original, tmp_path / "large"))
    weights = {
        each: np.zeros(4_000_000 if each != "norm" else 576, np.float32) for each in ("first", "norm", "last")
    }
    save_file(weights, folder / "model.safetensors")
    before = fingerprint(folder)
    weights[name][0 if part == "begin" else -1] = 1e-3
    save_file(weights, folder / "model.safetensors")
    assert before != fingerprint(folder)


def test_a_large_model_is_identified_by_samples(tmp_path, original):
    """The cost does not grow with the size of the weights: a sparse 20 GB file reads some 256 KiB."""
    folder = Path(shutil.copytree(original, tmp_path / "large"))
    header = b'{"w":{"dtype":"U8","shape":[20000000000],"data_offsets":[0,20000000000]}}'
    with (folder / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + 20_000_000_000)
    before = _bytes_read()
    fingerprint(folder)
    assert _bytes_read() - before < 4_000_000


def _bytes_read() -> int:
    """Return the bytes this process has read so far, as the kernel counts them."""
    counters = Path("/proc/self/io")
    if not counters.exists():
        pytest.skip("the kernel does not count what a process reads")
    return int(counters.read_text().split()[1])
