"""`exact`: whatever was stored before, and whatever runs beside it, a request has the bits of a cold run."""

from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from omlx.config.settings import ModelSettings, Settings
from omlx.pipeline.stage import Services
from omlx.runtime.bare import BareChain
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from omlx.text.chat import ChatPrompt, Message, TokenPrompt
from tests.serving import REPOSITORY
from tests.tiny_models import CONFIGS
from tests.trust.talk import BLOCK, block_files, prose, tokens_of

STAGES = {"prefill": {"chunk_tokens": 64, "exact": True}, "writeback": {"block_tokens": BLOCK}}
TALK = [
    Message(role, prose(number, 18)) for number, role in enumerate(["system", "user", "assistant", "user"])
]
#: The first tokens of every prompt below, once rendered.
CHATS = [
    ChatPrompt(tuple(TALK[:2])),
    ChatPrompt(tuple(TALK)),
    ChatPrompt((TALK[0], Message("user", prose(9, 40)))),
]


@pytest.fixture(scope="module", params=CONFIGS)
def chain(request, folder_of):
    """Return an exact chain over each family's model, whose logits are kept."""
    settings = Settings(models={"tiny": ModelSettings(path=str(folder_of(request.param)), stages=STAGES)})
    with closing(BareChain(settings, "tiny", Path(REPOSITORY), record=True)) as made:
        yield made


def variants(chain: BareChain) -> list:
    """Return prompts that share tokens and cut them differently: chats, and their tokens without any segment."""
    whole = chain.run(CHATS[1]).tokens.tolist()
    cuts = [70, 128, 129, len(whole) - 5]
    return [
        *CHATS,
        *(TokenPrompt((*whole[:cut], *tokens_of(cut, 30))) for cut in cuts),
        TokenPrompt(tuple(whole)),
    ]


def assert_bits_of_a_cold_run(chain: BareChain, state, prompt) -> None:
    """Compare all logits that a run computed, the answer's included, with those of a run without a store."""
    cold = chain.run(prompt, max_tokens=3)
    assert cold.sequence.tokens.tolist() == state.sequence.tokens.tolist()
    np.testing.assert_array_equal(chain.logits(cold)[state.sequence.resumed :], chain.logits(state))


def test_prompts_that_cut_their_tokens_differently_have_the_bits_of_a_cold_run(chain, tmp_path):
    """In any order, twice, and after a restart, each prompt has the logits it has alone."""
    resumed = []
    for _ in range(2):
        cold_tier = ColdTier(tmp_path, 2**28, min_free_bytes=0)
        with closing(BlockStore(HotTier(2**28), cold_tier)) as store:
            services = Services(store)
            for prompt in variants(chain):
                state = chain.run(prompt, services, max_tokens=3)
                resumed.append(state.sequence.resumed)
                assert_bits_of_a_cold_run(chain, state, prompt)
    assert {0} < set(resumed)
    assert all(position % 64 == 0 for position in resumed)
    assert min(resumed[len(resumed) // 2 :]) >= 64


def test_prompts_that_run_at_once_have_the_bits_of_a_cold_run(chain):
    """Started together, requests that share their beginnings each have the logits they have alone."""
    with closing(BlockStore(HotTier(2**28), None)) as store:
        services = Services(store)
        prompts = variants(chain)
        states = [
            future.result() for future in [chain.start(each, services, max_tokens=3) for each in prompts]
        ]
        for prompt, state in zip(prompts, states, strict=True):
            assert_bits_of_a_cold_run(chain, state, prompt)
    assert max(state.sequence.resumed for state in states) >= 64


def test_a_record_that_is_lost_costs_its_chunk(chain, tmp_path):
    """Without the last stored block the restore is planned again, and ends at the grid point before it."""
    prompt, resumed = TokenPrompt(tuple(tokens_of(3, 260))), []
    for _ in range(2):
        last = [file for file in block_files(tmp_path) if file.range[1] == 256]
        with closing(BlockStore(None, ColdTier(tmp_path, 2**28, min_free_bytes=0))) as store:
            for file in last:  # while the store is open: it still counts on them
                file.path.unlink()
            state = chain.run(prompt, Services(store), max_tokens=3)
            assert_bits_of_a_cold_run(chain, state, prompt)
            resumed.append(state.sequence.resumed)
    assert [0, 192] == resumed
    assert (256, 192) == (state.plan.resume, state.restored.resume)


def test_a_plan_promises_what_is_restored(chain):
    """The plan's resume is a grid point, and the one from which the sequence goes on."""
    with closing(BlockStore(HotTier(2**28), None)) as store:
        states = [chain.run(prompt, Services(store)) for prompt in variants(chain)]
    assert [state.sequence.resumed for state in states] == [state.plan.resume for state in states]
    assert any(state.plan.matched_tokens > state.plan.resume + 1 for state in states)
