"""tokenize: render the conversation with the model's chat template and turn it into tokens."""

import time
from collections.abc import Sequence
from typing import ClassVar

import numpy as np

from omlx.errors import ContextLengthError, RequestError
from omlx.pipeline.stage import Lane, Services, Stage
from omlx.pipeline.state import State
from omlx.text.chat import ChatPrompt, TokenPrompt
from omlx.text.seams import Encoding
from omlx.types import as_tokens


class TokenizeStage(Stage, frozen=True, tag="tokenize"):
    """Render the prompt and tokenize it; refuse what does not fit the window, before any work is done."""

    requires: ClassVar[tuple[str, ...]] = ("request", "model")
    uses: ClassVar[tuple[str, ...]] = ("prompt",)
    assigns: ClassVar[tuple[str, ...]] = ("text", "starts", "tokens")
    lane: ClassVar[Lane] = "host"

    def run(self, state: State, services: Services) -> None:
        """Assign the prompt's text, tokens and the character at which each token begins.

        Raises ContextLengthError when not even one token of an answer would fit; RequestError for an empty prompt.
        """
        started = time.perf_counter()
        text, encoding = self._encode(state)
        spent = time.perf_counter() - started
        services.costs.observe(state.model.fingerprint, "tokenize", len(encoding.tokens), spent)
        if len(encoding.tokens) == 0:
            raise RequestError(
                "the prompt is empty", param="messages", hint="send at least one token of text"
            )
        if len(encoding.tokens) >= state.model.window_tokens:
            raise ContextLengthError(len(encoding.tokens), state.model.window_tokens)
        state.text, state.tokens, state.starts = text, encoding.tokens, encoding.starts

    def _encode(self, state: State) -> tuple[str, Encoding]:
        prompt = state.prompt or state.request.prompt
        tokenizer = state.model.tokenizer
        if isinstance(prompt, TokenPrompt):
            _check_ids(prompt.tokens, state.model.vocabulary_tokens)
            ids = as_tokens(prompt.tokens)
            return "", Encoding(ids, np.zeros_like(ids))
        if isinstance(prompt, ChatPrompt):
            text = tokenizer.render(prompt)
            return text, tokenizer.encode(text)
        return prompt.text, tokenizer.encode(prompt.text, add_special_tokens=True)


def _check_ids(ids: Sequence[int], vocabulary_tokens: int | None) -> None:
    """Raise RequestError for a token id that the model does not have."""
    above = vocabulary_tokens or 2**31
    wrong = next((token for token in ids if not 0 <= token < above), None)
    if wrong is not None:
        raise RequestError(
            f"token id {wrong} does not exist", param="prompt", hint=f"use ids from 0 to {above - 1}"
        )
