"""The bytes that each token of a vocabulary stands for.

Text will not do: a token may be a part of a character, and decoding one alone may drop its leading space.
"""

from collections.abc import Callable
from functools import cache

from mlx_lm import tokenizer_utils
from transformers.convert_slow_tokenizer import bytes_to_unicode

_SPACE = "\u2581".encode()  # SentencePiece's sign for a space


def speller(tokenizer: tokenizer_utils.TokenizerWrapper) -> Callable[[int], bytes]:
    """Return the function from a token to its bytes; tokens beyond the vocabulary have none.

    For a tokenizer that is neither byte-level nor SentencePiece they are those of its decoded text.
    """
    detokenizer = tokenizer.detokenizer
    match detokenizer:
        case tokenizer_utils.BPEStreamingDetokenizer(tokenmap=pieces):
            return lambda token: _unfold(pieces[token]) if token < len(pieces) else b""
        case tokenizer_utils.SPMStreamingDetokenizer(tokenmap=pieces):
            return lambda token: pieces[token].replace(_SPACE, b" ") if token < len(pieces) else b""
    return lambda token: tokenizer.decode([token]).encode()


def _unfold(piece: str | None) -> bytes:
    """Return the bytes of a piece of byte-level BPE, which has a printable character for each."""
    known = _byte_of()
    return b"".join(known.get(char) or char.encode() for char in piece or "")


@cache
def _byte_of() -> dict[str, bytes]:
    return {char: bytes([byte]) for byte, char in bytes_to_unicode().items()}
