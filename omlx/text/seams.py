"""The seams of this room: a tokenizer with a chat template, and a parser of answers.

`Tokenizer` has two implementations: `omlx.text.tokenizer.FolderTokenizer` (a model folder) and
`omlx.testing.ByteTokenizer` (the shipped fake). `AnswerParser` is met by `omlx.models.answer` (mlx-lm's
detokenizers, state machine and tool parsers) and by `omlx.testing.PlainParser`.
"""

from dataclasses import dataclass
from typing import Any, Protocol

from omlx.text.chat import ChatPrompt
from omlx.text.delta import AnswerDelta
from omlx.types import Tokens


@dataclass(frozen=True, slots=True)
class Encoding:
    """Tokens of a text, with the character at which each begins.

    `tokens: (n,) int32`; `starts: (n,) int32`, non-decreasing.
    """

    tokens: Tokens
    starts: Tokens


class Tokenizer(Protocol):
    """Turn a conversation into text and text into tokens. Safe to call from any thread."""

    def render(self, prompt: ChatPrompt, *, add_generation_prompt: bool = True) -> str:
        """Return the prompt's text by the model's chat template.

        Raises RequestError when the template refuses the conversation, or the model has none.
        """
        ...

    def encode(self, text: str, *, add_special_tokens: bool = False) -> Encoding:
        """Return the tokens of `text`. A rendered chat brings its own special tokens."""
        ...

    def decode(self, tokens: Tokens) -> str:
        """Return the text of `tokens`, special tokens included."""
        ...

    def drops_tools(self) -> bool:
        """Tell whether the chat template leaves tools out of the prompt."""
        ...


class AnswerParser(Protocol):
    """Turn generated tokens into deltas: text, reasoning, tool calls; find stop strings."""

    @property
    def stopped(self) -> bool:
        """Tell whether a stop string has been met; no more tokens are wanted then."""
        ...

    def feed(self, token: int) -> list[AnswerDelta]:
        """Take one token; return what can be shown now. Text that may begin a marker is held back."""
        ...

    def spell(self, token: int) -> bytes:
        """Return a token's text: for a part of a character, its bytes of it."""
        ...

    def finish(self) -> list[AnswerDelta]:
        """Return what was held back. Call once, after the last token."""
        ...


#: Options a chat template takes, by name.
TemplateOptions = dict[str, Any]
