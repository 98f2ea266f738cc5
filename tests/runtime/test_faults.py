"""A fault inside one request is that request's alone: it hears of it, others go on, the next one is answered."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest

import omlx.engine.executor as executing
from omlx.engine.chooser import TokenChooser
from omlx.engine.sequence import RunningSequence
from omlx.models.answer import AnswerParsers
from tests.pool.talk import Stream, several
from tests.serving import Served
from tests.trust.talk import answer, settled, tokens_of

#: The prompt whose request fails, and one that others ask.
DOOMED, GOOD = tokens_of(11, 221), tokens_of(12, 90)


class FaultError(ArithmeticError):
    """What no code foresees."""


def fail(*_arguments: object) -> None:
    """Raise it."""
    raise FaultError("broken on purpose")


def is_doomed(prompt) -> bool:
    """Tell whether it is the prompt that fails."""
    return prompt.tolist() == DOOMED


def in_prefill(patch: pytest.MonkeyPatch) -> None:
    """Break the forward pass over a piece of the prompt."""
    real = RunningSequence.prefill
    patch.setattr(
        RunningSequence,
        "prefill",
        lambda self, end: fail() if is_doomed(self.prompt) else real(self, end),
    )


def in_sampling(patch: pytest.MonkeyPatch) -> None:
    """Break the choice of a token."""
    real = TokenChooser.__call__
    patch.setattr(
        TokenChooser,
        "__call__",
        lambda self, prompt, *rest: fail() if is_doomed(prompt) else real(self, prompt, *rest),
    )


def in_restore(patch: pytest.MonkeyPatch) -> None:
    """Break the way from records to caches, for a prompt that is stored to its end."""
    real = executing.restore
    patch.setattr(
        executing,
        "restore",
        lambda caches, layout, pieces, resume: (
            fail() if resume >= len(DOOMED) - 1 else real(caches, layout, pieces, resume)
        ),
    )


def in_detokenizer(patch: pytest.MonkeyPatch) -> None:
    """Break the way from tokens to text."""
    real = AnswerParsers.new

    def new(self, prompt, *rest, **options):
        parser = real(self, prompt, *rest, **options)
        if is_doomed(prompt):
            patch.setattr(parser._detokenizer, "add_token", fail, raising=False)
        return parser

    patch.setattr(AnswerParsers, "new", new)


def doomed(server: Served, *, stream: bool) -> dict:
    """Ask what fails; return the error that comes of it, with its status where there is one."""
    body = {"prompt": DOOMED, "max_tokens": 24, "temperature": 0.9, "seed": 1, "stream": stream}
    response = server.http.post("/v1/completions", json=body)
    if not stream:
        assert 500 == response.status_code
        return response.json()["error"]
    [*_, last] = [line for line in response.text.splitlines() if line.startswith("data: {")]
    return json.loads(last.removeprefix("data: "))["error"]


@pytest.mark.parametrize("stream", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("broken", [in_prefill, in_sampling, in_restore, in_detokenizer])
def test_a_fault_fails_its_own_request_alone(
    folder_of, tmp_path, monkeypatch, broken: Callable[[pytest.MonkeyPatch], None], stream
):
    """F1: whatever breaks, that request gets an error, the streams beside it go on, and the next one is answered."""
    with several({"tiny": folder_of("llama")}, tmp_path) as server:
        expected, _ = answer(server, GOOD)
        if broken is in_restore:
            answer(server, DOOMED)
        beside = Stream(server, "tiny")
        beside.wait_begun()
        with monkeypatch.context() as patch, ThreadPoolExecutor(2) as pool:
            broken(patch)
            failing = pool.submit(doomed, server, stream=stream)
            assert expected == pool.submit(answer, server, GOOD).result()[0]
            assert "FaultError" in failing.result()["message"]
        before = len(beside.texts)
        assert settled(lambda: len(beside.texts) > before)
        assert beside.error is None
        beside.stop()
        assert expected == answer(server, GOOD)[0]
        assert answer(server, DOOMED)[0]
        assert settled(lambda: server.runtime.health().running == 0)
        health = server.http.get("/health").json()
        assert 0 == health["rows"] == health["models"][0]["leases"]
        assert 0 == health["cache"]["hot"]["pinned_blocks"]
