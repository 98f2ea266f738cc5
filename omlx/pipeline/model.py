"""Model: a loaded model as stages and the server may see it. No weights, no device arrays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omlx.pipeline.request import Sampling
from omlx.prefix.layout import Layout
from omlx.text.chat import Prompt
from omlx.text.seams import AnswerParser, Tokenizer
from omlx.types import Fingerprint, Tokens


@dataclass(frozen=True, slots=True)
class Computing:
    """How a pipeline computes KV, as far as it changes the bytes.

    `exact_grid` is the chunk grid, in tokens, of an exact pipeline; None for others.
    """

    kv_bits: int | None = None
    kv_group_size: int = 64
    exact_grid: int | None = None

    def identity(self) -> dict[str, object]:
        """Return what belongs into the fingerprint: nothing for the default way."""
        options: dict[str, object] = {}
        if self.kv_bits is not None:
            options |= {"kv_bits": self.kv_bits, "kv_group_size": self.kv_group_size}
        if self.exact_grid is not None:
            options["exact_grid"] = self.exact_grid
        return options


@dataclass(frozen=True)
class Model:
    """One loaded model.

    Attributes:
        name: its name in `models.toml`.
        fingerprint: the identity under which its blocks are stored.
        layout: what its cache is made of; None when its caches cannot be stored (it then runs uncached).
        uncached_reason: why `layout` is None.
        window_tokens: the most tokens prompt and answer may have together.
        eos_tokens: tokens that end an answer.
        tokenizer: renders and tokenizes prompts.
        new_parser: makes the parser for one answer, of a prompt with its tokens and stop strings.
        sampling: the values used where a request says nothing.
        template_options: options given to the chat template where a request gives none.
        max_tokens: the longest answer when the request does not say.
        vocabulary_tokens: how many token ids there are; None when the model does not say.
    """

    name: str
    fingerprint: Fingerprint
    layout: Layout | None
    window_tokens: int
    eos_tokens: frozenset[int]
    tokenizer: Tokenizer
    new_parser: Callable[[Prompt, Tokens, tuple[str, ...]], AnswerParser]
    uncached_reason: str | None = None
    sampling: Sampling = Sampling()
    template_options: dict[str, Any] = field(default_factory=dict)
    max_tokens: int | None = None
    vocabulary_tokens: int | None = None
