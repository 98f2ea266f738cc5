"""segment: name the parts of the prompt and where each begins and ends."""

from typing import ClassVar

from omlx.pipeline.stage import Lane, Services, Stage
from omlx.pipeline.state import State
from omlx.text.chat import ChatPrompt
from omlx.text.seams import Encoding
from omlx.text.segment import Segment
from omlx.text.segments import find_segments


class SegmentStage(Stage, frozen=True, tag="segment"):
    """Find the prompt's segments: tools, system, each message, generation prompt.

    Blocks and prefill chunks end where a segment ends, so that another conversation with the same system prompt
    and tools shares them exactly.
    """

    requires: ClassVar[tuple[str, ...]] = ("request", "model", "tokens", "text", "starts")
    uses: ClassVar[tuple[str, ...]] = ("prompt",)
    assigns: ClassVar[tuple[str, ...]] = ("segments",)
    lane: ClassVar[Lane] = "host"

    def run(self, state: State, services: Services) -> None:
        """Assign the segments: contiguous, from 0 to the number of tokens."""
        prompt = state.prompt or state.request.prompt
        assert state.starts is not None  # tokenize assigns it
        if isinstance(prompt, ChatPrompt):
            encoding = Encoding(state.tokens, state.starts)
            state.segments = find_segments(
                state.model.tokenizer, prompt, state.text, encoding, services.talks
            )
        else:
            state.segments = (Segment("prompt", "prompt", 0, len(state.tokens)),)
