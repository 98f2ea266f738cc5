"""Sessions of real agents, replayed over HTTP."""

import msgspec
import pytest

from omlx.pipeline.inflight import common_prefix
from omlx.server.chat.prompt import chat_prompt
from omlx.server.chat.schema import ChatBody
from omlx.stages.normalize import NormalizeStage
from omlx.text.normalize import normalize
from omlx.text.tokenizer import FolderTokenizer
from tests.serving import cached, serving, settings_for, trace
from tests.tiny_models import make_model


@pytest.fixture(scope="module")
def thin_model(tmp_path_factory):
    """One narrow layer: real prompts of 45,000 tokens in seconds."""
    thin = {"num_hidden_layers": 1, "hidden_size": 32, "num_attention_heads": 1, "num_key_value_heads": 1}
    return make_model(tmp_path_factory.mktemp("thin") / "model", "llama", **thin)


def _prompt_tokens(tokenizer: FolderTokenizer, body: dict):
    prompt = chat_prompt(msgspec.convert(body, ChatBody))
    prompt, _ = normalize(prompt, NormalizeStage().rules)
    return tokenizer.encode(tokenizer.render(prompt)).tokens


@pytest.mark.parametrize("agent", ["pi", "opencode", "openclaw"])
def test_every_turn_reuses_the_longest_common_prefix_with_an_earlier_one(agent, thin_model, tmp_path):
    """No request fails, and each reuses all but at most 32 tokens of what an earlier request shared with it."""
    folder = thin_model
    tokenizer = FolderTokenizer(folder)
    seen: list = []
    with serving(settings_for(folder, tmp_path)) as server:
        for request in trace(agent):
            body = {**request["body"], "model": "tiny", "stream": False, "max_completion_tokens": 4}
            body.pop("stream_options", None)
            answer = server.post(request["path"], body)
            tokens = _prompt_tokens(tokenizer, body)
            assert len(tokens) == answer["usage"]["prompt_tokens"]
            shared = max((common_prefix(tokens, other) for other in seen), default=0)
            assert cached(answer) >= min(shared, len(tokens) - 1) - 32
            seen.append(tokens)
