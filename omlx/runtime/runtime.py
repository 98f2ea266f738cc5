"""Run requests on the configured models."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import msgspec
import structlog

from omlx import __version__
from omlx.config.settings import Settings
from omlx.engine.device import DeviceThread
from omlx.engine.executor import Executor
from omlx.errors import BusyError, ModelLoadError
from omlx.explain.event import log_fields
from omlx.explain.explainer import Explainer
from omlx.models.describe import describe, identity, local_folder, weight_bytes
from omlx.models.load import ReadModel, read
from omlx.models.loaded import LoadedModel
from omlx.models.pool import ModelPool
from omlx.models.resolve import resolve_folder
from omlx.pipeline.backend import Health, ModelCard
from omlx.pipeline.conductor import Conductor
from omlx.pipeline.cost import CostBook, profile_folder
from omlx.pipeline.defaults import with_defaults
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.model import Model
from omlx.pipeline.pipelines import load_pipelines
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services
from omlx.pipeline.state import State
from omlx.pipeline.timeline import Listeners, RequestTrace, Tell
from omlx.runtime.compose import open_store
from omlx.runtime.dispatch import Dispatcher, Guest, SizeLearnedError
from omlx.runtime.gate import Gate, Terms
from omlx.runtime.lanes import WorkerLanes
from omlx.runtime.memory import budget_bytes, needed_bytes
from omlx.runtime.names import ModelNames
from omlx.runtime.ticket import Hooks, Ticket
from omlx.runtime.totals import Totals
from omlx.stages import built_in_stages
from omlx.stages.prefill import computing_of
from omlx.text.delta import Delta
from omlx.types import Fingerprint

log = structlog.get_logger()

#: How many finished requests are remembered.
HISTORY = 256


class Runtime:
    """Run requests on the configured models. Meets `omlx.pipeline.backend.Backend`.

    Args:
        settings: validated settings.
        base: the folder beside which pipelines are looked for first (that of `models.toml`).

    Raises ConfigError when a pipeline that a model names is missing or wrong.
    """

    def __init__(self, settings: Settings, base: Path) -> None:
        self.settings = settings
        self._names = ModelNames(settings)
        self._pipelines = load_pipelines(settings, base, built_in_stages())
        self._store = open_store(settings.cache, list(self._pipelines.values()))
        self._device = DeviceThread(Executor(self._get_model))
        self._pool = ModelPool(self._read_model, self._device.call)
        self._lanes = WorkerLanes(self._device)
        self._costs = CostBook(profile_folder(settings.cache) if self._store is not None else None)
        self._services = Services(self._store, costs=self._costs)
        self._conductor = Conductor(self._services, self._lanes)
        self._listeners = Listeners()
        self._history: deque[RequestTrace] = deque(maxlen=HISTORY)
        self._totals = Totals()
        self._described: dict[str, Model] = {}
        self._closing = False
        self._fingerprints = self._configured_fingerprints()
        self._sizes = {name: weight_bytes(model) for name, model in settings.models.items()}
        self._dispatcher = self._make_dispatcher()
        self._hooks = Hooks(
            self._walk,
            self._forget,
            self._explain_started,
            self._reserve,
            self._listeners,
            settings.server.request_timeout,
        )
        self._adopt()

    def start(self) -> None:
        """Start the device thread. A model is loaded when it is first asked for, or now if its settings say so."""
        self._device.start()
        self._dispatcher.start()
        for name, model in self.settings.models.items():
            if model.preload:
                self.preload(name)

    def preload(self, name: str | None = None) -> "Future[LoadedModel]":
        """Begin to load a model (the default one) before anyone asks for it."""
        future = self._dispatcher.want(self._names.resolve(name))
        future.add_done_callback(_log_failure)
        return future

    def load(self, name: str) -> "Future[ModelCard]":
        """Have a model loaded, when its turn comes. Raises UnknownModelError, BusyError, TooLargeError."""
        resolved = self._names.resolve(name)
        return _then(self._dispatcher.want(resolved), lambda: self._card(resolved))

    def unload(self, name: str) -> "Future[ModelCard]":
        """Have a model unloaded; what it has cached stays. Raises InUseError while requests use it."""
        resolved = self._names.resolve(name)
        return _then(self._dispatcher.unload(resolved), lambda: self._card(resolved))

    def close(self) -> None:
        """Give up running requests, write what is queued, and stop."""
        self._closing = True
        for guest in self._gate.everyone():
            guest.cancel()
        self._wait_idle(timeout_s=5.0)
        self._dispatcher.close()
        self._lanes.close()
        self._device.close()
        if self._store is not None:
            self._store.close()
            self._save_costs()

    def resolve(self, name: str | None) -> ModelCard:
        """Return the model that answers to a name. Raises UnknownModelError listing the names."""
        asked = name or self._names.default()
        card = self._card(self._names.resolve(asked))
        if self._names.alias(asked) is None:
            return card
        return msgspec.structs.replace(card, name=asked, aliases=(), root=card.name)

    def models(self) -> tuple[ModelCard, ...]:
        """Return all configured models."""
        return tuple(self._card(name) for name in self.settings.models)

    def submit(self, request: Request, sink: Callable[[Delta], None]) -> Ticket:
        """Start a request and return at once; `sink` gets its deltas in order, from some other thread.

        Raises BusyError when the queue is full or the server is stopping, UnknownModelError, and TooLargeError for a
        model that the memory cannot hold.
        """
        if self._closing:
            raise BusyError("the server is stopping", hint="try again when it is back")
        name = self._names.resolve(request.model)
        ticket = Ticket(request, name, sink, self._hooks)
        self._dispatcher.enter(ticket)
        return ticket

    def explain(self, request: Request, *, show_text: bool = False) -> Explanation:
        """Return what the request would do and why, without doing it. Loads no weights.

        Raises UnknownModelError, ModelLoadError, and what refuses the request before prefill.
        """
        name = self._names.resolve(request.model)
        model = self._model(name)
        asked = with_defaults(request, self._names.alias(request.model), model.template_options)
        found = self._explainer(name).dry(asked, model, show_text=show_text)
        log.info("request explained", request=request.id, dry=True, **log_fields(found))
        return found

    def traces(self) -> tuple[RequestTrace, ...]:
        """Return the requests that ended lately, the latest last."""
        return tuple(self._history)

    def listen(self, tell: Tell) -> Callable[[], None]:
        """Call `tell` with every event of requests from now on; return what ends that."""
        return self._listeners.add(tell)

    def health(self) -> Health:
        """Return how things stand. Does not wait for the device."""
        running, queued = self._gate.counts()
        stats = msgspec.to_builtins(self._store.stats()) if self._store is not None else None
        status = "ok" if self._device.alive() else "device thread is not running"
        memory = msgspec.to_builtins(self._dispatcher.account())
        totals = msgspec.to_builtins(self._totals.sums())
        rows = self._device.num_rows()
        return Health(status, __version__, running, queued, rows, self.models(), stats, memory, totals)

    def _card(self, name: str) -> ModelCard:
        settings = self.settings.models[name]
        loaded = self._pool.peek(name)
        return ModelCard(
            name,
            tuple(settings.aliases),
            self._pipelines[name].name,
            loaded.model.window_tokens if loaded else settings.window_tokens,
            loaded is not None,
            leases=sum(each.leases for each in self._gate.residents() if each.name == name),
            uncached=loaded.model.uncached_reason if loaded else None,
            alone=loaded.alone if loaded else None,
        )

    def _make_dispatcher(self) -> Dispatcher:
        server, models = self.settings.server, self.settings.models
        terms = {name: Terms(model.pin, model.idle) for name, model in models.items()}
        self._gate: Gate[Guest] = Gate(server.max_running, server.max_queued, terms)
        return Dispatcher(
            self._gate,
            self._pool,
            self._store,
            budget=budget_bytes(server),
            size=self._sizes.get,
            pinned=frozenset(name for name, model in models.items() if model.pin),
            on_loaded=self._model_loaded,
        )

    def _get_model(self, name: str) -> LoadedModel:
        return self._pool.get(name)

    def _read_model(self, name: str) -> ReadModel:
        """Read a model's files, after a download if need be: on the loader thread.

        Raises ModelLoadError, and SizeLearnedError when it could not be known before whether it fits.
        """
        settings = self.settings.models[name]
        started = time.perf_counter()
        folder = resolve_folder(settings.path)
        known = self._sizes[name]
        self._sizes[name] = weight_bytes(settings, folder)
        if known is None:
            raise SizeLearnedError(name)
        found = read(name, settings, folder, computing_of(self._pipelines[name].stages))
        log.info("model read", model=name, seconds=round(time.perf_counter() - started, 2))
        return found

    def _model_loaded(self, name: str, loaded: LoadedModel) -> None:
        """Take note of the identity that a model has now: its files may not be those of the last time."""
        self._described.pop(name, None)
        if self._fingerprints is not None:
            self._fingerprints[name] = loaded.model.fingerprint
            self._adopt()
        if loaded.layout is not None:
            self._costs.know(loaded.model.fingerprint, loaded.layout)
            self._save_costs()
        log.info("model loaded", model=name, bytes=loaded.nbytes)

    def _configured_fingerprints(self) -> dict[str, Fingerprint] | None:
        """Return the identities of all configured models by name; None when one cannot be told.

        Takes some 30 ms a model: no weights are read but samples.
        """
        found = {}
        for name, settings in self.settings.models.items():
            try:
                folder = local_folder(settings.path)
                found[name] = identity(settings, folder, computing_of(self._pipelines[name].stages))
            except ModelLoadError as error:
                log.debug("no block is taken for an orphan", model=name, reason=str(error))
                return None
        return found

    def _adopt(self) -> None:
        """Tell the store which models are in use."""
        if self._store is not None:
            known = self._fingerprints
            self._store.adopt(frozenset(known.values()) if known is not None else None)

    def _save_costs(self) -> None:
        try:
            self._costs.save()
        except OSError as error:
            log.warning("profiles not saved", reason=str(error))

    def _walk(self, ticket: Ticket, loaded: LoadedModel) -> None:
        alias = self._names.alias(ticket.request.model)
        request = with_defaults(ticket.request, alias, loaded.model.template_options)
        state = State(request, loaded.model, ticket.sink, ticket.announce, watch=ticket.watch)
        if ticket.attach(state):
            self._conductor.start(self._pipelines[ticket.model].stages, state, ticket.end)

    def _reserve(self, ticket: Ticket, state: State) -> None:
        """Count what the request's caches will take. Raises what refuses it."""
        model = state.model
        answer = ticket.request.max_tokens or model.max_tokens or model.window_tokens
        need = needed_bytes(model.layout, len(state.tokens), answer, model.window_tokens)
        self._dispatcher.reserve(ticket, need)

    def _model(self, name: str) -> Model:
        """Return the model: the loaded one, else what can be told of it without loading."""
        loaded = self._pool.peek(name)
        if loaded is not None:
            return loaded.model
        if name not in self._described:
            settings = self.settings.models[name]
            computing = computing_of(self._pipelines[name].stages)
            folder = local_folder(settings.path)
            self._described[name] = describe(name, settings, folder, self._costs, computing)
        return self._described[name]

    def _explainer(self, name: str) -> Explainer:
        return Explainer(self._pipelines[name], self._services, self._store, "server")

    def _explain_started(self, state: State) -> Explanation:
        """Explain a request whose prompt is about to go to the device."""
        found = self._explainer(state.model.name).explain(state)
        log.info("request explained", request=state.request.id, dry=False, **log_fields(found))
        return found

    def _forget(self, ticket: Ticket) -> None:
        ended = ticket.trace()
        self._history.append(ended)
        self._totals.add(ended)
        self._dispatcher.leave(ticket)

    def _wait_idle(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._gate.everyone() and time.monotonic() < deadline:
            time.sleep(0.01)


def _then(done: "Future[Any]", answer: Callable[[], ModelCard]) -> "Future[ModelCard]":
    """Return a future that has an answer once another one is done, or that one's error."""
    following: Future[ModelCard] = Future()

    def pass_on(ended: "Future[Any]") -> None:
        error = ended.exception()
        if error is not None:
            following.set_exception(error)
        else:
            following.set_result(answer())

    done.add_done_callback(pass_on)
    return following


def _log_failure(done: "Future[LoadedModel]") -> None:
    error = done.exception()
    if error is not None:
        log.warning("model not preloaded", error=str(error))
