"""What is remembered of texts never changes their tokens, whatever the tokenizer does around added tokens."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from omlx.text.chat import ChatPrompt, Message, ToolCall
from omlx.text.memo import PieceMemo, Spelled, entry_bytes
from omlx.text.pieces import Cutter, find_cutter, trie_pattern
from omlx.text.tokenizer import FolderTokenizer, as_spans
from omlx.types import as_tokens
from tests.tiny import TEMPLATES, make_tokenizer

END = "<|end|>"
#: Added tokens that take in or ask for what is beside them, are found after normalization, or begin another one.
AWKWARD = [
    AddedToken(END, special=True, normalized=False),
    AddedToken("<|end|>x", special=False, normalized=False),
    AddedToken("<|e", special=False, normalized=False),
    AddedToken("<left>", special=True, normalized=False, lstrip=True),
    AddedToken("<right>", special=True, normalized=False, rstrip=True),
    AddedToken("word", special=False, normalized=False, single_word=True),
    AddedToken("the e", special=False, normalized=True),
    AddedToken("\n\n", special=False, normalized=False),
    AddedToken("  ", special=False, normalized=False),
]
_LETTERS = [*"thexwordn\n <|>é漢4_", "▁", "<unk>"]
_MERGES = [("t", "h"), ("th", "e"), ("▁", "the"), ("▁", "e"), ("x", "x")]
_VOCABULARY = {piece: i for i, piece in enumerate([*_LETTERS, *("".join(pair) for pair in _MERGES), "##e"])}


def sentencepiece(prefix: str) -> Tokenizer:
    """Return a BPE with `▁` for a space, put before the first word, before every word, or by the normalizer."""
    tokenizer = Tokenizer(models.BPE(_VOCABULARY, _MERGES, unk_token="<unk>", fuse_unk=True))
    if prefix == "normalizer":
        steps = [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        tokenizer.normalizer = normalizers.Sequence(steps)
    else:
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=prefix, split=False)
    return tokenizer


def unigram() -> Tokenizer:
    """Return a Unigram model with NFKC, as SentencePiece has it."""
    pieces = [(piece, -1.0 - len(piece) / 10 - i / 100) for piece, i in _VOCABULARY.items()]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=_VOCABULARY["<unk>"]))
    tokenizer.normalizer = normalizers.Sequence([normalizers.NFKC(), normalizers.Strip()])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    return tokenizer


def wordpiece() -> Tokenizer:
    """Return a WordPiece model that lowers letters and strips accents."""
    tokenizer = Tokenizer(models.WordPiece(_VOCABULARY, unk_token="<unk>"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    return tokenizer


def byte_level() -> Tokenizer:
    """Return a byte-level BPE that puts a space before texts and trims offsets."""
    alphabet = {letter: i for i, letter in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    merged = {piece: len(alphabet) + i for i, piece in enumerate(["th", "the", "Ġthe"])}
    tokenizer = Tokenizer(models.BPE({**alphabet, **merged}, [("t", "h"), ("th", "e"), ("Ġ", "the")]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    return tokenizer


KINDS: dict[str, Callable[[], Tokenizer]] = {
    "byte-level": byte_level,
    "metaspace first": lambda: sentencepiece("first"),
    "metaspace always": lambda: sentencepiece("always"),
    "prepend": lambda: sentencepiece("normalizer"),
    "unigram": unigram,
    "wordpiece": wordpiece,
}


def write(folder: Path, tokenizer: Tokenizer) -> Path:
    """Write a folder with a tokenizer and the awkward tokens; return it."""
    tokenizer.add_tokens(AWKWARD)
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": "PreTrainedTokenizerFast"}))
    return folder


@pytest.fixture(scope="module", params=KINDS)
def pair(request, tmp_path_factory) -> tuple[FolderTokenizer, FolderTokenizer]:
    """Return a tokenizer that remembers little, and the same one that remembers nothing."""
    folder = write(tmp_path_factory.mktemp("tokenizer"), KINDS[request.param]())
    return FolderTokenizer(folder, memo_bytes=20_000), FolderTokenizer(folder, memo_bytes=0)


FRAGMENTS = [token.content for token in AWKWARD] + [
    *("the", " the", "\n", " ", "x", "é", "漢", "▁", "4 words", "")
]


@given(st.lists(st.lists(st.sampled_from(FRAGMENTS), max_size=14), min_size=1, max_size=4))
@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_remembered_tokens_are_the_tokens(pair, texts) -> None:
    """Whatever was tokenized before, tokens and starts are those of a tokenizer that remembers nothing."""
    remembers, forgets = pair
    for fragments in texts:
        text = "".join(fragments)
        found, plain = remembers.encode(text), forgets.encode(text)
        assert plain.tokens.tolist() == found.tokens.tolist()
        assert plain.starts.tolist() == found.starts.tolist()


def test_every_kind_is_cut(pair) -> None:
    """The property is not empty: each kind of tokenizer is cut at the token that may be cut at."""
    pair[0].encode("x")
    cutter = pair[0]._cutter
    assert cutter is not None
    assert ["the", END, f"{END} ", f"{END}\n<|end|>x<|e"] == cutter.pieces(
        f"the{END}{END} {END}\n<|end|>x<|e"
    )


@pytest.mark.parametrize("name", TEMPLATES)
def test_turns_of_a_conversation(tmp_path, name) -> None:
    """In every template, each turn of a conversation has the tokens that it has by itself."""
    folder = make_tokenizer(tmp_path, TEMPLATES[name])
    remembers, forgets = FolderTokenizer(folder), FolderTokenizer(folder, memo_bytes=0)
    tools = ({"type": "function", "function": {"name": "read", "description": "d", "parameters": {}}},)
    messages: tuple[Message, ...] = (Message("system", "You help. "), Message("user", " hi\n\n"))
    for turn in range(4):
        text = forgets.render(ChatPrompt(messages, tools))
        assert forgets.encode(text).tokens.tolist() == remembers.encode(text).tokens.tolist()
        call = Message("assistant", f"é{turn}", tool_calls=(ToolCall("read", {"p": turn}, id=f"i{turn}"),))
        result = Message("tool", f"<|im_end|>\n{turn}", tool_call_id=f"i{turn}")
        messages += (call, result, Message("assistant", "so"), Message("user", "more"))


def test_a_further_turn_tokenizes_what_is_new(tmp_path) -> None:
    """Of a conversation that goes on, only the new messages are given to the tokenizer."""
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path))
    given: list[str] = []
    spell = tokenizer._memo._spell
    tokenizer._memo._spell = lambda texts: given.extend(texts) or spell(texts)
    tokenizer.encode("<|im_start|>user\nhi<|im_end|>\n")
    given.clear()
    tokenizer.encode("<|im_start|>user\nhi<|im_end|>\n<|im_start|>user\nmore<|im_end|>\n")
    assert ["<|im_start|>user\nmore"] == given


def test_unsafe_tokenizers_are_not_cut(tmp_path) -> None:
    """No cut is offered for one that chooses by chance, none without a safe token, none outside the library."""
    chance = Tokenizer(models.BPE(_VOCABULARY, _MERGES, dropout=0.1))
    tokenizer = FolderTokenizer(write(tmp_path, chance))._tokenizer()
    assert None is find_cutter(tokenizer)
    pieces = [("<unk>", 0.0), ("x", -1.0)]
    tokenizer.backend_tokenizer.model = models.Unigram(pieces, unk_id=0, alpha=0.1, nbest_size=2)
    assert None is find_cutter(tokenizer)
    bare = make_tokenizer(tmp_path)
    tokenizer = FolderTokenizer(bare)._tokenizer()
    assert find_cutter(tokenizer) is not None
    tokenizer.split_special_tokens = True
    assert None is find_cutter(tokenizer)
    assert None is find_cutter(object())


def test_one_that_fails_the_trial_is_not_cut(tmp_path) -> None:
    """A tokenizer whose pieces do not have the tokens of the whole is not trusted."""
    tokenizer = FolderTokenizer(make_tokenizer(tmp_path))._tokenizer()

    class Odd:
        """Counts the texts before it in."""

        backend_tokenizer = tokenizer.backend_tokenizer
        split_special_tokens = False

        def __call__(self, text, **options):
            found = tokenizer(text, **options)["input_ids"]
            return {"input_ids": found if isinstance(text, str) else [[0, *ids] for ids in found]}

    assert None is find_cutter(Odd())


def test_the_longest_word_is_found() -> None:
    """The pattern finds the longest word at a place, and words that begin alike."""
    words = ["<a>", "<a>b", "<", "\n", "\n\n\n", "a.c"]
    assert ["<a>b", "<a>", "<", "\n\n\n", "\n", "\n"] == Cutter(words, words)._pattern.findall(
        "<a>b<a><abc\n\n\n\n\n"
    )
    assert trie_pattern(["ab"]) == "ab"


@given(st.lists(st.lists(st.text("ab", max_size=6), min_size=1, max_size=6), max_size=30))
def test_the_memo_is_bounded(texts) -> None:
    """It never holds more than its budget, counts what it holds, and what it says is right all the same."""

    def spell(pieces):
        return [
            Spelled(as_tokens([*map(ord, piece)]), as_spans([(i, i + 1) for i in range(len(piece))]))
            for piece in pieces
        ]

    memo = PieceMemo(spell, 3_000)
    for pieces in texts:
        found, whole = memo.spell(pieces), "".join(pieces)
        assert [ord(letter) for letter in whole] == found.tokens.tolist()
        assert [[i, i + 1] for i in range(len(whole))] == found.spans.tolist()
        assert memo.nbytes == sum(entry_bytes(*item) for item in memo._known.items()) <= 3_000
