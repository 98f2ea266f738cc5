"""Estimates of stages: from what was measured of earlier requests."""

import pytest

from omlx.pipeline.cost import Rates
from omlx.text.chat import TextPrompt

TEXT = "Every worker reads its own file before it starts, and says so in the log. " * 12


def test_every_stage_that_was_measured_has_an_estimate(bench):
    """After a request each stage has seconds but the one that waits for others; without one, none that need a rate."""
    costs, model = bench.talk.services.costs, bench.talk.model
    costs.know(model.fingerprint, model.layout)
    known = {stage.name: stage.seconds for stage in bench.explain(TextPrompt(TEXT)).stages}
    assert {"coalesce", "lookup", "prefill", "decode"} <= {
        name for name, spent in known.items() if spent is None
    }
    costs.walked(model.fingerprint, 1000, {"normalize": 0.5, "segment": 0.25, "lookup": 0.1, "coalesce": 9.0})
    for rate, work in (("prefill", 500), ("decode", 10), ("tokenize", 1000), ("store", 10**6)):
        costs.observe(model.fingerprint, rate, work, 1.0)
    found = bench.explain(TextPrompt(TEXT))
    spent = {stage.name: stage.seconds for stage in found.stages}
    tokens = found.prompt_tokens
    assert None is spent["coalesce"]
    assert spent["normalize"] == pytest.approx(tokens * 0.5 / 1000)
    assert spent["prefill"] == pytest.approx(tokens / 500)
    assert spent["decode"] == pytest.approx(0.1)
    assert spent["writeback"] == pytest.approx(found.writes.nbytes / 10**6)


def test_a_running_average_follows_slowly():
    """One slow request moves a stage's rate by less than a third, and short prompts do not move it at all."""
    rates = Rates().walked(1000, {"lookup": 1.0})
    assert {"lookup": 1000.0} == rates.stages
    assert {"lookup": pytest.approx(730.0)} == rates.walked(1000, {"lookup": 10.0}).stages
    assert rates is rates.walked(10, {"lookup": 10.0})
