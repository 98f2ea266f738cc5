"""Aliases with settings of their own: one set of weights, shared blocks, other sampling and template options."""

import json
import shutil

import pytest

from omlx.config.settings import AliasSettings, SamplingDefaults
from omlx.pipeline.defaults import with_defaults
from omlx.pipeline.request import Request, Sampling
from omlx.text.chat import ChatPrompt, Message
from omlx.types import RequestId
from tests.pool.talk import PROMPT, ask, several
from tests.tiny import QWEN3
from tests.tiny_models import make_model
from tests.trust.talk import answer, prose, restored, said, script

ASKED = [{"role": "system", "content": prose(1, 60)}, {"role": "user", "content": "hello"}]


@pytest.fixture(scope="module")
def thinking(tmp_path_factory):
    """Return a model whose template opens a block of reasoning when told to think."""
    return make_model(
        tmp_path_factory.mktemp("models") / "thinking", "llama", template=QWEN3, tie_word_embeddings=False
    )


def two(folder, **more):
    """Return settings of a model with two aliases that think, or do not."""
    thinker = AliasSettings(
        sampling=SamplingDefaults(temperature=5.0), template_options={"enable_thinking": True}
    )
    plain = AliasSettings(template_options={"enable_thinking": False})
    return {"path": str(folder), "aliases": {"thinker": thinker, "plain": plain}, **more}


def test_two_aliases_share_weights_and_blocks(thinking, tmp_path, brake):
    """H6: two names, with other sampling and thinking, have one model in memory and share blocks where tokens agree."""
    brake.free.set()
    with several({"coder": two(thinking)}, tmp_path) as server:
        plain = server.chat(ASKED, model="plain")
        thinker = server.chat(ASKED, model="thinker")
        assert ["coder"] == brake.reads
        assert ["plain", "thinker"] == [plain["model"], thinker["model"]]
        prompts = [found["usage"]["prompt_tokens"] for found in (plain, thinker)]
        assert prompts[0] != prompts[1]
        assert 60 < restored(thinker) < min(prompts)
        listed = {entry["id"]: entry for entry in server.http.get("/v1/models").json()["data"]}
        assert {"coder", "thinker", "plain"} == set(listed)
        assert {"coder"} == {entry["root"] for entry in listed.values()}
        assert "coder" == server.http.get("/v1/models/thinker").json()["root"]


def test_an_alias_may_point_elsewhere_tomorrow(folders, tmp_path):
    """H6: the client keeps its name when the alias belongs to another model after a restart."""
    answers = []
    for owner in "ab":
        models = {name: {"path": str(folders[name])} for name in "ab"}
        models[owner]["aliases"] = {"mine": AliasSettings(sampling=SamplingDefaults(temperature=0.0))}
        with several(models, tmp_path) as server:
            answers.append(answer(server, PROMPT, model="mine")[0])
            assert owner == server.http.get("/v1/models/mine").json()["root"]
            assert answers[-1] == answer(server, PROMPT, model=owner)[0]
    assert answers[0] != answers[1]


def test_the_order_of_wishes_is_request_alias_model_folder(folders, tmp_path):
    """G6: each of four sources counts where the ones before it say nothing: seen by whether the answer is greedy."""
    folder = shutil.copytree(folders["a"], tmp_path / "model")
    (folder / "generation_config.json").write_text('{"temperature": 9.0, "do_sample": true}')
    hot, cold = SamplingDefaults(temperature=9.0), SamplingDefaults(temperature=0.0)
    models = {
        "folder": {"path": str(folder)},
        "model": {"path": str(folder), "sampling": cold, "aliases": {"alias": AliasSettings(sampling=hot)}},
    }

    def greedy(server, name: str, **body) -> bool:
        found = [ask(server, name, 5, **{"temperature": None, "max_tokens": 12, **body}) for _ in range(3)]
        return len({response.json()["choices"][0]["text"] for response in found}) == 1

    with several(models, tmp_path / "cache") as server:
        order = [greedy(server, name) for name in ("folder", "model", "alias")]
        assert [False, True, False] == order
        assert greedy(server, "alias", temperature=0)
        assert not greedy(server, "model", temperature=9.0)


def test_template_options_of_request_alias_and_model_are_laid_over_each_other():
    """What a request says is above its alias, key by key, and that above the model."""
    prompt = ChatPrompt((Message("user", "hi"),), template_options={"a": 1})
    request = Request(id=RequestId("r"), model="m", prompt=prompt, sampling=Sampling(top_p=0.5))
    alias = AliasSettings(
        sampling=SamplingDefaults(top_p=0.9, temperature=0.3), template_options={"a": 2, "b": 2}
    )
    asked = with_defaults(request, alias, {"a": 3, "b": 3, "c": 3})
    assert {"a": 1, "b": 2, "c": 3} == asked.prompt.template_options
    assert Sampling(top_p=0.5, temperature=0.3) == asked.sampling


@pytest.mark.parametrize("index", [0, 1])
def test_every_end_token_of_the_generation_config_stops_an_answer(folders, tmp_path, index):
    """G6: of several end tokens that a model's generation config lists, each ends an answer."""
    folder = shutil.copytree(folders["a"], tmp_path / "model")
    ends = [300, 301]
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ends}))
    with several({"tiny": folder}, tmp_path / "cache") as server:
        script(server, folder, "well then")
        loaded = server.runtime._pool._loaded["tiny"]
        loaded.module._script[-1] = ends[index]
        found = server.chat(ASKED, model="tiny", max_tokens=40)
        assert "stop" == found["choices"][0]["finish_reason"]
        assert "well then" == said(found)
