"""Build `tokenizer.json` and `tokenizer_config.json` from a GGUF file's metadata.

Two kinds of vocabulary:

- `gpt2`: byte-level BPE. The merges are in the file; how text is split before them has a name only
  (`tokenizer.ggml.pre`), known here for those that have been tried.
- `llama`: SentencePiece BPE with byte fallback. Merges are not in the file but follow from the vocabulary:
  every split of a piece into two pieces is a merge, ranked by the id of the whole, since ids were given in
  the order in which the trainer merged. Hugging Face's converter of SentencePiece models does the same.
"""

from collections.abc import Callable
from typing import Any

from tokenizers import AddedToken, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from omlx.errors import ModelLoadError
from omlx.models.gguf_file import GGUFFile

# token types of the GGUF specification
_NORMAL, _CONTROL, _USER_DEFINED = 1, 3, 4
_SPACE = "▁"


def build_tokenizer(file: GGUFFile) -> Tokenizer:
    """Return the tokenizer that the metadata describe.

    Raises:
        ModelLoadError: the kind of vocabulary or of pre-tokenizer is not known.
    """
    kind = file.require("tokenizer.ggml.model")
    builders: dict[str, Callable[[GGUFFile], Tokenizer]] = {"gpt2": _byte_level, "llama": _sentencepiece}
    if kind not in builders:
        raise _unsupported(file, "tokenizer", kind, list(builders))
    tokenizer = builders[kind](file)
    _add_special_tokens(tokenizer, file)
    if template := _sequence_template(file):
        tokenizer.post_processor = template
    return tokenizer


def tokenizer_config(file: GGUFFile) -> dict[str, Any]:
    """Return the values of `tokenizer_config.json`, the chat template among them where there is one."""
    keys = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    special = {f"{name}_token": special_token(file, key) for name, key in keys.items()}
    template = file.get("tokenizer.chat_template")
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": file.require("{arch}.context_length"),
        "clean_up_tokenization_spaces": False,
        **{name: token for name, token in special.items() if token is not None},
        **({"chat_template": template} if template else {}),
    }


def special_token(file: GGUFFile, key: str) -> str | None:
    """Return the text of the token whose id is under `tokenizer.ggml.KEY_token_id`, or None."""
    token = file.get(f"tokenizer.ggml.{key}_token_id")
    return None if token is None else str(file.require("tokenizer.ggml.tokens")[token])


def _byte_level(file: GGUFFile) -> Tokenizer:
    vocab = {token: i for i, token in enumerate(file.require("tokenizer.ggml.tokens"))}
    merges = [tuple(merge.split(" ", 1)) for merge in file.require("tokenizer.ggml.merges")]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = _pre_tokenizer(file)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _pre_tokenizer(file: GGUFFile) -> pre_tokenizers.PreTokenizer:
    gpt2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    digits = pre_tokenizers.Digits(individual_digits=True)
    known = {"gpt-2": gpt2, "smollm": pre_tokenizers.Sequence([digits, gpt2])}
    name = file.get("tokenizer.ggml.pre", "gpt-2")
    if name not in known:
        raise _unsupported(file, "pre-tokenizer", name, list(known))
    return known[name]


def _sentencepiece(file: GGUFFile) -> Tokenizer:
    tokens: list[str] = file.require("tokenizer.ggml.tokens")
    vocab = {token: i for i, token in enumerate(tokens)}
    unknown = special_token(file, "unknown")
    model = models.BPE(
        vocab=vocab, merges=_merges(file, tokens), unk_token=unknown, fuse_unk=True, byte_fallback=True
    )
    tokenizer = Tokenizer(model)
    spaces = normalizers.Replace(" ", _SPACE)
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    if file.get("tokenizer.ggml.add_space_prefix", True):
        tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend(_SPACE), spaces])
        steps.append(decoders.Strip(" ", 1, 0))
    else:
        tokenizer.normalizer = spaces
    tokenizer.decoder = decoders.Sequence(steps)
    return tokenizer


def _merges(file: GGUFFile, tokens: list[str]) -> list[tuple[str, str]]:
    """Return every split of a piece into two pieces, ranked by the piece's id, then by the ids of its parts.

    Control and byte tokens are no pieces: text that spells one must not become it.
    """
    kinds = file.require("tokenizer.ggml.token_type")
    pieces = {token: i for i, token in enumerate(tokens) if kinds[i] in (_NORMAL, _USER_DEFINED)}
    return [merge for piece in pieces for merge in _splits(piece, pieces)]


def _splits(piece: str, pieces: dict[str, int]) -> list[tuple[str, str]]:
    halves = ((piece[:cut], piece[cut:]) for cut in range(1, len(piece)))
    known = [(left, right) for left, right in halves if left in pieces and right in pieces]
    return sorted(known, key=lambda pair: (pieces[pair[0]], pieces[pair[1]]))


def _add_special_tokens(tokenizer: Tokenizer, file: GGUFFile) -> None:
    """Have control tokens and user-defined pieces found in the text before anything is merged."""
    tokens, kinds = file.require("tokenizer.ggml.tokens"), file.require("tokenizer.ggml.token_type")
    typed = list(zip(tokens, kinds, strict=True))
    tokenizer.add_special_tokens(
        [AddedToken(token, special=True, normalized=False) for token, kind in typed if kind == _CONTROL]
    )
    tokenizer.add_tokens(
        [AddedToken(token, special=False, normalized=False) for token, kind in typed if kind == _USER_DEFINED]
    )


def _sequence_template(file: GGUFFile) -> processors.TemplateProcessing | None:
    """Return what puts the start and end tokens around a text, or None where neither is wanted."""
    is_sentencepiece = file.require("tokenizer.ggml.model") == "llama"
    first = file.get("tokenizer.ggml.add_bos_token", is_sentencepiece) and special_token(file, "bos")
    last = file.get("tokenizer.ggml.add_eos_token", False) and special_token(file, "eos")
    around = [token for token in (first, last) if token]
    if not around:
        return None
    ids = {token: file.require("tokenizer.ggml.tokens").index(token) for token in around}
    single = [*([first] if first else []), "$A", *([last] if last else [])]
    pair = [*single, *([f"{first}:1"] if first else []), "$B:1", *([f"{last}:1"] if last else [])]
    return processors.TemplateProcessing(single=single, pair=pair, special_tokens=list(ids.items()))


def _unsupported(file: GGUFFile, what: str, name: str, known: list[str]) -> ModelLoadError:
    return ModelLoadError(
        f"{file.path}: {what} '{name}' is not supported; supported: {', '.join(known)}",
        hint="use an MLX folder of this model",
    )
