"""What a folder's JSON files say about its text."""

import json

import pytest

from omlx.errors import ModelLoadError
from omlx.text.text_config import TextConfig, read_text_config
from tests.tiny import make_tokenizer


def _write(folder, **files) -> None:
    for name, value in files.items():
        (folder / f"{name}.json").write_text(json.dumps(value))


def test_window_and_ends(tmp_path) -> None:
    """The window is the model's, and the ends of an answer are those of all three files."""
    make_tokenizer(tmp_path)
    _write(
        tmp_path,
        config={"max_position_embeddings": 512, "eos_token_id": 7},
        generation_config={"eos_token_id": [7, 9]},
    )
    assert TextConfig(512, frozenset({2, 7, 9})) == read_text_config(tmp_path)


def test_nested_text_config(tmp_path) -> None:
    """A multimodal model's text part is read too."""
    _write(tmp_path, config={"text_config": {"max_position_embeddings": 64, "eos_token_id": 3}})
    assert TextConfig(64, frozenset({3})) == read_text_config(tmp_path)


@pytest.mark.parametrize(
    ("config", "window"),
    [
        (
            {
                "max_position_embeddings": 100,
                "rope_scaling": {"factor": 4.0, "original_max_position_embeddings": 100},
            },
            400,
        ),
        (
            {
                "max_position_embeddings": 800,
                "rope_scaling": {"factor": 8, "original_max_position_embeddings": 64},
            },
            800,
        ),
        ({"n_positions": 32, "rope_scaling": None}, 32),
    ],
)
def test_scaled_window(tmp_path, config, window) -> None:
    """A scaled rotary window counts as scaled, never as less than the stated one."""
    _write(tmp_path, config=config)
    assert window == read_text_config(tmp_path).window_tokens


def test_window_of_tokenizer(tmp_path) -> None:
    """Without a window in the model's config the tokenizer's limit is used, unless it is no limit."""
    _write(tmp_path, tokenizer_config={"model_max_length": 4096})
    assert 4096 == read_text_config(tmp_path).window_tokens
    _write(tmp_path, tokenizer_config={"model_max_length": 1000000000000000019884624838656})
    assert read_text_config(tmp_path).window_tokens is None


def test_empty_folder(tmp_path) -> None:
    """A folder that says nothing gives a value that says nothing."""
    assert TextConfig(None, frozenset()) == read_text_config(tmp_path)


def test_broken_json(tmp_path) -> None:
    """A file cut short is a ModelLoadError that names it."""
    (tmp_path / "config.json").write_text('{"max_pos')
    with pytest.raises(ModelLoadError, match=r"config\.json"):
        read_text_config(tmp_path)
