"""Log probabilities are those of the model, in whatever company a row decodes, and asking for them changes nothing."""

import numpy as np
import pytest

from tests.kv.parity import tiny, tokens_of  # loads the BLAS, before MLX

# isort: split
import mlx.core as mx

from omlx.engine.chances import weigh
from omlx.engine.executor import Executor
from omlx.engine.sequence import RunningSequence
from omlx.kv.rows import why_alone
from omlx.models.loaded import LoadedModel
from omlx.pipeline.model import Model
from omlx.pipeline.request import Sampling
from omlx.pipeline.work import Chances, Decode, Open, Prefill

STEPS = 12
ROUNDING = 1e-4
BIASED = Sampling(temperature=0.0, logit_bias={5: 40.0})
DRAWN = Sampling(temperature=1.0, seed=11)


def loaded(family: str) -> LoadedModel:
    model = tiny(family)
    described = Model.__new__(Model)
    object.__setattr__(described, "layout", model.layout)
    alone = why_alone(model.module, model.new_caches(), model.new_caches())
    return LoadedModel(model.module, model.new_caches, described, 0, alone)


def opened(executor: Executor, sampling: Sampling, count: int | None, length: int = 20) -> RunningSequence:
    sequence = executor.run(
        Open("tiny", tokens_of(length, seed=length), sampling=sampling, num_likeliest=count)
    )
    executor.run(Prefill(sequence, length - 1))
    return sequence


def said(executor: Executor, rows: list[RunningSequence]) -> list[list[Chances | None]]:
    """Return what each row tells of its tokens, all decoding together."""
    told: list[list[Chances | None]] = [[] for _ in rows]
    while any(len(each) < STEPS for each in told):
        going = [i for i in range(len(rows)) if len(told[i]) < STEPS]
        works = [Decode(rows[i], last=len(told[i]) + 1 == STEPS) for i in going]
        for i, result in zip(going, executor.decode(works), strict=True):
            if result is not None:
                assert result.error is None
                told[i].append(rows[i].chances)
    return told


def logprobs_of(model: LoadedModel, row: RunningSequence) -> np.ndarray:
    """Return what the model gives for the whole text of a row at once: `(tokens, vocabulary)`, float64."""
    logits = model.module(mx.array(row.tokens)[None], cache=model.new_caches())[0]
    values = np.array(logits, dtype=np.float64)
    return (
        values
        - np.log(np.exp(values - values.max(-1, keepdims=True)).sum(-1, keepdims=True))
        - values.max(-1, keepdims=True)
    )


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_5"])
def test_they_are_the_models_own_in_company(family):
    """Bias and draws change which token is chosen and not what is told of it: one pass over the text gives the same."""
    model = loaded(family)
    executor = Executor(lambda _: model)
    rows = [opened(executor, sampling, 3, 20 + i) for i, sampling in enumerate((Sampling(), BIASED, DRAWN))]
    told = said(executor, rows)
    for row, chances in zip(rows, told, strict=True):
        expected = logprobs_of(model, row)
        for step, each in enumerate(chances):
            at = row.prompt_tokens - 1 + step
            assert abs(each.chosen - expected[at, row.tokens[at + 1]]) < ROUNDING
            best = np.sort(expected[at])[::-1][:3]
            assert np.abs(np.array([value for _, value in each.likeliest]) - best).max() < ROUNDING
            for token, value in each.likeliest:
                assert abs(value - expected[at, token]) < ROUNDING


def test_who_does_not_ask_is_told_nothing_and_who_asks_gets_the_same_answer():
    """A row beside one that asks is told nothing; the tokens are those of rows that do not ask."""
    model = loaded("llama")
    executor = Executor(lambda _: model)
    asking = [opened(executor, sampling, 0) for sampling in (Sampling(), DRAWN)]
    silent = [opened(executor, sampling, None) for sampling in (Sampling(), DRAWN)]
    told = said(executor, [asking[0], silent[1]])
    said(executor, [silent[0], asking[1]])
    assert all(each is not None and each.likeliest == () for each in told[0])
    assert told[1] == [None] * STEPS
    for one, other in zip(asking, silent, strict=True):
        assert one.tokens.tolist() == other.tokens.tolist()


def test_more_of_the_likeliest_than_there_are_tokens():
    """A vocabulary smaller than what is asked for is told whole, the likeliest first."""
    told = weigh(mx.array([[0.0, 2.0, 1.0]]), mx.array([1], mx.uint32), 20).read()
    assert [token for token, _ in told.likeliest] == [1, 2, 0]
    assert abs(told.chosen - told.likeliest[0][1]) < 1e-6
