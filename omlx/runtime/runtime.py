"""Run requests on the configured models."""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path

import msgspec
import structlog

from omlx import __version__
from omlx.config.settings import Settings
from omlx.engine.device import DeviceThread
from omlx.engine.executor import Executor
from omlx.errors import BusyError, ModelLoadError, OmlxError
from omlx.explain.event import log_fields
from omlx.explain.explainer import Explainer
from omlx.models.describe import describe, identity, local_folder
from omlx.models.load import load
from omlx.models.loaded import LoadedModel
from omlx.models.pool import ModelPool
from omlx.models.resolve import resolve_folder
from omlx.pipeline.backend import Health, ModelCard
from omlx.pipeline.conductor import Conductor, internal_error
from omlx.pipeline.cost import CostBook, profile_folder
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.model import Model
from omlx.pipeline.pipelines import load_pipelines
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services
from omlx.pipeline.state import State
from omlx.pipeline.timeline import Listeners, RequestTrace, Tell
from omlx.runtime.admission import Admission
from omlx.runtime.compose import open_store
from omlx.runtime.lanes import WorkerLanes
from omlx.runtime.names import ModelNames
from omlx.runtime.ticket import Ticket
from omlx.runtime.totals import Totals
from omlx.stages import built_in_stages
from omlx.stages.prefill import computing_of
from omlx.text.chat import ChatPrompt
from omlx.text.delta import Delta
from omlx.types import Fingerprint

log = structlog.get_logger()

#: How many finished requests are remembered.
HISTORY = 256


