r"""What a chat template puts around a message of each kind, measured on conversations of a few words.

`<|im_start|>user\n` opens a user's message and `<|im_end|>\n` closes it; a tool's result may share its
wrapper with the next one. Nothing is assumed: a wrapper that cannot be measured is the empty string.
"""

from typing import Literal, TypeAlias

from omlx.errors import RequestError
from omlx.text.chat import ChatPrompt, Message, ToolCall
from omlx.text.seams import TemplateOptions, Tokenizer

#: Texts of conversations of a few words, by their name here and whether a generation prompt follows.
Rendered: TypeAlias = dict[tuple[str, bool], str]

#: What a template wraps in its own way. `late` is a system message after others; `calls` an assistant that
#: calls tools.
Kind: TypeAlias = Literal["tools", "system", "late", "user", "assistant", "calls", "tool"]

_USER = Message("user", "zquser")
_AGAIN = Message("user", "zqagain")
_SYSTEM = Message("system", "zqsystem")
_ANSWER = Message("assistant", "zqanswer")
_CALLS = Message("assistant", tool_calls=(ToolCall("zqname", {"zqkey": "zqvalue"}, id="zqid"),))
_RESULT = Message("tool", "zqresult", tool_call_id="zqid")

#: Conversations by the kind of their last message; `again` has one more user message.
_TALKS: dict[Kind | Literal["again"], tuple[Message, ...]] = {
    "system": (_SYSTEM,),
    "late": (_USER, _ANSWER, _SYSTEM),
    "user": (_USER,),
    "assistant": (_USER, _ANSWER),
    "calls": (_USER, _CALLS),
    "tool": (_USER, _CALLS, _RESULT),
    "again": (_USER, _ANSWER, _AGAIN),
}

#: The last word of the conversation that ends with a message of the kind.
_LAST_WORD: dict[Kind, str] = {
    "system": "zqsystem",
    "late": "zqsystem",
    "user": "zquser",
    "assistant": "zqanswer",
    "calls": "zqvalue",
    "tool": "zqresult",
}

#: Where a message of the kind follows another: the conversation, the kind before, the word after the gap.
_FOLLOWS: dict[Kind, tuple[Kind | Literal["again"], Kind, str]] = {
    "user": ("again", "assistant", "zqagain"),
    "assistant": ("assistant", "user", "zqanswer"),
    "calls": ("assistant", "user", "zqanswer"),
    "tool": ("tool", "calls", "zqresult"),
}


class Wrappers:
    """Measure each wrapper when it is first asked for; one render of a few words each (0.1 ms).

    Args:
        tokenizer: its chat template is measured.
        options: the template's.
        rendered: what was rendered before with the same template and options; more is added to it.
    """

    def __init__(
        self, tokenizer: Tokenizer, options: TemplateOptions, rendered: Rendered | None = None
    ) -> None:
        self._tokenizer = tokenizer
        self._options = options
        self.rendered: Rendered = {} if rendered is None else rendered

    def closing(self, kind: Kind) -> str:
        """Return what follows a message of this kind when it is the last one."""
        if kind not in _LAST_WORD:
            return ""
        _, found, after = self._render(kind).rpartition(_LAST_WORD[kind])
        return after if found else ""

    def opening(self, kind: Kind) -> str:
        """Return what precedes a message of this kind, after the message before it was closed."""
        if kind not in _FOLLOWS:
            return ""
        talk, kind_before, word = _FOLLOWS[kind]
        _, _, after = self._render(talk).partition(_LAST_WORD[kind_before])
        gap, found, _ = after.partition(word)
        closing = self.closing(kind_before)
        return gap.removeprefix(closing) if found and gap.startswith(closing) else ""

    def generation(self) -> str:
        """Return the generation prompt that follows a user's message."""
        closed, asked = self._render("user"), self._render("user", generation=True)
        return asked.removeprefix(closed) if closed and asked.startswith(closed) else ""

    def _render(self, talk: Kind | Literal["again"], *, generation: bool = False) -> str:
        key = (talk, generation)
        if key not in self.rendered:
            prompt = ChatPrompt(_TALKS[talk], template_options=self._options)
            try:
                text = self._tokenizer.render(prompt, add_generation_prompt=generation)
            except RequestError:
                text = ""  # this template has no such conversation
            self.rendered[key] = text
        return self.rendered[key]
