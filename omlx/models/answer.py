"""Turn generated tokens into deltas: visible text, reasoning, tool calls, and the end at a stop string.

mlx-lm does the parts: its streaming detokenizer gives text that never breaks a character, its
`TextStateMachine` finds markers in that text whatever the tokens, its tool parsers read a call. Here they are
put together, so that what comes out does not depend on how the text was cut into tokens.

Rules:

- Tool markers mean something only when the request has tools; otherwise they are text.
- A stop string ends the answer in visible text only: inside a tool's arguments or in reasoning it would cut
  what the client never sees as text.
- White space around a block (reasoning, a call) is the template's and is dropped: the next prompt then
  renders to what was generated. White space elsewhere is kept.
- A call that cannot be read is delivered as text, markers included.
- Half a character at the end of an answer is dropped.
"""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import structlog
from mlx_lm import tokenizer_utils
from mlx_lm.generate import TextStateMachine

from omlx.errors import ModelLoadError
from omlx.models.spelling import speller
from omlx.text.delta import AnswerDelta, ReasoningDelta, TextDelta, ToolCallDelta
from omlx.types import Tokens

log = structlog.get_logger()

#: Edges of the state machine: state -> (marker, next state); a next state of None ends the answer.
_Edges = dict[str, list[tuple[str, str | None]]]

#: Where a generation prompt may open reasoning: its last tokens.
_TAIL_TOKENS = 16


class AnswerParsers:
    """Make parsers for the answers of one model. Built once: it reads the folder's tokenizer (1-5 s)."""

    def __init__(self, folder: Path) -> None:
        try:
            self._tokenizer = tokenizer_utils.load(folder)
        except (OSError, ValueError, KeyError) as error:
            raise ModelLoadError(
                f"the tokenizer in {folder.name!r} cannot be loaded: {error}",
                hint="check that tokenizer.json and tokenizer_config.json are complete",
            ) from error
        token_map = getattr(self._tokenizer.detokenizer, "tokenmap", ())
        holes = [token for token, text in enumerate(token_map) if text is None]
        self._spell = speller(self._tokenizer)
        self._silent = frozenset([*self._tokenizer.eos_token_ids, *holes])
        # a model's vocabulary may be padded beyond the tokenizer's
        self._num_tokens = len(self._tokenizer)

    @property
    def tokenizer(self) -> Any:
        """The transformers tokenizer underneath, for `FolderTokenizer` to share instead of reading its own.

        Sharing is safe: here it only decodes, which changes nothing in a fast tokenizer.
        """
        return self._tokenizer._tokenizer  # noqa: SLF001 - the wrapper's own rendering adds options

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
            self._spell,
            TextStateMachine(edges),
            start,
            _ToolReader(tokenizer, list(tools)) if with_tools else None,
            lambda token: token < self._num_tokens and token not in self._silent,
        )

    def _start(self, prompt: Tokens) -> str:
        """Return `reasoning` when the prompt ends with an opened block (of the generation prompt)."""
        if not self._tokenizer.has_thinking:
            return "normal"
        tail = self._tokenizer.decode(prompt[-_TAIL_TOKENS:].tolist(), skip_special_tokens=False)
        return "reasoning" if tail.rstrip().endswith(self._tokenizer.think_start) else "normal"


