"""Backend: what the server needs of whatever runs requests.

Met by `omlx.runtime.Runtime` and by the shipped fake `omlx.testing.ScriptedBackend`.
"""

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, Protocol

import msgspec

from omlx.pipeline.explanation import Explanation
from omlx.pipeline.request import Request
from omlx.pipeline.timeline import RequestTrace, Tell
from omlx.text.delta import Delta


class ModelCard(msgspec.Struct, frozen=True):
    """A model as clients may list it. `window_tokens` is None until it is known.

    An alias with settings of its own is a card of its own, with the model it stands for as `root`. `leases` counts the
    requests that hold it in memory. Known once it is loaded: `uncached`, why nothing of it is cached, and `alone`, why
    its sequences decode one by one; both None where that is not so.
    """

    name: str
    aliases: tuple[str, ...] = ()
    pipeline: str = "default"
    window_tokens: int | None = None
    loaded: bool = False
    root: str | None = None
    leases: int = 0
    uncached: str | None = None
    alone: str | None = None


class Health(msgspec.Struct, frozen=True):
    """The state of the whole. `status` is "ok", or says in one word what is wrong; `memory` is in bytes.

    `rows`: the sequences whose caches the batches hold, of all models.
    `totals`: what all requests since the start have cost together, see `omlx.runtime.totals.Sums`.
    """

    status: str
    version: str
    running: int = 0
    queued: int = 0
    rows: int = 0
    models: tuple[ModelCard, ...] = ()
    cache: dict[str, Any] | None = None
    memory: dict[str, int | None] | None = None
    totals: dict[str, Any] | None = None


class Ticket(Protocol):
    """A submitted request."""

    def cancel(self) -> None:
        """Give the request up at its next step. Safe to call at any time, from any thread."""
        ...


class Backend(Protocol):
    """Run requests; answer questions about the models. Every method is safe to call from any thread."""

    def resolve(self, name: str | None) -> ModelCard:
        """Return the model that answers to a name, an alias, a hub name or a folder; the default for None or "".

        Raises UnknownModelError listing the names.
        """
        ...

    def models(self) -> tuple[ModelCard, ...]:
        """Return all configured models."""
        ...

    def submit(self, request: Request, sink: Callable[[Delta], None]) -> Ticket:
        """Start a request and return at once; `sink` gets its deltas in order, from some other thread.

        Raises BusyError when the queue is full, UnknownModelError.
        """
        ...

    def load(self, name: str) -> "Future[ModelCard]":
        """Have a model loaded, when its turn comes. Raises UnknownModelError, BusyError, TooLargeError."""
        ...

    def unload(self, name: str) -> "Future[ModelCard]":
        """Have a model unloaded. Raises UnknownModelError, and InUseError while requests use it."""
        ...

    def health(self) -> Health:
        """Return how things stand. Must not wait for the device."""
        ...

    def explain(self, request: Request, *, show_text: bool = False) -> Explanation:
        """Return what the request would do and why, without doing it. Takes as long as tokenizing does.

        Raises UnknownModelError, and what refuses the request before prefill.
        """
        ...

    def traces(self) -> tuple[RequestTrace, ...]:
        """Return the requests that ended lately, the latest last."""
        ...

    def listen(self, tell: Tell) -> Callable[[], None]:
        """Call `tell` with every event of requests from now on; return what ends that."""
        ...
