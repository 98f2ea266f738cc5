"""Sequences that decode in company answer as they do alone, and leave the KV that they leave alone."""

from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from tests.kv.parity import BOUND, FAMILIES, SMOOTH, tiny, tokens_of  # loads the BLAS, before MLX

# isort: split
import mlx.core as mx

from omlx.engine.executor import Executor
from omlx.engine.sequence import RunningSequence
from omlx.kv.rows import why_alone
from omlx.models.loaded import LoadedModel
from omlx.pipeline.model import Model
from omlx.pipeline.request import Sampling
from omlx.pipeline.work import Capture, Decode, Open, Prefill

#: Prompt lengths on both sides of the window of the sliding families, and one that has nothing before its last token.
LENGTHS = (30, 97, 48, 130, 1)
STEPS = 60

GREEDY = Sampling(temperature=0.0)
SAMPLINGS = (
    GREEDY,
    Sampling(temperature=0.9, seed=7),
    Sampling(temperature=0.0, repetition_penalty=1.3),
    Sampling(temperature=0.7, top_p=0.9, top_k=40, min_p=0.01, seed=3, presence_penalty=0.5),
    Sampling(temperature=0.0, logit_bias={5: 4.0, 9: -100.0}),
)


def loaded(family: str) -> LoadedModel:
    model = tiny(family)
    described = Model.__new__(Model)
    object.__setattr__(described, "layout", model.layout)
    alone = why_alone(model.module, model.new_caches(), model.new_caches())
    return LoadedModel(model.module, model.new_caches, described, 0, alone)


def opened(executor: Executor, length: int, sampling: Sampling = GREEDY) -> RunningSequence:
    """Return a sequence that has run its prompt but for the last token."""
    tokens = tokens_of(length, seed=length)
    sequence = executor.run(Open("tiny", tokens, sampling=sampling))
    for end in [*range(64, length - 1, 64), length - 1]:
        if end > sequence.offset:
            executor.run(Prefill(sequence, end))
    return sequence


def decoded(executor: Executor, sequence: RunningSequence, steps: int) -> list[int]:
    """Return what a sequence says alone."""
    said: list[int] = []
    while len(said) < steps:
        [result] = executor.decode([Decode(sequence, last=len(said) + 1 == steps)])
        if result is not None:
            assert result.error is None
            said.append(result.token)
    return said


def schedule(ends: Sequence[int]) -> Iterator[tuple[list[int], int]]:
    """Yield who takes part in each round: rows come one after the other and leave after their number of steps."""
    for round_ in range(max(ends) + 3 * len(ends) + 2):
        yield [row for row in range(len(ends)) if round_ >= 3 * row], round_


def in_company(executor: Executor, rows: list[RunningSequence], ends: Sequence[int]) -> list[list[int]]:
    """Return what each row says; it joins three rounds after the one before it and leaves when it has said enough."""
    said: list[list[int]] = [[] for _ in rows]
    for present, _ in schedule(ends):
        going = [row for row in present if len(said[row]) < ends[row]]
        works = [Decode(rows[row], last=len(said[row]) + 1 == ends[row]) for row in going]
        for row, result in zip(going, executor.decode(works), strict=True):
            if result is not None:
                assert result.error is None
                said[row].append(result.token)
    return said


@pytest.mark.parametrize("family", FAMILIES)
def test_a_row_says_and_leaves_in_company_what_it_does_alone(family):
    """Rows that come and go at different steps have the tokens and, but for rounding, the KV of a run alone."""
    model = loaded(family)
    executor = Executor(lambda _: model)
    ends = (STEPS, 25, 40, STEPS - 3, 9)
    alone = [opened(executor, length) for length in LENGTHS]
    expected = [decoded(executor, row, end) for row, end in zip(alone, ends, strict=True)]
    rows = [opened(executor, length) for length in LENGTHS]
    actual = in_company(executor, rows, ends)
    # a choice of experts, or a step of quantization, may tip by rounding: then the texts part, late
    parted = [a != e for a, e in zip(actual, expected, strict=True)]
    assert not any(parted) if family in SMOOTH else sum(parted) <= 1
    for row, other in zip(rows, alone, strict=True):
        if row.tokens.tolist() == other.tokens.tolist():
            assert other.offset == row.offset
            assert_same_kv(executor, family, row, other)


