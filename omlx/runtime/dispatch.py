"""Dispatch: carry out what the planner of turns says, and keep the account of memory.

    enter ─┐                         ┌─▶ begin requests
    leave ─┼─▶ turn: gate, planner ──┼─▶ load a model     ─ ─▶ loaded or failed ─▶ turn
    clock ─┘                         └─▶ unload models    ─ ─▶ gone ─▶ turn

Whoever makes something happen runs the turn; one at a time, and who comes meanwhile leaves it to the one that is at
it, so that a request that ends at once does not begin the next one inside its own end.
"""

import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Protocol

import structlog

from omlx.errors import CancelledError, InUseError, OmlxError
from omlx.models.loaded import LoadedModel
from omlx.models.pool import ModelPool, memory_in_use
from omlx.pipeline.conductor import internal_error
from omlx.runtime.gate import Gate, Moves
from omlx.runtime.memory import Account, Refusal, model_refusal, request_refusal, spare_models
from omlx.store.store import BlockStore

log = structlog.get_logger()

#: How often deadlines and idle models are looked at.
TICK_S = 0.2
#: How long a request that lacks memory waits for blocks to be written.
WRITES_S = 5.0


class Guest(Protocol):
    """Whoever wants a model: a request, or a wish to have it loaded. Compared by identity."""

    @property
    def model(self) -> str:
        """Return the model's configured name."""
        ...

    def loading(self) -> None:
        """Hear that the model is being loaded."""
        ...

    def begin(self, loaded: LoadedModel) -> None:
        """Begin: the model is in memory, and stays until this one leaves."""
        ...

    def end(self, error: OmlxError | None) -> None:
        """Hear that it cannot begin."""
        ...

    def cancel(self) -> None:
        """Give up: at once, or at the next step."""
        ...

    def expire(self) -> None:
        """Give up if its time is over."""
        ...


class SizeLearnedError(Exception):
    """The model's files have come only now: plan again, with its size."""


