"""What a request has cost so far. Pure."""

from omlx.pipeline.state import State
from omlx.text.delta import Usage


def usage(state: State) -> Usage:
    """Return the token counts of a request, at any point after `tokenize`."""
    prompt = len(state.tokens) if state.tokens is not None else 0
    resumed = state.sequence.resumed if state.sequence is not None else state.restored.resume
    cold = min(state.restored.cold_tokens, resumed)
    return Usage(
        prompt_tokens=prompt,
        cached_tokens=resumed,
        hot_tokens=resumed - cold,
        cold_tokens=cold,
        prefilled_tokens=prompt - resumed,
        completion_tokens=state.answer.num_tokens if state.answer else 0,
    )
