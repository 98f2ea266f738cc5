"""decode: produce the answer, token by token."""

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import Answer, State
from omlx.pipeline.work import Chances, Decode
from omlx.text.delta import AnswerDelta, FinishReason, ReasoningDelta, TextDelta, TokenLogprob, ToolCallDelta
from omlx.text.seams import AnswerParser


class DecodeStage(Stage, frozen=True, tag="decode"):
    """Decode until an end token, a stop string, the token limit or the window; emit text as it comes."""

    requires: ClassVar[tuple[str, ...]] = ("request", "model", "tokens", "sequence")
    uses: ClassVar[tuple[str, ...]] = ("prompt",)
    assigns: ClassVar[tuple[str, ...]] = ("answer",)
    lane: ClassVar[Lane] = "device"

    def run(self, state: State, services: Services) -> Steps:
        """Assign how the answer ended and how many tokens it has."""
        request, model = state.request, state.model
        parser = model.new_parser(state.prompt or request.prompt, state.tokens, request.stop)
        voice = _Voice(state, parser)
        limit = self._limit(state)
        reason: FinishReason = "length"
        count = 0
        while count < limit:
            token: int = yield Decode(state.sequence, last=count + 1 == limit)
            count += 1
            if token in model.eos_tokens and not request.ignore_eos:
                reason = "stop"
                break
            voice.weigh(token, state.sequence.chances)
            voice.say(parser.feed(token))
            if parser.stopped:
                reason = "stop"
                break
        voice.say(parser.finish())
        voice.end()
        spent = state.sequence.device_s.get("decode", 0.0)
        services.costs.observe(model.fingerprint, "decode", count, spent)
        state.answer = Answer("tool_calls" if voice.called and reason == "stop" else reason, count)

    @staticmethod
    def _limit(state: State) -> int:
        """Return the most tokens the answer may have: the request's, the model's, what the window leaves."""
        room = state.model.window_tokens - state.sequence.prompt_tokens
        wanted = state.request.max_tokens or state.model.max_tokens or room
        return min(wanted, room)


class _Voice:
    """Emit what a parser makes of the tokens, with their log probabilities when they are known.

    A token may show late, or never (white space before a call, a call itself): its log probability goes with the next
    text, or closes the answer.
    """

    def __init__(self, state: State, parser: AnswerParser) -> None:
        self.called = False
        self._state = state
        self._parser = parser
        self._waiting: list[TokenLogprob] = []

    def weigh(self, token: int, chances: Chances | None) -> None:
        """Take in how likely a token was."""
        if chances is not None:
            top = tuple(TokenLogprob(self._parser.spell(each), chance) for each, chance in chances.likeliest)
            self._waiting.append(TokenLogprob(self._parser.spell(token), chances.chosen, top))

    def say(self, deltas: Iterable[AnswerDelta]) -> None:
        """Emit deltas."""
        for delta in deltas:
            self.called = self.called or isinstance(delta, ToolCallDelta)
            self._state.emit(self._weighed(delta) if self._waiting else delta)

    def end(self) -> None:
        """Emit the log probabilities that are left."""
        if self._waiting:
            self._state.emit(self._weighed(TextDelta("")))

    def _weighed(self, delta: AnswerDelta) -> AnswerDelta:
        if not isinstance(delta, TextDelta | ReasoningDelta):
            return delta
        waiting, self._waiting = tuple(self._waiting), []
        return replace(delta, logprobs=waiting)
