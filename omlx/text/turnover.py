"""What a turn loses: the end of a prompt that the prompt of the next turn does not begin with.

    turn 1   tools  system  user | generation prompt
    turn 2   tools  system  user | assistant  user  generation prompt
                                 └ here they part; the generation prompt is lost, and no more should be

Found by rendering both, as text: what they share need not be tokenized. A template that moves the tools to the last
user message, or words the head by what stands at the end, loses far more: at every turn, whatever cache is behind it.
"""

from itertools import takewhile

from omlx.errors import RequestError
from omlx.text.chat import ChatPrompt, Message
from omlx.text.seams import TemplateOptions, Tokenizer

#: Longer than a block in any vocabulary, so that what moves is seen to move.
_LONG = "Read a file of the project and return its text, line by line. " * 60
_TOOL = {
    "type": "function",
    "function": {"name": "read", "description": _LONG, "parameters": {"type": "object", "properties": {}}},
}
_FIRST = (Message("system", _LONG), Message("user", "Read notes.txt, please."))
_LATER = (*_FIRST, Message("assistant", "It says hello."), Message("user", "And the second line?"))


def lost_tokens(tokenizer: Tokenizer, options: TemplateOptions) -> int | None:
    """Return how many tokens of a prompt the next turn does not begin with; None when the template refuses such a talk.

    `options` are those that the model gives its template.
    """
    try:
        first, later = (_render(tokenizer, messages, options) for messages in (_FIRST, _LATER))
    except RequestError:
        return None
    alike = takewhile(lambda pair: pair[0] == pair[1], zip(first, later, strict=False))
    return len(tokenizer.encode(first[sum(1 for _ in alike) :]).tokens)


def _render(tokenizer: Tokenizer, messages: tuple[Message, ...], options: TemplateOptions) -> str:
    return tokenizer.render(ChatPrompt(messages, tools=(_TOOL,), template_options=options))
