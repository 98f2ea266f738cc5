"""A model's chain without a server: the same stages, lanes and device thread, over any store.

For measuring: `omlx verify`, benchmarks and tests look at what a server does not show.
"""

import dataclasses
import itertools
from concurrent.futures import Future
from pathlib import Path

from omlx.config.settings import Settings
from omlx.engine.device import DeviceThread
from omlx.engine.executor import Executor
from omlx.engine.recorder import Logits, Recorder
from omlx.engine.sequence import RunningSequence
from omlx.errors import OmlxError
from omlx.models.load import load
from omlx.models.loaded import LoadedModel
from omlx.models.resolve import resolve_folder
from omlx.pipeline.conductor import Conductor
from omlx.pipeline.model import Model
from omlx.pipeline.pipelines import load_pipelines
from omlx.pipeline.request import Request, Sampling
from omlx.pipeline.stage import Services, Stage
from omlx.pipeline.state import State
from omlx.runtime.lanes import WorkerLanes
from omlx.stages import built_in_stages
from omlx.stages.prefill import computing_of
from omlx.text.chat import Prompt
from omlx.types import RequestId

NO_STORE = Services(None)


class BareChain:
    """Run requests down the chain of one configured model. Threads start at once; `close` ends them.

    Args:
        settings: where the model and its pipeline are named.
        name: the model.
        base: the folder beside which pipelines are looked for.
        record: keep the logits of every token, see `logits`.

    Raises ConfigError, ModelLoadError.
    """

    def __init__(self, settings: Settings, name: str, base: Path, *, record: bool = False) -> None:
        self.stages: tuple[Stage, ...] = load_pipelines(settings, base, built_in_stages())[name].stages
        model = settings.models[name]
        self.folder = resolve_folder(model.path)
        self._record = record
        self._numbers = itertools.count(1)
        self._device = DeviceThread(Executor(self._loaded_model))
        self._device.start()
        self._lanes = WorkerLanes(self._device)
        try:
            self._loaded = self._device.call(
                lambda: self._watched(load(name, model, self.folder, computing_of(self.stages)))
            ).result()
        except BaseException:
            self.close()
            raise

    @property
    def model(self) -> Model:
        """Return the model, as stages see it."""
        return self._loaded.model

    @property
    def vocabulary(self) -> int:
        """Return the number of logits. Needs `record`, and a request that has run."""
        recorder = self._loaded.module
        assert isinstance(recorder, Recorder)
        return recorder.vocabulary

    def start(
        self,
        prompt: Prompt,
        services: Services = NO_STORE,
        *,
        stages: tuple[Stage, ...] | None = None,
        max_tokens: int = 1,
    ) -> "Future[State]":
        """Start a greedy request that no end token ends; the future has its state, or the error that ended it."""
        request = Request(
            id=RequestId(f"request-{next(self._numbers)}"),
            model=self.model.name,
            prompt=prompt,
            sampling=Sampling(temperature=0.0),
            max_tokens=max_tokens,
            ignore_eos=True,
        )
        state = State(request, self.model, lambda _: None, lambda _: None)
        future: Future[State] = Future()

        def done(error: OmlxError | None) -> None:
            if error is None:
                future.set_result(state)
            else:
                future.set_exception(error)

        Conductor(services, self._lanes).start(stages or self.stages, state, done)
        return future

    def run(
        self,
        prompt: Prompt,
        services: Services = NO_STORE,
        *,
        stages: tuple[Stage, ...] | None = None,
        max_tokens: int = 1,
    ) -> State:
        """Run a request to its end. Raises the error that ended it."""
        return self.start(prompt, services, stages=stages, max_tokens=max_tokens).result()

    def logits(self, state: State) -> Logits:
        """Return the logits of the tokens that a request ran, `(tokens, columns)`, once. Needs `record`."""
        recorder, sequence = self._loaded.module, state.sequence
        assert isinstance(recorder, Recorder)
        assert isinstance(sequence, RunningSequence)
        return self._device.call(lambda: recorder.take(sequence)).result()

    def close(self) -> None:
        """End the threads."""
        self._lanes.close()
        self._device.close()

    def _loaded_model(self, _name: str) -> LoadedModel:
        return self._loaded

    def _watched(self, loaded: LoadedModel) -> LoadedModel:
        if not self._record:
            return loaded
        # a recorder keeps the logits of one sequence at a time
        return dataclasses.replace(loaded, module=Recorder(loaded.module), alone="its logits are recorded")