class ModelAnswerParser:
    """An `AnswerParser` over mlx-lm's pieces; holds the state of one answer."""

    def __init__(
        self,
        detokenizer: Any,
        spell: Callable[[int], bytes],
        machine: TextStateMachine,
        start: str,
        tools: "_ToolReader | None",
        speaks: Callable[[int], bool],
    ) -> None:
        self._detokenizer = detokenizer
        self.spell = spell
        self._state = machine.make_state(start)
        self._speaks = speaks
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

        Tokens that end an answer, tokens without text and tokens after a stop string are ignored.
        """
        if self.stopped or not self._speaks(token):
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

    def _enter(self, state: str | None) -> list[AnswerDelta]:
        """Change the state; return what the end of the block before gives."""
        left, self._in = self._in, state
        if left == "tool":
            self._shown.restart()
            return self._end_call(closed=True)
        if left == "reasoning":
            self._shown.restart()
        if state == "reasoning":
            self._thought.restart()
        if left == "normal":
            held = self._shown.rest()
            return _text(held) if state is None else []
        return []

    def _end_call(self, *, closed: bool) -> list[AnswerDelta]:
        text, self._call = "".join(self._call), []
        return self._tools.read(text, closed=closed) if self._tools else _text(text)


class _Trimmer:
    """Pass text on without the line breaks after a block and, if asked, the white space before the next."""

    def __init__(self, *, hold_back: bool, fresh: bool = False) -> None:
        self._hold_back = hold_back
        self._fresh = fresh
        self._held = ""

    def take(self, piece: str) -> str:
        text = self._held + piece
        if self._fresh:
            text = text.lstrip("\n")
        core = text.rstrip() if self._hold_back else text
        self._held = text[len(core) :]
        self._fresh = self._fresh and not core
        return core

    def rest(self) -> str:
        """Return the white space held back, unless there is nothing but white space since the last block."""
        held, self._held = self._held, ""
        return "" if self._fresh else held

    def restart(self) -> None:
        self._fresh, self._held = True, ""


class _ToolReader:
    """Read the calls of one answer. Never raises for what a model wrote."""

    def __init__(self, tokenizer: tokenizer_utils.TokenizerWrapper, tools: list[Mapping[str, Any]]) -> None:
        self._tokenizer = tokenizer
        self._tools = tools
        self._num_calls = 0

    def read(self, text: str, *, closed: bool) -> list[AnswerDelta]:
        """Return the calls in the text of one block, or the block as text when it cannot be read."""
        try:
            calls = _calls(self._tokenizer.tool_parser(text, self._tools))
        except _UNREADABLE as error:
            log.warning("tool call cannot be read", characters=len(text), reason=type(error).__name__)
            end = self._tokenizer.tool_call_end if closed else ""
            return _text(f"{self._tokenizer.tool_call_start}{text}{end}")
        deltas: list[AnswerDelta] = []
        for name, arguments in calls:
            deltas.append(ToolCallDelta(self._num_calls, f"call_{uuid.uuid4().hex[:24]}", name, arguments))
            self._num_calls += 1
        return deltas


#: What mlx-lm's tool parsers, and reading their result, raise for text that is no call.
_UNREADABLE = (ValueError, LookupError, TypeError, AttributeError, SyntaxError, RecursionError)


def _calls(parsed: Any) -> list[tuple[str, str]]:
    """Return name and arguments (JSON text) of each call. Raises one of `_UNREADABLE`."""
    found = parsed if isinstance(parsed, list) else [parsed]
    if not found:
        raise ValueError("no call")
    return [(_name(call), _arguments(call.get("arguments"))) for call in found]


def _name(call: Any) -> str:
    name = call["name"]
    if not isinstance(name, str) or not name:
        raise TypeError("the name is no text")
    return name


def _arguments(value: Any) -> str:
    # some models quote the object once more
    arguments = json.loads(value) if isinstance(value, str) else value
    if not isinstance(arguments, dict | None):
        raise TypeError("the arguments are no object")
    return json.dumps(arguments or {}, ensure_ascii=False, allow_nan=False)


def _text(text: str) -> list[AnswerDelta]:
    return [TextDelta(text)] if text else []


def _add_blocks(edges: _Edges, tokenizer: tokenizer_utils.TokenizerWrapper, with_tools: bool) -> None:
    """Add the markers of this model: reasoning, tools, and a response format of its own."""
    special = tokenizer.response_transitions
    if tokenizer.has_thinking:
        edges["normal"].append((tokenizer.think_start, "reasoning"))
        # a model may open once more what the generation prompt has opened
        edges["reasoning"] += [(tokenizer.think_end, "normal"), (tokenizer.think_start, "reasoning")]
    if with_tools:
        if not any(target == "tool" for pairs in special.values() for _, target in pairs):
            edges["normal"].append((tokenizer.tool_call_start, "tool"))
        # a model may call without closing its reasoning
        edges["reasoning"].append((tokenizer.tool_call_start, "tool"))
        if tokenizer.tool_call_end:
            edges["tool"].append((tokenizer.tool_call_end, "normal"))
    edges["normal"] += [(marker, "normal") for marker in tokenizer.structural_markers]
    for state, pairs in special.items():
        edges.setdefault(state, []).extend(pair for pair in pairs if with_tools or pair[1] != "tool")


def _detokenizer(tokenizer: tokenizer_utils.TokenizerWrapper, plain: bool) -> Any:
    """Return an own streaming detokenizer (a copy that shares the token map) that keeps a leading space.

    mlx-lm drops it to mimic sentence-piece decoding, which only the first text of a SentencePiece chat wants.
    """
    detokenizer = tokenizer.detokenizer
    if isinstance(detokenizer, tokenizer_utils.BPEStreamingDetokenizer):
        detokenizer.text, detokenizer.offset = "\0", 1  # it trims only while its text is empty
    elif plain and isinstance(detokenizer, tokenizer_utils.SPMStreamingDetokenizer):
        detokenizer.trim_space = False
    return detokenizer
