r"""Cut a text where the tokens of its pieces are the tokens of the whole.

    <|im_start|>system\nYou help.  |  <|im_end|>\n  |  <|im_start|>user\nhi  |  <|im_end|>\n
    a piece                        a piece          ...

Why that holds: the `tokenizers` library looks for added tokens first, in the text as it is given, from left to right
and the longest at each place. What lies between two of them is normalized, split and looked up by itself, whatever
is around it. So a text may be cut before any added token that is found there, on these conditions:

- the token is looked for before normalization (`normalized = false`); one that is not is found in what a normalizer
  left, which may depend on what was before it;
- it takes no white space around it in (`lstrip`, `rstrip`) and does not ask what is beside it (`single_word`);
- it neither begins nor ends with white space or a letter, a digit or an underscore, so that no *other* token's such
  condition is met differently at a cut.

A piece begins with its token, not after it: a pre-tokenizer that treats the first word of a text in another way
(Metaspace with `prepend_scheme = "first"`) then sees that the piece's words are not first, as in the whole.

A tokenizer that chooses by chance (BPE with `dropout`, Unigram that samples) or is not of that library has no such
cuts, and one that fails a trial on a few words is not trusted.
"""

import re
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any


class Cutter:
    """Cut texts before added tokens.

    Args:
        found: every token that is looked for before normalization: a cut is made only where one is really found.
        safe: those of them at which a text may be cut.
    """

    def __init__(self, found: Iterable[str], safe: Iterable[str]) -> None:
        self._pattern = re.compile(trie_pattern(found))
        self._safe = frozenset(safe)

    def pieces(self, text: str) -> list[str]:
        """Return the pieces of `text`; joined they are the text."""
        cuts = [match.start() for match in self._pattern.finditer(text) if match[0] in self._safe]
        edges = [0, *(cut for cut in cuts if cut), len(text)]
        return [text[start:end] for start, end in pairwise(edges)]


def find_cutter(tokenizer: Any) -> Cutter | None:
    """Return what cuts texts for a tokenizer of transformers; None when no place can be shown to be safe."""
    backend = getattr(tokenizer, "backend_tokenizer", None)
    if backend is None or tokenizer.split_special_tokens:
        return None
    if any(getattr(backend.model, chance, None) for chance in ("dropout", "alpha", "nbest_size")):
        return None
    found = [token for token in backend.get_added_tokens_decoder().values() if not token.normalized]
    safe = [token.content for token in found if _is_safe(token)]
    if not safe:
        return None
    cutter = Cutter((token.content for token in found), safe)
    return cutter if all(_agrees(tokenizer, cutter, text) for text in _trials(safe)) else None


def _is_safe(token: Any) -> bool:
    edges = (token.content[:1], token.content[-1:])
    plain = not (token.lstrip or token.rstrip or token.single_word)
    return plain and all(edge and not (edge.isalnum() or edge == "_" or edge.isspace()) for edge in edges)


#: How many of the safe tokens are tried; models have up to thousands, all of one kind.
_TRIED = 8


def _trials(safe: list[str]) -> Iterator[str]:
    """Yield texts in which words, spaces and lines stand around tokens in every way that templates put them."""
    for token in safe[:_TRIED]:
        yield f"{token}The first \n\n{token}\nsecond line's end {token} third{token}{token}\u00e9\u6f22 4 {token}"
        yield f" The first{token}second {token}"


def _agrees(tokenizer: Any, cutter: Cutter, text: str) -> bool:
    whole = tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"]
    pieces = tokenizer(cutter.pieces(text), add_special_tokens=False, verbose=False)["input_ids"]
    return bool(whole == [token for piece in pieces for token in piece])


def trie_pattern(words: Iterable[str]) -> str:
    """Return a regular expression that finds the longest of the words at a place.

    Why a trie: some models have 6,000 added tokens, and an alternation tries them one by one at every `<`.
    """
    trie: dict[str, Any] = {}
    for word in words:
        node = trie
        for letter in word:
            node = node.setdefault(letter, {})
        node[""] = {}
    return _pattern(trie)


def _pattern(node: dict[str, Any]) -> str:
    """Return the expression for what may follow a node; more before less."""
    branches = [_branch(letter, inner) for letter, inner in node.items() if letter]
    if not branches:
        return ""
    if len(branches) == 1 and "" not in node:
        return branches[0]
    return f"(?:{'|'.join(branches)}){'?' if '' in node else ''}"


def _branch(letter: str, node: dict[str, Any]) -> str:
    """Return the expression for a letter and what follows it, without a group where there is no choice."""
    literal = re.escape(letter)
    while len(node) == 1 and "" not in node:
        [(following, node)] = node.items()
        literal += re.escape(following)
    return literal + _pattern(node)