def with_template_options(request: Request, model: Model) -> Request:
    """Return the request with the model's template options where it gives none."""
    prompt = request.prompt
    if not isinstance(prompt, ChatPrompt) or not model.template_options:
        return request
    options = {**model.template_options, **prompt.template_options}
    return msgspec.structs.replace(request, prompt=msgspec.structs.replace(prompt, template_options=options))


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
        self._pool = ModelPool(self._load_model)
        self._device = DeviceThread(Executor(self._pool.get))
        self._lanes = WorkerLanes(self._device)
        self._costs = CostBook(profile_folder(settings.cache) if self._store is not None else None)
        self._services = Services(self._store, costs=self._costs)
        self._conductor = Conductor(self._services, self._lanes)
        self._listeners = Listeners()
        self._history: deque[RequestTrace] = deque(maxlen=HISTORY)
        self._totals = Totals()
        self._described: dict[str, Model] = {}
        self._admission: Admission[Ticket] = Admission(
            settings.server.max_running, settings.server.max_queued
        )
        self._closing = False
        self._fingerprints = self._configured_fingerprints()
        self._adopt()

    def start(self) -> None:
        """Start the device thread. A model is loaded when it is first asked for."""
        self._device.start()

    def preload(self, name: str | None = None) -> "Future[LoadedModel]":
        """Begin to load a model (the default one) before anyone asks for it."""
        resolved = self._names.resolve(name)
        return self._device.call(lambda: self._pool.get(resolved))

    def close(self) -> None:
        """Give up running requests, write what is queued, and stop."""
        self._closing = True
        for ticket in self._admission.everyone():
            ticket.cancel()
        self._wait_idle(timeout_s=5.0)
        self._lanes.close()
        self._device.close()
        if self._store is not None:
            self._store.close()
            self._save_costs()

    def resolve(self, name: str | None) -> ModelCard:
        """Return the model that answers to a name. Raises UnknownModelError listing the names."""
        return self._card(self._names.resolve(name))

    def models(self) -> tuple[ModelCard, ...]:
        """Return all configured models."""
        return tuple(self._card(name) for name in self.settings.models)

    def submit(self, request: Request, sink: Callable[[Delta], None]) -> Ticket:
        """Start a request and return at once; `sink` gets its deltas in order, from some other thread.

        Raises BusyError when the queue is full or the server is stopping, UnknownModelError.
        """
        if self._closing:
            raise BusyError("the server is stopping", hint="try again when it is back")
        name = self._names.resolve(request.model)
        ticket = Ticket(request, name, sink, self._forget, self._listeners, self._explain_started)
        if self._admission.enter(ticket):
            self._begin(ticket)
        return ticket

    def explain(self, request: Request, *, show_text: bool = False) -> Explanation:
        """Return what the request would do and why, without doing it. Loads no weights.

        Raises UnknownModelError, ModelLoadError, and what refuses the request before prefill.
        """
        name = self._names.resolve(request.model)
        model = self._model(name)
        asked = with_template_options(request, model)
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
        running, queued = self._admission.counts()
        stats = msgspec.to_builtins(self._store.stats()) if self._store is not None else None
        status = "ok" if self._device.alive() else "device thread is not running"
        totals = msgspec.to_builtins(self._totals.sums())
        return Health(status, __version__, running, queued, self.models(), stats, totals=totals)

    def _card(self, name: str) -> ModelCard:
        settings = self.settings.models[name]
        loaded = self._pool.peek(name)
        return ModelCard(
            name,
            settings.aliases,
            self._pipelines[name].name,
            loaded.model.window_tokens if loaded else settings.window_tokens,
            loaded is not None,
        )

    def _load_model(self, name: str) -> LoadedModel:
        settings = self.settings.models[name]
        started = time.perf_counter()
        loaded = load(
            name, settings, resolve_folder(settings.path), computing_of(self._pipelines[name].stages)
        )
        if self._fingerprints is not None:
            self._fingerprints.add(loaded.model.fingerprint)
            self._adopt()
        if loaded.layout is not None:
            self._costs.know(loaded.model.fingerprint, loaded.layout)
            self._save_costs()
        log.info("model loaded", model=name, seconds=round(time.perf_counter() - started, 2))
        return loaded

    def _configured_fingerprints(self) -> set[Fingerprint] | None:
        """Return the identities of all configured models; None when one cannot be told.

        Takes some 30 ms a model: no weights are read but samples.
        """
        found = set()
        for name, settings in self.settings.models.items():
            try:
                folder = local_folder(settings.path)
                found.add(identity(settings, folder, computing_of(self._pipelines[name].stages)))
            except ModelLoadError as error:
                log.debug("no block is taken for an orphan", model=name, reason=str(error))
                return None
        return found

    def _adopt(self) -> None:
        """Tell the store which models are in use."""
        if self._store is not None:
            self._store.adopt(frozenset(self._fingerprints) if self._fingerprints is not None else None)

    def _save_costs(self) -> None:
        try:
            self._costs.save()
        except OSError as error:
            log.warning("profiles not saved", reason=str(error))

    def _begin(self, ticket: Ticket) -> None:
        """Run an admitted request: load its model if need be, then walk the chain."""
        ticket.lap("queue")
        loaded = self._pool.peek(ticket.model)
        if loaded is not None:
            self._walk(ticket, loaded)
            return
        future = self._device.call(lambda: self._pool.get(ticket.model))
        future.add_done_callback(lambda done: self._after_load(ticket, done))

    def _after_load(self, ticket: Ticket, future: "Future[LoadedModel]") -> None:
        error = future.exception()
        if error is None:
            ticket.lap("load")
            self._walk(ticket, future.result())
        else:
            if not isinstance(error, OmlxError):
                log.error("model load failed", model=ticket.model, exc_info=error)
            ticket.end(error if isinstance(error, OmlxError) else internal_error(error))

    def _walk(self, ticket: Ticket, loaded: LoadedModel) -> None:
        request = with_template_options(ticket.request, loaded.model)
        state = State(request, loaded.model, ticket.sink, ticket.announce, watch=ticket.watch)
        if ticket.attach(state):
            self._conductor.start(self._pipelines[ticket.model].stages, state, ticket.end)

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
        for following in self._admission.leave(ticket):
            self._begin(following)

    def _wait_idle(self, timeout_s: float) -> None:
        deadline = time.monotonic() + timeout_s
        while self._admission.everyone() and time.monotonic() < deadline:
            time.sleep(0.01)
