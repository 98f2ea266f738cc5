"""Sessions of real agents compute what is new in them, whatever the layers keep and the template drops."""

from contextlib import closing
from pathlib import Path

import pytest

from omlx.config.settings import ModelSettings, Settings
from omlx.pipeline.stage import Services
from omlx.runtime.bare import BareChain
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore
from tests.serving import REPOSITORY
from tests.tiny import CHATML, QWEN3
from tests.tiny_models import make_model
from tests.trust.replay import Reuse, prompts
from tests.trust.talk import KINDS

AGENTS = ["aider", "pi", "opencode", "openclaw", "codex", "claude"]
TEMPLATES = {"chatml": CHATML, "drops reasoning": QWEN3}
_NARROW = {"hidden_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1, "intermediate_size": 32}
#: One or two narrow layers of each kind.
THIN = {
    "full": {**_NARROW, "num_hidden_layers": 1},
    "sliding": {**_NARROW, "num_hidden_layers": 2, "sliding_window_pattern": 2},
    "hybrid": {
        **_NARROW,
        "num_hidden_layers": 2,
        "linear_num_value_heads": 2,
        "linear_num_key_heads": 1,
    },
}
#: Whole sessions have the same ratios and take minutes: prompts of up to 45,000 tokens.
MOST_CHARS = 800
#: How much more than what is new may be computed.
MOST = {"full": 1.02, "sliding": 1.02, "hybrid": 1.3}


@pytest.fixture(scope="module", params=TEMPLATES)
def template(request) -> str:
    """Name each template in turn."""
    return request.param


@pytest.fixture(scope="module", params=THIN)
def thin_kind(request) -> str:
    """Name each kind of layers in turn."""
    return request.param


@pytest.fixture(scope="module")
def chain(thin_kind, template, tmp_path_factory):
    """Return the default chain over a thin model."""
    folder = tmp_path_factory.mktemp("thin") / "model"
    make_model(folder, KINDS[thin_kind], template=TEMPLATES[template], **THIN[thin_kind])
    settings = Settings(models={"thin": ModelSettings(path=str(folder))})
    with closing(BareChain(settings, "thin", Path(REPOSITORY))) as made:
        yield made


@pytest.mark.parametrize("agent", AGENTS)
def test_a_session_computes_what_is_new_in_it(chain, thin_kind, agent):
    """C16: over a session, and over all of it but the first request, little more than what is new is computed."""
    whole, later = Reuse(), Reuse()
    with closing(BlockStore(HotTier(2**32), None)) as store:
        services = Services(store)
        for number, prompt in enumerate(prompts(agent, MOST_CHARS)):
            state = chain.run(prompt, services)
            computed = len(state.tokens) - state.sequence.resumed
            whole.add(state.tokens, computed)
            if number == 0:
                later.seen = list(whole.seen or ())
            else:
                later.add(state.tokens, computed)
    assert 1.0 <= whole.ratio <= MOST[thin_kind]
    assert 1.0 <= later.ratio <= MOST[thin_kind]
