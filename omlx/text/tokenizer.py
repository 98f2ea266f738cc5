"""The tokenizer and chat template of a model folder."""

import re
import threading
from collections.abc import Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np
import structlog

from omlx.errors import ModelLoadError, RequestError
from omlx.text.chat import ChatPrompt
from omlx.text.memo import PieceMemo, Spans, Spelled
from omlx.text.pieces import Cutter, find_cutter
from omlx.text.seams import Encoding
from omlx.text.template import Row, TemplateShape, probe_shape, template_rows
from omlx.types import Tokens, as_tokens

log = structlog.get_logger()

_PROBE_TOOL: dict[str, Any] = {
    "type": "function",
    "function": {
        "name": "zqtool",
        "description": "zqdescription",
        "parameters": {"type": "object", "properties": {}},
    },
}

#: What a tokenizer may hold of texts it has tokenized: some 50 conversations of 24,000 tokens.
MEMO_BYTES = 32 * 1024**2


class FolderTokenizer:
    """A `Tokenizer` read from a model folder on first use. One lock around all calls.

    `loaded` is the folder's transformers tokenizer, where someone has it already: reading one with 262k
    tokens takes 3-5 s. `memo_bytes` bounds what is remembered of texts; 0 remembers nothing.

    Why a lock: two threads that encode with one fast tokenizer at once fail with "Already borrowed".
    """

    def __init__(self, folder: Path, loaded: Any = None, *, memo_bytes: int = MEMO_BYTES) -> None:
        self.folder = folder
        self._lock = threading.RLock()
        self._loaded = loaded
        self._shapes: dict[str, TemplateShape] = {}
        self._tools_dropped: dict[str, bool] = {}
        self._memo = PieceMemo(self._spell, memo_bytes)
        self._cutter: Cutter | None = None
        self._may_cut = memo_bytes > 0

    def render(self, prompt: ChatPrompt, *, add_generation_prompt: bool = True) -> str:
        """Return the prompt's text by the model's chat template.

        Raises RequestError when the template refuses the conversation, or the model has none.
        """
        with self._lock:
            source = self._template(prompt)
            options = self._options(prompt)
            if prompt.tools:
                self._drops_tools(source)
            rows = template_rows(prompt.messages, self._shape(source))
            tools = list(prompt.tools) or None
            try:
                return self._apply(source, rows, tools, add_generation_prompt, options)
            except _template_errors() as error:
                raise _refusal(error, prompt) from error

    def encode(self, text: str, *, add_special_tokens: bool = False) -> Encoding:
        """Return the tokens of `text`. A rendered chat brings its own special tokens.

        What was tokenized before is remembered where that is exact (`omlx.text.pieces`).
        """
        with self._lock:
            cutter = None if add_special_tokens else self._found_cutter()
            pieces = cutter.pieces(text) if cutter else [text]
            if len(pieces) > 1:
                found = self._memo.spell(pieces)
            else:
                [found] = self._spell(pieces, add_special_tokens=add_special_tokens)
        return Encoding(found.tokens, token_starts(found.spans))

    def _found_cutter(self) -> Cutter | None:
        """Return what cuts texts for this tokenizer; looked for once."""
        if self._may_cut and self._cutter is None:
            self._cutter = find_cutter(self._tokenizer())
            self._may_cut = self._cutter is not None
        return self._cutter

    def _spell(self, texts: Sequence[str], *, add_special_tokens: bool = False) -> list[Spelled]:
        found = self._tokenizer()(
            list(texts),
            add_special_tokens=add_special_tokens,
            return_offsets_mapping=True,
            return_attention_mask=False,
            verbose=False,
        )
        pairs = zip(found["input_ids"], found["offset_mapping"], strict=True)
        return [Spelled(as_tokens(ids), as_spans(spans)) for ids, spans in pairs]

    def decode(self, tokens: Tokens) -> str:
        """Return the text of `tokens`, special tokens included."""
        with self._lock:
            return str(
                self._tokenizer().decode(
                    tokens.tolist(), skip_special_tokens=False, clean_up_tokenization_spaces=False
                )
            )

    def shape(self) -> TemplateShape:
        """Return what the chat template renders in place. Raises RequestError when the model has none."""
        with self._lock:
            return self._shape(self._template(ChatPrompt(())))

    def drops_tools(self) -> bool:
        """Tell whether the chat template leaves tools out of the prompt."""
        with self._lock:
            return self._drops_tools(self._template(ChatPrompt((), (_PROBE_TOOL,))))

    def _drops_tools(self, source: str) -> bool:
        """Try a template with a tool, once; say in the log when it does not come out."""
        if source not in self._tools_dropped:
            try:
                text = self._apply(source, [{"role": "user", "content": "zquser"}], [_PROBE_TOOL], False, {})
            except _template_errors():
                text = "zqtool"  # not an answer to what was asked: nothing is claimed
            self._tools_dropped[source] = "zqtool" not in text
            if self._tools_dropped[source]:
                log.warning("the chat template leaves tools out of the prompt", model=self.folder.name)
        return self._tools_dropped[source]

    def _tokenizer(self) -> Any:
        if self._loaded is None:
            self._loaded = _load(self.folder)
        return self._loaded

    def _template(self, prompt: ChatPrompt) -> str:
        tokenizer = self._tokenizer()
        if tokenizer.chat_template is None:
            raise RequestError(
                f"the model in {self.folder.name!r} has no chat template",
                param="messages",
                hint="it is a base model: use /v1/completions, or put a chat_template.jinja into its folder",
            )
        return str(tokenizer.get_chat_template(tools=list(prompt.tools) or None))

    def _options(self, prompt: ChatPrompt) -> dict[str, Any]:
        taken = prompt.template_options.keys() & _RESERVED
        if taken:
            raise RequestError(
                f"template options may not set {', '.join(sorted(taken))}", param="chat_template_kwargs"
            )
        return prompt.template_options

    def _shape(self, source: str) -> TemplateShape:
        """Return the shape of a template; found once, a model has one or two."""
        if source not in self._shapes:
            self._shapes[source] = probe_shape(source, lambda rows: self._try(source, rows))
        return self._shapes[source]

    def _try(self, source: str, rows: list[Row]) -> str | None:
        try:
            return self._apply(source, rows, None, False, {})
        except _template_errors():
            return None

    def _apply(
        self,
        source: str,
        rows: list[Row],
        tools: list[dict[str, Any]] | None,
        add_generation_prompt: bool,
        options: dict[str, Any],
    ) -> str:
        return str(
            self._tokenizer().apply_chat_template(
                rows,
                tools=tools,
                chat_template=source,
                add_generation_prompt=add_generation_prompt,
                tokenize=False,
                **options,
            )
        )


