"""ScriptedBackend: a Backend that says what it is told to say, from a thread, in its own time."""

import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TypeAlias

import msgspec

import omlx
from omlx.errors import RequestError, UnknownModelError
from omlx.pipeline.backend import Health, ModelCard
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.request import Request
from omlx.pipeline.timeline import Listeners, RequestTrace, Tell
from omlx.text.delta import Delta, Finished, FinishReason, Started, TextDelta, Usage

Sink: TypeAlias = Callable[[Delta], None]


@dataclass(frozen=True, slots=True)
class Pause:
    """Say nothing for a while. A cancelled request stops pausing at once."""

    seconds: float


Script: TypeAlias = Iterable[Delta | Pause]


def answer(*texts: str, reason: FinishReason = "stop", usage: Usage | None = None) -> tuple[Delta, ...]:
    """Return the deltas of a plain answer; by default each text counts as one token, the prompt as three."""
    counted = usage or Usage(prompt_tokens=3, prefilled_tokens=3, completion_tokens=len(texts))
    return (Started(counted), *(TextDelta(text) for text in texts), Finished(reason, counted))


@dataclass(eq=False)
class ScriptedTicket:
    """A request of a ScriptedBackend. `cancelled` is set as soon as it is given up."""

    request: Request
    cancelled: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None

    def cancel(self) -> None:
        """Give the request up."""
        self.cancelled.set()


class ScriptedBackend:
    """Answers every request with a script.

    `script` is a sequence of deltas and pauses, or a function from the request to one; the function is
    called in `submit`, so what it raises refuses the request. `tickets` holds every request submitted, in
    order. `state` may be replaced to change what `health` returns, `explanation` to have something to explain with,
    `history` to have a past; `listeners` are those who listen.
    """

    def __init__(
        self, models: Sequence[ModelCard | str], script: Script | Callable[[Request], Script] = ()
    ) -> None:
        self.script = script
        self.tickets: list[ScriptedTicket] = []
        self._models = tuple(ModelCard(card) if isinstance(card, str) else card for card in models)
        self.state = Health("ok", omlx.__version__, models=self._models)
        self.explanation: Explanation | None = None
        self.history: list[RequestTrace] = []
        self.listeners = Listeners()

    def resolve(self, name: str | None) -> ModelCard:
        """Return the model that answers to a name or an alias; the first one for None or ""."""
        if not name:
            return self._models[0]
        for card in self._models:
            if name in (card.name, *card.aliases):
                return card
        raise UnknownModelError(name, [card.name for card in self._models])

    def models(self) -> tuple[ModelCard, ...]:
        """Return the models it was made with."""
        return self._models

    def load(self, name: str) -> "Future[ModelCard]":
        """Say that the model is loaded."""
        return self._answer(msgspec.structs.replace(self.resolve(name), loaded=True))

    def unload(self, name: str) -> "Future[ModelCard]":
        """Say that the model is not loaded."""
        return self._answer(msgspec.structs.replace(self.resolve(name), loaded=False))

    @staticmethod
    def _answer(card: ModelCard) -> "Future[ModelCard]":
        done: Future[ModelCard] = Future()
        done.set_result(card)
        return done

    def submit(self, request: Request, sink: Sink) -> ScriptedTicket:
        """Play the script to `sink` from a thread of its own."""
        script = self.script(request) if callable(self.script) else self.script
        ticket = ScriptedTicket(request)
        ticket.thread = threading.Thread(target=_play, args=(script, ticket, sink), daemon=True)
        self.tickets.append(ticket)
        ticket.thread.start()
        return ticket

    def health(self) -> Health:
        """Return `state`."""
        return self.state

    def explain(self, request: Request, *, show_text: bool = False) -> Explanation:  # noqa: ARG002 - the seam's
        """Return `explanation`. Raises RequestError when there is none."""
        self.resolve(request.model)
        if self.explanation is None:
            raise RequestError("a scripted backend explains what it was told to", hint="set `explanation`")
        return self.explanation

    def traces(self) -> tuple[RequestTrace, ...]:
        """Return `history`."""
        return tuple(self.history)

    def listen(self, tell: Tell) -> Callable[[], None]:
        """Add to `listeners`."""
        return self.listeners.add(tell)


def _play(script: Script, ticket: ScriptedTicket, sink: Sink) -> None:
    for step in script:
        if isinstance(step, Pause):
            ticket.cancelled.wait(step.seconds)
        if ticket.cancelled.is_set():
            sink(Finished("cancelled", Usage()))
            return
        if not isinstance(step, Pause):
            sink(step)
