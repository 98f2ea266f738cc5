"""Blocks of models that are configured no more: the first to go, told apart, and found again when they come back."""

import msgspec
import pytest

from omlx.config.settings import ModelSettings
from tests.serving import serving
from tests.trust.talk import STAGES, answer, small, statistics, tokens_of

LONG = tokens_of(1, 600)


@pytest.fixture
def settings_with(folder_of, tmp_path):
    """Return what makes settings that offer some of three models, over one small cache."""

    def settings(*names: str, cold: int | None = None):
        made = small(folder_of("llama"), tmp_path / "cache", cold=cold)
        models = {
            name: ModelSettings(path=str(folder_of("llama", seed=int(name[1]))), stages=STAGES)
            for name in names
        }
        return msgspec.structs.replace(made, models=models)

    return settings


def test_blocks_of_removed_models_go_first(settings_with):
    """I4: with two of three models removed, new blocks take the room of theirs, and the third keeps all of its own."""
    with serving(settings_with("m1", "m2", "m3")) as server:
        for name in ("m3", "m1", "m2"):  # the one that stays was used least recently
            answer(server, LONG, model=name, max_tokens=1)
        server.runtime._store.flush(30)
        cold = statistics(server)["cold"]
        assert 0 == cold["orphan_bytes"]
    with serving(settings_with("m3", cold=int(1.15 * cold["bytes"]))) as server:
        before = statistics(server)["cold"]
        assert before["orphan_bytes"] > before["bytes"] / 3
        for seed in (2, 3, 4):
            answer(server, tokens_of(seed, 300), model="m3", max_tokens=1)
            server.runtime._store.flush(30)
        after = statistics(server)["cold"]
        assert after["orphan_bytes"] < before["orphan_bytes"]
        assert after["evicted_records"] > 0
    with serving(settings_with("m3", "m1", "m2")) as server:
        assert len(LONG) - 1 == answer(server, LONG, model="m3", max_tokens=1)[1]
        assert 0 == statistics(server)["cold"]["orphan_bytes"]


def test_nothing_is_an_orphan_where_a_model_cannot_be_identified(settings_with):
    """I4: a model on a volume that is not there keeps all blocks from being taken for orphans."""
    with serving(settings_with("m1", "m2")) as server:
        answer(server, LONG, model="m2", max_tokens=1)
    settings = settings_with("m1")
    away = {**settings.models, "m2": ModelSettings(path="elsewhere/not-there")}
    with serving(msgspec.structs.replace(settings, models=away)) as server:
        assert 0 == statistics(server)["cold"]["orphan_bytes"]
    with serving(settings_with("m1")) as server:
        assert statistics(server)["cold"]["orphan_bytes"] > 0
