"""decode: produce the answer, token by token."""

from typing import ClassVar

from omlx.pipeline.stage import Lane, Services, Stage, Steps
from omlx.pipeline.state import Answer, State
from omlx.pipeline.work import Decode
from omlx.text.delta import FinishReason, ToolCallDelta


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
        limit = self._limit(state)
        called = False
        reason: FinishReason = "length"
        count = 0
        while count < limit:
            token: int = yield Decode(state.sequence, last=count + 1 == limit)
            count += 1
            if token in model.eos_tokens and not request.ignore_eos:
                reason = "stop"
                break
            for delta in parser.feed(token):
                called = called or isinstance(delta, ToolCallDelta)
                state.emit(delta)
            if parser.stopped:
                reason = "stop"
                break
        for delta in parser.finish():
            called = called or isinstance(delta, ToolCallDelta)
            state.emit(delta)
        spent = state.sequence.device_s.get("decode", 0.0)
        services.costs.observe(model.fingerprint, "decode", count, spent)
        state.answer = Answer("tool_calls" if called and reason == "stop" else reason, count)

    @staticmethod
    def _limit(state: State) -> int:
        """Return the most tokens the answer may have: the request's, the model's, what the window leaves."""
        room = state.model.window_tokens - state.sequence.prompt_tokens
        wanted = state.request.max_tokens or state.model.max_tokens or room
        return min(wanted, room)