class Dispatcher:
    """Let guests in, hold models for them, and count bytes.

    Args:
        gate: who runs and waits.
        pool: what is in memory.
        store: the tiers that give way, if there are any.
        budget: bytes of weights, live caches, hot tier and pending writes.
        size: returns the bytes of a model's weights, by name; None when they are not on this machine yet.
        pinned: the models that stay in memory.
        on_loaded: hears of each model that was loaded, on the device thread.
    """

    def __init__(
        self,
        gate: Gate[Guest],
        pool: ModelPool,
        store: BlockStore | None,
        *,
        budget: int,
        size: Callable[[str], int | None],
        pinned: frozenset[str],
        on_loaded: Callable[[str, LoadedModel], None],
    ) -> None:
        self._gate = gate
        self._pool = pool
        self._store = store
        self._budget = budget
        self._size = size
        self._pinned = pinned
        self._on_loaded = on_loaded
        self._reserved: dict[Guest, int] = {}
        self._deciding = threading.Lock()
        self._turning = False
        self._again = False
        self._flags = threading.Lock()
        self._stop = threading.Event()
        self._clock = threading.Thread(target=self._tick, name="omlx-clock", daemon=True)

    def start(self) -> None:
        """Start the clock."""
        self._clock.start()

    def close(self) -> None:
        """Stop the clock and the loader."""
        self._stop.set()
        if self._clock.is_alive():
            self._clock.join()
        self._pool.close()

    def enter(self, guest: Guest) -> None:
        """Let a guest wait for its turn. Raises BusyError when all places are taken, TooLargeError for its model."""
        loaded = self._pool.peek(guest.model)
        nbytes = loaded.nbytes if loaded else self._size(guest.model) or 0
        if refusal := self._model_refusal(guest.model, nbytes):
            raise refusal
        self._gate.enter(guest, nbytes)
        if self._gate.is_loading(guest.model):
            guest.loading()
        self._turn()

    def leave(self, guest: Guest) -> None:
        """Let a guest go, wherever it stands."""
        with self._deciding:
            self._reserved.pop(guest, None)
        self._gate.leave(guest)
        self._turn()

    def want(self, model: str) -> "Future[LoadedModel]":
        """Have a model loaded when its turn comes. Raises as `enter` does."""
        wish = _Wish(model, self.leave)
        self.enter(wish)
        return wish.future

    def unload(self, model: str) -> "Future[None]":
        """Begin to unload a model. Raises InUseError when requests use it or wait for it."""
        if self._gate.claim_unload(model):
            return self._unload(model)
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def reserve(self, guest: Guest, nbytes: int) -> None:
        """Count bytes for a running guest, until it leaves. The hot tier gives way; pending writes are waited for.

        Raises TooLargeError for what can never fit, BusyError for what does not fit now.
        """
        refusal, account = self._try_reserve(guest, nbytes)
        short = nbytes + account.firm_bytes - account.budget_bytes
        if refusal is not None and self._store is not None and 0 < short <= account.pending_bytes:
            self._store.flush(WRITES_S)
            refusal, account = self._try_reserve(guest, nbytes)
        if refusal is None:
            self._settle()
            return
        for name in spare_models(self._gate.residents(), guest.model, short):
            with contextlib.suppress(InUseError):  # somebody was faster
                self.unload(name)
        raise refusal

    def _try_reserve(self, guest: Guest, nbytes: int) -> tuple[Refusal | None, Account]:
        with self._deciding:
            account, weights = self._account(), self._gate.weights()
            lasting = sum(size for name, size in weights.items() if name in self._pinned | {guest.model})
            refusal = request_refusal(nbytes, account, lasting)
            if refusal is None:
                self._reserved[guest] = nbytes
        return refusal, account

    def account(self) -> Account:
        """Return where the budget goes."""
        with self._deciding:
            return self._account(memory_in_use())

    def _account(self, active: int | None = None) -> Account:
        hot, pending = self._store.ram_bytes() if self._store else (0, 0)
        weights, sequences = sum(self._gate.weights().values()), sum(self._reserved.values())
        return Account(self._budget, weights, sequences, hot, pending, active)

    def _settle(self) -> None:
        """Leave to the hot tier what the others do not take."""
        if self._store is not None:
            with self._deciding:
                room = self._account().hot_room_bytes
            self._store.limit_hot(room)

    def _model_refusal(self, name: str, nbytes: int) -> OmlxError | None:
        others = sum(self._size(other) or 0 for other in self._pinned if other != name)
        return model_refusal(name, nbytes, self._budget, others)

    def _turn(self) -> None:
        """Do what can be done now, and again if something has happened meanwhile."""
        with self._flags:
            self._again = True
            if self._turning:
                return
            self._turning = True
        try:
            while self._take_again():
                self._carry_out(self._moves())
        except BaseException:
            with self._flags:
                self._turning = False
            raise

    def _take_again(self) -> bool:
        with self._flags:
            self._turning = self._again
            self._again = False
            return self._turning

    def _moves(self) -> Moves[Guest]:
        with self._deciding:
            return self._gate.turn(self._budget - sum(self._reserved.values()))

    def _carry_out(self, moves: Moves[Guest]) -> None:
        if not moves:
            return
        for name in moves.unload:
            self._unload(name)
        self._settle()
        if moves.load is not None:
            self._load(moves.load)
        for guest in moves.begin:
            guest.begin(self._pool.get(guest.model))

    def _load(self, name: str) -> None:
        for guest in self._gate.waiting_for(name):
            guest.loading()
        self._pool.load(name).add_done_callback(lambda done: self._after_load(name, done))

    def _after_load(self, name: str, done: "Future[LoadedModel]") -> None:
        """Take note of a model that was loaded, or fail those who wait for it. The next who asks tries again."""
        error = done.exception()
        if error is None:
            loaded = done.result()
            self._gate.loaded(name, loaded.nbytes)
            self._on_loaded(name, loaded)
        else:
            if not isinstance(error, OmlxError | SizeLearnedError):
                log.error("model load failed", model=name, exc_info=error)
            self._fail_load(name, error)
        self._turn()

    def _fail_load(self, name: str, error: BaseException) -> None:
        failure: OmlxError | None = error if isinstance(error, OmlxError) else internal_error(error)
        if isinstance(error, SizeLearnedError):
            size = self._size(name) or 0
            failure = self._model_refusal(name, size)
            self._gate.gone(name)
            self._gate.know(name, size)
        waiting = self._gate.waiting_for(name) if failure else []
        for guest in waiting:
            self._gate.leave(guest)
        if failure:
            self._gate.gone(name)
        for guest in waiting:
            guest.end(failure)

    def _unload(self, name: str) -> "Future[None]":
        dropped = self._pool.drop(name)
        dropped.add_done_callback(lambda _: self._after_unload(name))
        return dropped

    def _after_unload(self, name: str) -> None:
        log.info("model unloaded", model=name)
        self._gate.gone(name)
        self._settle()
        self._turn()

    def _tick(self) -> None:
        """End what is overdue, unload what is idle: the clock's thread."""
        while not self._stop.wait(TICK_S):
            self._expire()
            self._turn()

    def _expire(self) -> None:
        """End what is overdue. In a frame of its own: a loop's variable holds the last guest, and that its model."""
        for guest in self._gate.everyone():
            guest.expire()


class _Wish:
    """A guest that wants a model in memory and nothing of it."""

    def __init__(self, model: str, leave: Callable[[Guest], None]) -> None:
        self.model = model
        self.future: Future[LoadedModel] = Future()
        self._leave = leave

    def loading(self) -> None:
        """Do nothing: nobody counts the time."""

    def begin(self, loaded: LoadedModel) -> None:
        """Tell who waits, and go."""
        self._leave(self)
        self.future.set_result(loaded)

    def end(self, error: OmlxError | None) -> None:
        """Tell who waits what went wrong."""
        self._leave(self)
        self.future.set_exception(error or CancelledError("the model was not loaded"))

    def cancel(self) -> None:
        """Tell who waits that nothing comes."""
        self.end(CancelledError("the server is stopping"))

    def expire(self) -> None:
        """Do nothing: a wish has no deadline."""
