"""Requests of all kinds at once, through the whole server: each is answered as it is alone."""

import json
import random
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import pytest

from tests.serving import Served
from tests.trust.talk import BLOCK, KINDS, small_server, tokens_of

#: What requests ask besides a prompt: an even number is greedy.
OPTIONS: tuple[dict[str, Any], ...] = (
    {"temperature": 0},
    {"temperature": 0.8, "seed": 5},
    {"temperature": 0, "repetition_penalty": 1.3},
    {"temperature": 0.7, "top_p": 0.9, "top_k": 30, "min_p": 0.02, "seed": 6},
    {"temperature": 0, "logit_bias": {"65": 4, "97": -100}},
    {"temperature": 0.9, "seed": 7, "presence_penalty": 0.5, "frequency_penalty": 0.2},
    {"temperature": 0, "logprobs": 3},
    {"temperature": 1.0, "seed": 8, "stop": ["th", "a"]},
)
#: Rounds for each family: the kinds of layers twenty, their mixtures fewer.
ROUNDS = {**dict.fromkeys(KINDS.values(), 20), "gpt_oss": 5, "falcon_h1": 5}


@dataclass(frozen=True)
class Asked:
    """A request: its prompt, and whether its answer is streamed."""

    prompt: list[int]
    options: dict[str, Any]
    stream: bool

    def send(self, server: Served, delay_s: float = 0.0) -> str:
        """Return the answer's text, after a wait."""
        time.sleep(delay_s)
        body = {"prompt": self.prompt, "max_tokens": 16, "ignore_eos": True, **self.options}
        if not self.stream:
            return server.post("/v1/completions", body)["choices"][0]["text"]
        response = server.http.post("/v1/completions", json={**body, "stream": True})
        assert 200 == response.status_code, response.text
        assert "error" not in response.text
        return "".join(_texts(response.text))


def _texts(stream: str) -> list[str]:
    lines = [line.removeprefix("data: ") for line in stream.splitlines() if line.startswith("data: {")]
    return [choice["text"] for line in lines for choice in json.loads(line)["choices"] if choice["text"]]


def company(round_: int) -> list[Asked]:
    """Return eight requests of five to eight blocks; half of them begin with what was asked in the round before."""
    found = []
    for number, options in enumerate(OPTIONS):
        shared = tokens_of(number, BLOCK * (2 + number % 3)) if number % 2 else []
        length = BLOCK * (5 + number % 4) + 3 * round_ % BLOCK
        fresh = tokens_of(1000 * round_ + number, length - len(shared))
        found.append(Asked([*shared, *fresh], options, stream=number % 3 == 0))
    return found


@pytest.mark.parametrize("family", ROUNDS)
def test_eight_at_once_are_answered_as_alone(folder_of, tmp_path, family):
    """F2: lengths, samplings, streams, cached heads and starts of all kinds share a batch, twenty times over.

    Where rounding tips a choice (of experts, or between two tokens that are as likely) texts may part: once at most.
    """
    rng = random.Random(3)
    parted = []
    with small_server(folder_of(family), tmp_path / "together") as server:
        rounds = [company(number) for number in range(ROUNDS[family])]
        together = []
        for asked in rounds:
            delays = [rng.uniform(0, 0.03) for _ in asked]
            with ThreadPoolExecutor(len(asked)) as pool:
                jobs = [
                    pool.submit(each.send, server, delay) for each, delay in zip(asked, delays, strict=True)
                ]
                together.append([job.result() for job in jobs])
        assert 0 == server.runtime.health().rows
    with small_server(folder_of(family), tmp_path / "alone") as server:
        for asked, said in zip(rounds, together, strict=True):
            alone = [each.send(server) for each in asked]
            parted += [n for n, (a, b) in enumerate(zip(alone, said, strict=True)) if a != b]
    assert len(parted) <= 1, parted


def test_rows_of_all_kinds_do_share_a_batch(folder_of, tmp_path):
    """F2: what runs at once is decoded in one batch: at some moment it holds more rows than one."""
    with small_server(folder_of("llama"), tmp_path) as server, ThreadPoolExecutor(8) as pool:
        jobs = [
            pool.submit(
                Asked(each.prompt, {**each.options, "max_tokens": 200, "stop": None}, each.stream).send,
                server,
            )
            for each in company(0)
        ]
        executor, most = server.runtime._device._executor, 0
        while not all(job.done() for job in jobs):
            most = max([most, *(len(batch) for batch in executor._batches)])
            time.sleep(0.002)
    assert 8 == most
