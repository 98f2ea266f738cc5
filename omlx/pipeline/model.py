"""Model: a loaded model as stages and the server may see it. No weights, no device arrays."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from omlx.pipeline.request import Sampling
from omlx.prefix.layout import Layout
from omlx.text.chat import Prompt
from omlx.text.seams import AnswerParser, Tokenizer
from omlx.types import Fingerprint, Tokens


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