def assert_same_kv(executor: Executor, family: str, row: RunningSequence, other: RunningSequence) -> None:
    ranges = [(row.offset - min(row.offset, 40), row.offset)]
    [left], [right] = executor.run(Capture(row, ranges)), executor.run(Capture(other, ranges))
    assert left.keys() == right.keys()
    if family not in SMOOTH:
        return
    for kind, record in left.items():
        for name, array in record.buffers.items():
            other_array = right[kind].buffers[name]
            assert np.abs(array - other_array).max() <= 10 * BOUND, (kind, name)


def test_rows_with_samplings_of_their_own_share_a_batch():
    """Seeds, penalties and biases hold for their own row, in company as alone."""
    model = loaded("llama")
    executor = Executor(lambda _: model)
    alone = [opened(executor, 40 + i, sampling) for i, sampling in enumerate(SAMPLINGS)]
    expected = [decoded(executor, row, 30) for row in alone]
    rows = [opened(executor, 40 + i, sampling) for i, sampling in enumerate(SAMPLINGS)]
    assert expected == in_company(executor, rows, [30] * len(rows))


def test_a_fault_in_one_row_s_sampling_is_its_own():
    """A sampler that raises fails its request; the row beside it goes on and says what it says alone."""
    model = loaded("llama")
    executor = Executor(lambda _: model)
    expected = decoded(executor, opened(executor, 50), 20)
    good, bad = opened(executor, 50), opened(executor, 60)
    said: list[int] = []
    failed = None
    while len(said) < 20:
        works = [Decode(row) for row in (good, bad) if row is good or failed is None]
        if len(said) == 8:
            bad.choose = _refuse
        results = executor.decode(works)
        said += [results[0].token] if results[0] else []
        if len(results) == 2 and results[1] is not None:
            failed = results[1].error
    assert expected == said
    assert isinstance(failed, ArithmeticError)


class _Refuse:
    takes_the_best = False

    def __call__(self, *_):
        raise ArithmeticError("no choice")


_refuse = _Refuse()


def test_a_fault_of_the_pass_leaves_other_batches_alone():
    """When a model's pass fails, its rows fail; sequences of another model go on."""
    models = {"good": loaded("llama"), "bad": loaded("gemma3")}
    executor = Executor(lambda name: models[name])
    good, bad = (executor.run(Open(name, tokens_of(20), sampling=GREEDY)) for name in ("good", "bad"))
    for row in (good, bad):
        executor.run(Prefill(row, 19))
    executor.decode([Decode(good), Decode(bad)])
    bad._caches[0].keys = mx.zeros((3, 3))  # what no layer can work with
    first, second = executor.decode([Decode(good), Decode(bad)])
    assert first.token is not None
    assert second.error is not None
    [after] = executor.decode([Decode(good)])
    assert after.token is not None


def test_a_row_that_waits_a_while_comes_back_as_it_was():
    """A sequence that is left out of some rounds has its own caches then, and goes on as if nothing had been."""
    model = loaded("gemma3")
    executor = Executor(lambda _: model)
    expected = decoded(executor, opened(executor, 70), 30)
    row, other, third = opened(executor, 70), opened(executor, 60), opened(executor, 65)
    said: list[int] = []
    for round_ in range(60):
        present = [other, third] if 5 <= round_ < 9 or round_ == 15 else [other, third, row]
        results = executor.decode([Decode(sequence) for sequence in present])
        if row in present and results[-1] is not None:
            said.append(results[-1].token)
    assert expected == said[:30]
