"""What a model folder says about its text, read without a tokenizer."""

from pathlib import Path
from typing import Any

import msgspec

from omlx.errors import ModelLoadError


class TextConfig(msgspec.Struct, frozen=True):
    """What a model folder says about its text.

    `window_tokens` and `vocabulary_tokens` are None where it does not say; `eos_token_ids` end an answer.
    """

    window_tokens: int | None
    eos_token_ids: frozenset[int]
    vocabulary_tokens: int | None = None


def read_text_config(folder: Path) -> TextConfig:
    """Read `config.json`, `generation_config.json` and `tokenizer_config.json`, as far as they are there.

    Raises ModelLoadError when one of them is not a JSON object.
    """
    config = _read_json(folder / "config.json")
    config = {**config, **(config.get("text_config") or {})}
    generation = _read_json(folder / "generation_config.json")
    tokenizer = _read_json(folder / "tokenizer_config.json")
    ids = {*_ids(config.get("eos_token_id")), *_ids(generation.get("eos_token_id"))}
    ids |= _token_ids(folder, tokenizer)
    return TextConfig(_window_tokens(config, tokenizer), frozenset(ids), config.get("vocab_size"))


#: Longest window first asked for; model families disagree on the name.
_WINDOW_KEYS = ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len")


def _window_tokens(config: dict[str, Any], tokenizer: dict[str, Any]) -> int | None:
    window = next((int(config[key]) for key in _WINDOW_KEYS if config.get(key)), None)
    if window is None:
        # a tokenizer without a limit writes 1e30
        limit = tokenizer.get("model_max_length") or 1e30
        return int(limit) if limit < 1e9 else None
    scaling = config.get("rope_scaling") or {}
    scaled = (scaling.get("original_max_position_embeddings") or 0) * (scaling.get("factor") or 1)
    return max(window, int(scaled))


def _token_ids(folder: Path, tokenizer: dict[str, Any]) -> set[int]:
    """Return the id of the tokenizer's `eos_token`, as a set of one or none."""
    token = tokenizer.get("eos_token")
    text = token.get("content") if isinstance(token, dict) else token
    if not text:
        return set()
    known = tokenizer.get("added_tokens_decoder") or {}
    found = {int(number) for number, added in known.items() if added.get("content") == text}
    return found or _added_token_ids(folder / "tokenizer.json", text)


class _AddedToken(msgspec.Struct):
    id: int
    content: str


class _AddedTokens(msgspec.Struct):
    """The part of `tokenizer.json` that is wanted; the rest (some 10 MB) is skipped, not built."""

    added_tokens: list[_AddedToken] = []


def _added_token_ids(path: Path, text: str) -> set[int]:
    if not path.is_file():
        return set()
    try:
        found = msgspec.json.decode(path.read_bytes(), type=_AddedTokens)
    except msgspec.MsgspecError as error:
        raise _unreadable(path, error) from error
    return {added.id for added in found.added_tokens if added.content == text}


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except msgspec.MsgspecError as error:
        raise _unreadable(path, error) from error


def _unreadable(path: Path, error: Exception) -> ModelLoadError:
    return ModelLoadError(
        f"{path.name} in {path.parent.name!r} cannot be read: {error}", hint="download it again"
    )


def _ids(value: int | list[int] | None) -> list[int]:
    if value is None:
        return []
    return [value] if isinstance(value, int) else value
