"""Find the models that are on this machine already: in folders, in the hub's cache, prepared by omlx. No MLX."""

import json
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omlx.blas import user_cache
from omlx.models.catalog import CATALOG
from omlx.units import format_size

#: How the names of architectures end that continue text.
_GENERATES = ("ForCausalLM", "ForConditionalGeneration", "LMHeadModel")
_TEMPLATES = ("chat_template.jinja", "chat_template.json")
#: Folders below one that is given: publisher, then model.
_DEPTH = 2


@dataclass(frozen=True, slots=True)
class FoundModel:
    """A model on this machine.

    Attributes:
        path: what models.toml calls it: a folder, a hub name, a name of the catalog.
        about: architecture, precision, size and window, in words.
        has_chat_template: it can hold a conversation.
        nbytes: of its weights.
        window_tokens: the longest sequence it was trained for; None when it does not say.
    """

    path: str
    about: str
    has_chat_template: bool
    nbytes: int = 0
    window_tokens: int | None = None


def find_models(folders: Iterable[Path] = ()) -> list[FoundModel]:
    """Return the models in these folders, then those of the hub's cache, then those that omlx prepared."""
    return [*_in_folders(folders), *_in_hub_cache(hub_cache()), *_prepared()]


def look(folder: Path, path: str) -> FoundModel | None:
    """Return the model in a folder, called so; None when there are no weights, or none that continue text."""
    config = _json(folder / "config.json")
    weights = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    architectures = config.get("architectures") or [_GENERATES[0]]
    if not (config and weights) or not any(str(each).endswith(_GENERATES) for each in architectures):
        return None
    about, window = _about(config, weights), _window(config)
    return FoundModel(path, about, _has_template(folder), weights, window)


def hub_cache() -> Path:
    """Return the folder where the hub's client keeps what it has downloaded."""
    if own := os.environ.get("HF_HUB_CACHE"):
        return Path(own).expanduser()
    home = os.environ.get("HF_HOME") or Path(os.environ.get("XDG_CACHE_HOME", "~/.cache")) / "huggingface"
    return Path(home).expanduser() / "hub"


def _in_folders(folders: Iterable[Path]) -> Iterator[FoundModel]:
    for folder in folders:
        for path in _model_folders(folder.expanduser().absolute(), _DEPTH):
            if found := look(path, _from_home(path)):
                yield found


def _model_folders(folder: Path, depth: int) -> Iterator[Path]:
    if (folder / "config.json").is_file():
        yield folder
    elif depth and folder.is_dir():
        for inner in sorted(folder.iterdir()):
            if not inner.name.startswith("."):
                yield from _model_folders(inner, depth - 1)


def _in_hub_cache(cache: Path) -> Iterator[FoundModel]:
    for repository in sorted(cache.glob("models--*--*")):
        owner, _, name = repository.name.removeprefix("models--").partition("--")
        snapshot = _snapshot(repository)
        if snapshot is not None and (found := look(snapshot, f"{owner}/{name}")):
            yield found


def _snapshot(repository: Path) -> Path | None:
    """Return the revision that a repository's name stands for, else the latest that is there."""
    main = repository / "refs" / "main"
    if main.is_file() and (found := repository / "snapshots" / main.read_text().strip()).is_dir():
        return found
    revisions = sorted(repository.glob("snapshots/*/"), key=lambda path: path.stat().st_mtime)
    return revisions[-1] if revisions else None


def _prepared() -> Iterator[FoundModel]:
    for name in CATALOG:
        for config in sorted((user_cache() / "models").glob(f"{name}-*/config.json"))[:1]:
            if found := look(config.parent, name):
                yield found


def _text(config: dict[str, Any]) -> dict[str, Any]:
    """Return the part of a config that is about text."""
    inner = config.get("text_config")
    return inner if isinstance(inner, dict) else config


def _window(config: dict[str, Any]) -> int | None:
    window = _text(config).get("max_position_embeddings")
    return window if isinstance(window, int) else None


def _about(config: dict[str, Any], weights: int) -> str:
    text = _text(config)
    quantization = config.get("quantization") or config.get("quantization_config") or {}
    bits = quantization.get("bits") if isinstance(quantization, dict) else None
    window = _window(config)
    parts = [
        str(config.get("model_type", "unknown architecture")),
        f"{bits}-bit" if bits else str(text.get("torch_dtype") or text.get("dtype") or "not quantized"),
        format_size(weights),
        f"window of {window} tokens" if window else None,
    ]
    return ", ".join(part for part in parts if part)


def _has_template(folder: Path) -> bool:
    own = any((folder / name).is_file() for name in _TEMPLATES)
    return own or bool(_json(folder / "tokenizer_config.json").get("chat_template"))


def _json(path: Path) -> dict[str, Any]:
    """Return what a JSON file says; nothing for one that is no JSON object, or not there."""
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return value if isinstance(value, dict) else {}


def _from_home(path: Path) -> str:
    home = Path.home()
    return f"~/{path.relative_to(home)}" if path.is_relative_to(home) else str(path)