def as_spans(offsets: Sequence[tuple[int, int]]) -> Spans:
    """Return pairs of characters as an array: `(n, 2) int32`. In 3 ms for 24,000; from the pairs, NumPy takes 8."""
    return np.fromiter(chain.from_iterable(offsets), np.int32, 2 * len(offsets)).reshape(-1, 2)


def token_starts(spans: Spans) -> Tokens:
    """Return the character at which each token begins, from its `(start, end)` characters: `(n,)` int32.

    A token that begins inside a character (byte-level BPE, byte fallback) gets the start of the token that
    began that character, so that tokens with one start are cut together. Space that offsets leave out (a
    tokenizer that trims them) belongs to the token after it.
    """
    if not len(spans):
        return as_tokens([])
    ends = np.maximum.accumulate(spans[:, 1])
    before = np.concatenate([np.zeros(1, np.int32), ends[:-1]])
    starts = np.where(spans[:, 0] < before, 0, before)
    return as_tokens(np.maximum.accumulate(starts))


#: What a request's template options may not name: they are arguments of the call, or replace the template.
_RESERVED = frozenset(
    {
        "add_generation_prompt", "chat_template", "continue_final_message", "conversation", "conversations",
        "documents", "max_length", "messages", "padding", "return_assistant_tokens_mask", "return_dict",
        "return_tensors", "sanitize_control_tokens", "tokenize", "tokenizer_kwargs", "tools", "truncation",
    }
)  # fmt: skip


def _load(folder: Path) -> Any:
    # transformers takes 1.4 s to import (two cores); nothing but a model's text needs it
    from transformers import AutoTokenizer  # noqa: PLC0415

    try:
        return AutoTokenizer.from_pretrained(folder, local_files_only=True, trust_remote_code=False)
    except (OSError, ValueError, KeyError) as error:
        raise ModelLoadError(
            f"the tokenizer in {folder.name!r} cannot be loaded: {error}",
            hint="check that tokenizer.json and tokenizer_config.json are complete",
        ) from error


def _template_errors() -> tuple[type[Exception], ...]:
    """What a template raises: its own complaint, or Python's, when a value is not of the kind it expects."""
    # jinja2 takes 0.09 s to import, and transformers imports it anyway
    from jinja2 import TemplateError  # noqa: PLC0415

    return (TemplateError, TypeError, ValueError, LookupError, AttributeError, RecursionError)


def _refusal(error: Exception, prompt: ChatPrompt) -> RequestError:
    """Say what the template said; name the call whose arguments are no JSON object, if that may be why."""
    for index, message in enumerate(prompt.messages):
        for number, call in enumerate(message.tool_calls):
            if isinstance(call.arguments, str):
                return RequestError(
                    f"the model's chat template cannot render the arguments of {call.name!r}: {error}",
                    param=f"messages[{index}].tool_calls[{number}].function.arguments",
                    hint="send a JSON object",
                )
    kind = "" if type(error).__module__.startswith("jinja2") else f"{type(error).__name__}: "
    text = re.sub(r"\s+", " ", str(error)).strip()
    return RequestError(
        f"the model's chat template refuses this conversation: {kind}{text}",
        param="messages",
        hint="check the order of the roles, and what the model's template supports",
    )
