"""Turn generated tokens into deltas: visible text, reasoning, tool calls, and the end at a stop string.

mlx-lm does the parts: its streaming detokenizer gives text that never breaks a character, its
`TextStateMachine` finds markers in that text whatever the tokens, its tool parsers read a call. Here they are
put together, so that what comes out does not depend on how the text was cut into tokens.

Rules:

- Tool markers mean something only when the request has tools; otherwise they are text.
- A stop string ends the answer in visible text only: one inside a tool's arguments or in reasoning would cut
  what the client never sees as text.
- White space around a block (reasoning, a call) is the template's and is dropped: the next prompt then renders
  to what was generated. White space elsewhere is kept.
- A call that cannot be read is delivered as text, markers included. Half a character at the end is dropped.
"""

import json
import logging
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from mlx_lm import tokenizer_utils
from mlx_lm.generate import TextStateMachine

from omlx.errors import ModelLoadError
from omlx.text.delta import AnswerDelta, ReasoningDelta, TextDelta, ToolCallDelta
from omlx.types import Tokens

log = logging.getLogger(__name__)

#: Edges of the state machine: state -> (marker, next state); a next state of None ends the answer.
_Edges = dict[str, list[tuple[str, str | None]]]

#: Where a generation prompt may open reasoning: its last tokens.
_TAIL_TOKENS = 16


class AnswerParsers:
    """Make parsers for the answers of one model. Built once; loading the tokenizer takes about a second."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = tokenizer_utils.load(folder)
        except (OSError, ValueError, KeyError) as error:
            raise ModelLoadError(
                f"the tokenizer in {folder.name!r} cannot be loaded: {error}",
                hint="check that tokenizer.json and tokenizer_config.json are complete",
            ) from error

    def new(
        self,
        prompt: Tokens,
        stop: tuple[str, ...] = (),
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        plain: bool = False,
    ) -> "ModelAnswerParser":
        """Return a parser for one answer to `prompt`.

        `tools` are the request's tools in the OpenAI form. With `plain` (raw completions) all is text.
        """
        tokenizer = self._tokenizer
        with_tools = bool(tools) and not plain and tokenizer.has_tool_calling
        edges: _Edges = {"normal": [], "reasoning": [], "tool": []}
        start = "normal"
        if not plain:
            _add_blocks(edges, tokenizer, with_tools)
            start = tokenizer.response_initial_state or self._start(prompt)
        edges["normal"] += [(text, None) for text in stop if text]
        return ModelAnswerParser(
            _detokenizer(tokenizer, plain),
            TextStateMachine({state: pairs for state, pairs in edges.items() if pairs}),
            start,
            _ToolReader(tokenizer, list(tools)) if with_tools else None,
            frozenset(tokenizer.eos_token_ids),
        )

    def _start(self, prompt: Tokens) -> str:
        """Return `reasoning` when the prompt ends with an opened block (of the generation prompt)."""
        if not self._tokenizer.has_thinking:
            return "normal"
        # decoding does not change a fast tokenizer, so it is safe beside other threads
        tail = self._tokenizer.decode(prompt[-_TAIL_TOKENS:].tolist(), skip_special_tokens=False)
        return "reasoning" if tail.rstrip().endswith(self._tokenizer.think_start) else "normal"


class ModelAnswerParser:
    """An `AnswerParser` over mlx-lm's pieces; holds the state of one answer."""

    def __init__(
        self,
        detokenizer: Any,
        machine: TextStateMachine,
        start: str,
        tools: "_ToolReader | None",
        eos_token_ids: frozenset[int],
    ) -> None:
        self._detokenizer = detokenizer
        self._state = machine.make_state(start)
        self._eos_token_ids = eos_token_ids
        self._tools = tools
        self._shown = _Trimmer(hold_back=tools is not None)
        self._thought = _Trimmer(hold_back=True, fresh=True)
        self._call: list[str] = []
        self._in: str | None = start

    @property
    def stopped(self) -> bool:
        """Tell whether a stop string has been met; no more tokens are wanted then."""
        return self._in is None

    def feed(self, token: int) -> list[AnswerDelta]:
        """Take one token; return what can be shown now. Text that may begin a marker is held back.

        Tokens that end an answer, and tokens after a stop string, are ignored.
        """
        if self.stopped or token in self._eos_token_ids:
            return []
        self._detokenizer.add_token(token)
        return self._read(self._detokenizer.last_segment)

    def finish(self) -> list[AnswerDelta]:
        """Return what was held back. Call once, after the last token."""
        if self.stopped:
            return []
        self._detokenizer.finalize()
        deltas = self._read(self._detokenizer.last_segment.rstrip("\ufffd"))
        if self.stopped:
            return deltas
        _, rest, state = TextStateMachine.flush(self._state)
        deltas += self._take(state, rest)
        if state == "tool":
            return deltas + self._end_call(closed=False)
        return deltas + _text(self._shown.rest())

    def _read(self, text: str) -> list[AnswerDelta]:
        if not text:
            return []
        self._state, pieces = TextStateMachine.split(self._state, text)
        return [delta for state, piece in pieces for delta in self._take(state, piece)]

    def _take(self, state: str | None, piece: str) -> list[AnswerDelta]:
        """Take a piece of text of one state; a change of state ends the block before."""
        deltas = self._enter(state) if state != self._in else []
        match state:
            case "normal":
                return deltas + _text(self._shown.take(piece))
            case "reasoning":
                thought = self._thought.take(piece)
                return deltas + ([ReasoningDelta(thought)] if thought else [])
            case "tool":
                self._call.append(piece)
        return deltas
