"""Clients that leave, and requests that meet in flight: nothing is computed twice, nothing stale stays behind."""

import threading
from collections.abc import Iterator

import pytest

from omlx.pipeline.request import Request, Sampling
from omlx.pipeline.state import State
from omlx.runtime.ticket import Ticket
from omlx.text.chat import TokenPrompt
from omlx.text.delta import Delta, Failed, Finished, Started
from omlx.types import RequestId
from tests.serving import Served
from tests.trust.talk import BLOCK, CHUNK, answer, restored, settled, small_server, statistics, tokens_of

PREFIX = tokens_of(1, 3 * BLOCK)
LONG = tokens_of(2, 40 * CHUNK)


class Asked:
    """A request submitted to the runtime itself, to be stopped at a chosen step."""

    def __init__(self, server: Served, prompt: list[int], *, max_tokens: int = 8) -> None:
        self.deltas: list[Delta] = []
        self._ended = threading.Event()
        request = Request(
            id=RequestId("asked"),
            model="tiny",
            prompt=TokenPrompt(tuple(prompt)),
            sampling=Sampling(temperature=0.0),
            max_tokens=max_tokens,
            ignore_eos=True,
        )
        self.ticket: Ticket = server.runtime.submit(request, self._take)

    def _take(self, delta: Delta) -> None:
        self.deltas.append(delta)
        if isinstance(delta, Finished | Failed):
            self._ended.set()

    def reach(self, tokens: int) -> None:
        """Wait until that many tokens have been run, or the request is over."""
        assert settled(lambda: self._ended.is_set() or self._offset() >= tokens)

    def _offset(self) -> int:
        state: State | None = self.ticket._state
        return state.sequence.offset if state is not None and state.sequence is not None else 0

    def leave_at(self, tokens: int) -> None:
        """Give the request up once that many tokens have been run."""
        self.reach(tokens)
        self.ticket.cancel()
        assert self._ended.wait(20)

    def prefilled(self) -> int:
        """Wait for the end; return how many prompt tokens were computed."""
        assert self._ended.wait(60)
        [end] = [delta for delta in self.deltas if isinstance(delta, Finished)]
        return end.usage.prefilled_tokens


@pytest.fixture
def server(folder, tmp_path) -> Iterator[Served]:
    """Return a server with small blocks that has its model in memory."""
    with small_server(folder, tmp_path / "warm") as running:
        answer(running, tokens_of(99, 20), max_tokens=1)
        yield running


def test_what_a_client_left_behind_is_right(server, kind, folder, tmp_path):
    """A7: after requests given up in prefill and while decoding, prompts that share blocks with them answer as cold."""
    prompts = [[*PREFIX, *tokens_of(10 + number, 3 * BLOCK)] for number in range(6)]
    with small_server(folder, tmp_path / "cold") as other:
        colds = [answer(other, prompt)[0] for prompt in prompts]
    for number, prompt in enumerate(prompts):
        left = [*prompt[: 5 * BLOCK], *tokens_of(50 + number, BLOCK)]
        if number % 2:
            Asked(server, left, max_tokens=500).leave_at(len(left) + 9)
        else:
            Asked(server, [*left, *LONG]).leave_at(2 * CHUNK)
        found, cached = answer(server, prompt)
        assert colds[number] == found
        assert cached >= (0 if kind == "hybrid" else len(PREFIX))  # a state is kept where a client left
    assert 0 == statistics(server)["hot"]["pinned_blocks"]
    assert 0 == server.runtime.health().running


def test_a_client_that_gives_up_and_comes_back_arrives(server):
    """C12: given up half-way and sent again, a prompt goes on where it was left, until it is answered."""
    kept = 0
    for share in (0.3, 0.6):
        first = Asked(server, LONG)
        first.leave_at(int(share * len(LONG)))
        [begun] = [delta for delta in first.deltas if isinstance(delta, Started)]
        assert begun.usage.cached_tokens >= kept
        kept = int(share * len(LONG)) // CHUNK * CHUNK
    assert Asked(server, LONG).prefilled() <= len(LONG) - kept


def test_a_closed_connection_keeps_what_was_computed(server):
    """C12: closed during prefill, a connection ends its request, and what it computed is there for the next."""
    body = {"prompt": LONG, "max_tokens": 4, "stream": True}
    with server.http.stream("POST", "/v1/completions", json=body):
        [ticket] = server.runtime._gate.everyone()
        state: State = ticket._state
        assert settled(lambda: state.sequence is not None and state.sequence.offset >= 4 * CHUNK)
    assert settled(lambda: server.runtime.health().running == 0)
    again = server.complete(LONG, max_tokens=4)
    assert 4 * CHUNK <= restored(again) < len(LONG) - 1


@pytest.mark.parametrize("moment", ["prefill", "decode"])
def test_what_another_request_computes_is_computed_once(server, moment):
    """A second request that comes while the first computes what both need computes its own end alone."""
    first = Asked(server, LONG, max_tokens=60)
    first.reach(CHUNK if moment == "prefill" else len(LONG) + 5)
    second = Asked(server, [*LONG, 9, 9, 9])
    assert second.prefilled() <= 4
    assert first.prefilled() == len(LONG)


def test_a_request_goes_on_alone_when_the_one_before_it_leaves(server):
    """When the first is given up, the second computes what the first had not, and no more."""
    first = Asked(server, LONG)
    first.reach(CHUNK)
    second = Asked(server, [*LONG, 9, 9, 9])
    first.leave_at(10 * CHUNK)
    assert CHUNK < second.prefilled() <= len(LONG) + 3 - 10 * CHUNK


def test_a_request_while_the_answer_is_decoded_reuses_the_answer(server):
    """What the first has said so far, in whole blocks, is restored by one that goes on from it."""
    prompt = tokens_of(5, 3 * BLOCK)
    first = Asked(server, prompt, max_tokens=8 * BLOCK)
    first.reach(len(prompt) + 5 * BLOCK)
    state = first.ticket._state
    assert state is not None
    spoken = state.sequence.tokens.tolist()[: len(prompt) + 4 * BLOCK]
    second = Asked(server, [*spoken, 9, 9])
    hybrid = "state" in state.model.layout.kinds()
    assert second.prefilled() <= (len(spoken) + 3 - len(prompt) if hybrid else BLOCK + 3)
