"""The grid: prompts that leave each other where chunks end have the bits of a cold run, whatever runs beside them."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from omlx.config.settings import ModelSettings, Settings
from omlx.pipeline.stage import Services
from omlx.runtime.bare import BareChain
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.text.chat import TokenPrompt
from tests.serving import REPOSITORY
from tests.tiny_models import CONFIGS
from tests.trust.talk import ALWAYS, BLOCK, CHUNK, tokens_of

#: A state at every chunk end, so that recurrent layers can be resumed at each.
STAGES = {
    "lookup": ALWAYS,
    "prefill": {"chunk_tokens": CHUNK},
    "writeback": {"block_tokens": BLOCK, "state_every_tokens": CHUNK},
}
WHOLE = tokens_of(1, 3 * CHUNK + 20)
#: The whole, prompts that leave it at a chunk's end, and one that shares nothing.
PROMPTS = [
    TokenPrompt(tuple(tokens))
    for tokens in (
        WHOLE,
        [*WHOLE[: 2 * CHUNK], *tokens_of(2, 30)],
        [*WHOLE[:CHUNK], *tokens_of(3, 80)],
        tokens_of(4, 2 * CHUNK + 7),
    )
]


@pytest.mark.parametrize("family", CONFIGS)
def test_prompts_that_run_at_once_are_computed_as_alone(folder_of, family):
    """Started together, each prompt's logits have the bits of a cold run; where they share chunks one computes them."""
    model = ModelSettings(path=str(folder_of(family)), stages=STAGES)
    settings = Settings(models={"tiny": model})
    with (
        closing(BareChain(settings, "tiny", Path(REPOSITORY), record=True)) as chain,
        closing(BlockStore(HotTier(2**28), None)) as store,
    ):
        colds = [chain.logits(chain.run(prompt)) for prompt in PROMPTS]
        services = Services(store)
        together = [chain.start(prompt, services, max_tokens=12) for prompt in PROMPTS]
        states = [future.result() for future in together]
        for state, cold in zip(states, colds, strict=True):
            resumed, last = state.sequence.resumed, len(state.tokens) - 1
            found = chain.logits(state)[: last - resumed]
            np.testing.assert_array_equal(cold[resumed:last], found)
        # whichever came first
        assert [0, 0, CHUNK, 2 * CHUNK] == sorted(state.sequence.resumed for state in states)
