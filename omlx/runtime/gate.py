"""Gate: the requests that run and wait, and the models they use. Plain Python under one lock.

What it knows is put before the planner (`turns.py`); what the planner says is taken into the books here, and carried
out elsewhere (`dispatch.py`).
"""

import itertools
import threading
import time
from dataclasses import dataclass, field, replace
from typing import Generic, Protocol, TypeVar

from omlx.errors import BusyError, InUseError
from omlx.runtime.turns import Resident, Scene, Turn, Waiting, plan_turn


class Entrant(Protocol):
    """Whoever wants a model: a request, or a wish to have it loaded."""

    @property
    def model(self) -> str:
        """Return the model's configured name."""
        ...


E = TypeVar("E", bound=Entrant)


@dataclass(frozen=True, slots=True)
class Terms:
    """How a model is held: pinned, or unloaded when idle for so long."""

    pinned: bool = False
    idle_s: float | None = None


@dataclass(frozen=True)
class Moves(Generic[E]):
    """What is to be done now."""

    begin: tuple[E, ...] = ()
    load: str | None = None
    unload: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.begin or self.load or self.unload)


@dataclass
class _Books(Generic[E]):
    """What is known. Mutable, under the gate's lock."""

    running: dict[E, int] = field(default_factory=dict)
    waiting: dict[E, Waiting] = field(default_factory=dict)
    residents: dict[str, Resident] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)
    loading: str | None = None
    unloading: set[str] = field(default_factory=set)


class Gate(Generic[E]):
    """Let requests in: `max_running` at once, and so many more that may wait, first come, first served.

    Args:
        max_running: how many run at once.
        max_queued: how many more may wait.
        terms: how each model is held, by its name.
    """

    def __init__(self, max_running: int, max_queued: int, terms: dict[str, Terms]) -> None:
        self._max_running = max_running
        self._capacity = max_running + max_queued
        self._terms = terms
        self._books: _Books[E] = _Books()
        self._numbers = itertools.count()
        self._lock = threading.Lock()

    def enter(self, item: E, nbytes: int) -> None:
        """Let an item wait for its turn; its model takes so many bytes. Raises BusyError when all places are taken."""
        books = self._books
        with self._lock:
            if len(books.running) + len(books.waiting) >= self._capacity:
                raise BusyError(
                    f"{len(books.running)} requests are running and {len(books.waiting)} are waiting",
                    hint="try again in a moment, or raise server.max_queued",
                )
            number = next(self._numbers)
            books.waiting[item] = Waiting(number, item.model)
            if books.loading != item.model:
                books.sizes[item.model] = nbytes

    def leave(self, item: E) -> None:
        """Take an item out, running or waiting."""
        with self._lock:
            self._books.waiting.pop(item, None)
            if self._books.running.pop(item, None) is not None:
                self._lease(item.model, -1)

    def turn(self, room_bytes: int) -> Moves[E]:
        """Plan what can be done now, when all models together may take so many bytes, and take it into the books."""
        with self._lock:
            plan = plan_turn(self._scene(room_bytes))
            return self._apply(plan)

    def know(self, model: str, nbytes: int) -> None:
        """Take note of a model's size."""
        with self._lock:
            self._books.sizes[model] = nbytes

    def loaded(self, model: str, nbytes: int) -> None:
        """Take note that a model is in memory."""
        terms = self._terms.get(model, Terms())
        resident = Resident(model, nbytes, 0, time.monotonic(), terms.pinned, terms.idle_s)
        with self._lock:
            self._books.loading = None
            self._books.residents[model] = resident

    def gone(self, model: str) -> None:
        """Take note that a model is not in memory: it was unloaded, or could not be loaded."""
        books = self._books
        with self._lock:
            books.residents.pop(model, None)
            books.unloading.discard(model)
            if books.loading == model:
                books.loading = None

    def is_loading(self, model: str) -> bool:
        """Tell whether a model is being loaded."""
        with self._lock:
            return self._books.loading == model

    def residents(self) -> tuple[Resident, ...]:
        """Return the models in memory that are not being unloaded."""
        books = self._books
        with self._lock:
            return tuple(each for name, each in books.residents.items() if name not in books.unloading)

    def waiting_for(self, model: str) -> list[E]:
        """Return the items that wait for a model."""
        with self._lock:
            return [item for item in self._books.waiting if item.model == model]

    def claim_unload(self, model: str) -> bool:
        """Take a model for unloading; False when it is not in memory. Raises InUseError when requests need it."""
        books = self._books
        with self._lock:
            resident = books.residents.get(model)
            leases = resident.leases if resident else 0
            queued = sum(item.model == model for item in books.waiting)
            if leases or queued or books.loading == model:
                what = (
                    "it is being loaded" if books.loading == model else f"{leases + queued} requests use it"
                )
                raise InUseError(
                    f"model {model!r} cannot be unloaded: {what}", hint="try again when they have ended"
                )
            if resident is None or model in books.unloading:
                return False
            books.unloading.add(model)
            return True

    def everyone(self) -> list[E]:
        """Return all items, running first."""
        with self._lock:
            return [*self._books.running, *self._books.waiting]

    def counts(self) -> tuple[int, int]:
        """Return how many run and how many wait."""
        with self._lock:
            return len(self._books.running), len(self._books.waiting)

    def weights(self) -> dict[str, int]:
        """Return the bytes of each model that is in memory, or on its way."""
        books = self._books
        with self._lock:
            found = {name: each.nbytes for name, each in books.residents.items()}
            if books.loading is not None:
                found[books.loading] = books.sizes[books.loading]
            return found

    def _scene(self, room_bytes: int) -> Scene:
        books = self._books
        return Scene(
            residents=tuple(books.residents.values()),
            waiting=tuple(books.waiting.values()),
            sizes=books.sizes,
            free_slots=self._max_running - len(books.running),
            room_bytes=room_bytes,
            loading=books.loading,
            unloading=frozenset(books.unloading),
            now_s=time.monotonic(),
        )

    def _apply(self, plan: Turn) -> Moves[E]:
        books = self._books
        begin = tuple(item for item, each in books.waiting.items() if each.number in plan.begin)
        for item in begin:
            books.running[item] = books.waiting.pop(item).number
            self._lease(item.model, 1)
        for item, each in books.waiting.items():
            if each.number == plan.stuck:
                books.waiting[item] = replace(each, overtaken=each.overtaken + plan.overtaking)
        books.loading = plan.load or books.loading
        books.unloading.update(plan.unload)
        return Moves(begin, plan.load, plan.unload)

    def _lease(self, model: str, change: int) -> None:
        resident = self._books.residents[model]
        self._books.residents[model] = replace(
            resident, leases=resident.leases + change, used_s=time.monotonic()
        )
