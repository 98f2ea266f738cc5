"""Each token's bytes: joined, they are the text, whatever the tokenizer and wherever characters are cut."""

from collections.abc import Callable
from pathlib import Path

import pytest

from omlx.models.answer import AnswerParsers
from omlx.text.tokenizer import FolderTokenizer
from omlx.types import as_tokens
from tests.tiny import make_sentencepiece, make_tokenizer

TEXT = " the na\u00efve \u6f22\u5b57 \U0001f469\u200d\U0001f467 x\x00\n  the"


@pytest.mark.parametrize("make", [make_tokenizer, make_sentencepiece])
def test_spellings_join_to_the_text(tmp_path: Path, make: Callable[[Path], Path]):
    """Spaces stay where they are and a character of several tokens is whole again."""
    parsers = AnswerParsers(make(tmp_path))
    parser = parsers.new(as_tokens([]))
    tokens = FolderTokenizer(tmp_path, parsers.tokenizer).encode(TEXT).tokens.tolist()
    assert b"".join(map(parser.spell, tokens)) == TEXT.encode()
    assert any(b"\xf0" == parser.spell(token)[:1] for token in tokens)


def test_special_and_unknown_tokens(tmp_path: Path):
    """A special token is spelled as it is written; one beyond the vocabulary, of a padded model, has no bytes."""
    parsers = AnswerParsers(make_tokenizer(tmp_path))
    parser = parsers.new(as_tokens([]))
    [token] = FolderTokenizer(tmp_path, parsers.tokenizer).encode("<|im_end|>").tokens.tolist()
    assert (parser.spell(token), parser.spell(999_999)) == (b"<|im_end|>", b"")
