r"""ByteTokenizer: one token a byte, a few special tokens, and a chat template in the manner of ChatML.

<|im_start|>tools\n[{...}]<|im_end|>\n
<|im_start|>user\nhello<|im_end|>\n
<|im_start|>assistant\n
"""

import json
import re

from omlx.text.chat import ChatPrompt, Message
from omlx.text.seams import Encoding
from omlx.types import Tokens, as_tokens

#: Special tokens by their text; bytes are 0-255.
SPECIALS = {"<|im_start|>": 256, "<|im_end|>": 257}
#: The token that ends an answer.
END = SPECIALS["<|im_end|>"]

_TEXTS = {token: text for text, token in SPECIALS.items()}
_PARTS = re.compile("(" + "|".join(re.escape(text) for text in SPECIALS) + ")")


class ByteTokenizer:
    """A `Tokenizer` without a model folder."""

    def render(self, prompt: ChatPrompt, *, add_generation_prompt: bool = True) -> str:
        """Return the conversation's text. Refuses nothing."""
        parts = [_turn("tools", json.dumps(prompt.tools))] if prompt.tools else []
        parts += [_turn(message.role, _content(message)) for message in prompt.messages]
        if add_generation_prompt:
            parts.append("<|im_start|>assistant\n")
        return "".join(parts)

    def encode(self, text: str, *, add_special_tokens: bool = False) -> Encoding:  # noqa: ARG002 - adds none
        """Return the tokens of `text`; the bytes of one character all start at it."""
        ids: list[int] = []
        starts: list[int] = []
        at = 0
        for part in _PARTS.split(text):
            if part in SPECIALS:
                ids.append(SPECIALS[part])
                starts.append(at)
                at += len(part)
                continue
            for char in part:
                encoded = char.encode("utf-8", "surrogatepass")
                ids += encoded
                starts += [at] * len(encoded)
                at += 1
        return Encoding(as_tokens(ids), as_tokens(starts))

    def decode(self, tokens: Tokens) -> str:
        """Return the text of `tokens`, special tokens included."""
        return b"".join(map(spelled, tokens.tolist())).decode("utf-8", "replace")

    def drops_tools(self) -> bool:
        """Return False: they are rendered."""
        return False


def spelled(token: int) -> bytes:
    """Return the byte that a token stands for, or a special token's text."""
    return _TEXTS[token].encode() if token in _TEXTS else bytes([token])


def _turn(role: str, content: str) -> str:
    return f"<|im_start|>{role}\n{content}<|im_end|>\n"


def _content(message: Message) -> str:
    calls = [json.dumps({"name": call.name, "arguments": call.arguments}) for call in message.tool_calls]
    return "\n".join([message.content, *calls]) if calls else message.content
