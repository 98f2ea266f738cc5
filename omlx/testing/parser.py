"""PlainParser: an answer parser for byte tokens that knows text and stop strings, nothing else."""

import codecs

from omlx.testing.tokenizer import spelled
from omlx.text.delta import AnswerDelta, TextDelta


class PlainParser:
    """An `AnswerParser` for one answer of a `ByteTokenizer`. Special tokens are not shown."""

    def __init__(self, stop: tuple[str, ...] = ()) -> None:
        self._stop = tuple(text for text in stop if text)
        self._bytes = codecs.getincrementaldecoder("utf-8")("replace")
        self._held = ""
        self._stopped = False

    @property
    def stopped(self) -> bool:
        """Tell whether a stop string has been met; no more tokens are wanted then."""
        return self._stopped

    def feed(self, token: int) -> list[AnswerDelta]:
        """Take one token; return what can be shown now. Text that may begin a stop string is held back."""
        if self._stopped or token > 255:
            return []
        self._held += self._bytes.decode(bytes([token]))
        found = [at for text in self._stop if (at := self._held.find(text)) >= 0]
        if found:
            self._stopped = True
            return self._show(min(found))
        return self._show(len(self._held) - self._may_begin_stop())

    def spell(self, token: int) -> bytes:
        """Return the byte that a token stands for, or a special token's text."""
        return spelled(token)

    def finish(self) -> list[AnswerDelta]:
        """Return what was held back; half a character is dropped."""
        return [] if self._stopped else self._show(len(self._held))

    def _may_begin_stop(self) -> int:
        """Return how many characters at the end may be the beginning of a stop string."""
        lengths = [n for text in self._stop for n in range(1, len(text)) if self._held.endswith(text[:n])]
        return max(lengths, default=0)

    def _show(self, length: int) -> list[AnswerDelta]:
        text, self._held = self._held[:length], self._held[length:]
        return [TextDelta(text)] if text else []
