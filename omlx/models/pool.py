"""The models in memory, by name: read on a thread of their own, assembled and dropped on the device thread.

    load ──▶ loader thread: folder, weights, tokenizer ──▶ device thread: caches, layout ──▶ in the pool
    drop ──▶ device thread: out of the pool, memory given back

Which models to hold, and when, is decided elsewhere (`omlx.runtime.turns`). Why it holds no lock: what is in memory
changes on the device thread only; other threads only peek.
"""

import gc
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Any

import mlx.core as mx

from omlx.errors import ModelLoadError
from omlx.models.load import ReadModel, assemble
from omlx.models.loaded import LoadedModel

#: Runs a function on the device thread, between two of its rounds.
Call = Callable[[Callable[[], Any]], "Future[Any]"]


class ModelPool:
    """Read, hold and drop models.

    Args:
        read: reads one model by its configured name; called on the loader thread.
        call: runs a function on the device thread.
    """

    def __init__(self, read: Callable[[str], ReadModel], call: Call) -> None:
        self._read = read
        self._call = call
        self._loaded: dict[str, LoadedModel] = {}
        self._wanted: queue.SimpleQueue[tuple[str, Future[ReadModel]] | None] = queue.SimpleQueue()
        self._loader = threading.Thread(target=self._run, name="omlx-loader", daemon=True)
        self._loader.start()

    def get(self, name: str) -> LoadedModel:
        """Return a model that is in memory: one that a request has a lease on. Raises ModelLoadError."""
        if name not in self._loaded:
            raise ModelLoadError(f"model {name!r} is not in memory", hint="ask for it again")
        return self._loaded[name]

    def peek(self, name: str) -> LoadedModel | None:
        """Return the model if it is in memory. Safe on any thread: one look into a dict."""
        return self._loaded.get(name)

    def load(self, name: str) -> "Future[LoadedModel]":
        """Begin to load a model; the future has it, or what went wrong."""
        outcome: Future[LoadedModel] = Future()
        reading: Future[ReadModel] = Future()
        reading.add_done_callback(lambda done: self._assemble(name, done, outcome))
        self._wanted.put((name, reading))
        return outcome

    def drop(self, name: str) -> "Future[None]":
        """Begin to take a model out of memory. No request may have a lease on it."""
        return self._call(lambda: self._drop(name))

    def close(self, timeout_s: float = 10.0) -> None:
        """Take no more wishes; wait for the load under way, but not for long: it may be a download."""
        self._wanted.put(None)
        self._loader.join(timeout_s)

    def _run(self) -> None:
        """Read what is wanted, one after the other: the loader thread."""
        try:
            while (wanted := self._wanted.get()) is not None:
                name, reading = wanted
                try:
                    reading.set_result(self._read(name))
                except Exception as error:  # noqa: BLE001 - the boundary of the loader thread: handed to who waits
                    reading.set_exception(error)
                del wanted, reading  # they hold the weights
        finally:
            # mlx 0.32: the streams of a thread that has ended can abort the process at its exit
            mx.clear_streams()

    def _assemble(self, name: str, reading: "Future[ReadModel]", outcome: "Future[LoadedModel]") -> None:
        error = reading.exception()
        if error is not None:
            outcome.set_exception(error)
            return
        found = reading.result()
        self._call(lambda: self._keep(name, found)).add_done_callback(lambda done: _pass_on(done, outcome))

    def _keep(self, name: str, found: ReadModel) -> LoadedModel:
        self._loaded[name] = loaded = assemble(found)
        return loaded

    def _drop(self, name: str) -> None:
        before, found = mx.get_active_memory(), self._loaded.pop(name, None)
        nbytes = found.nbytes if found else 0
        del found
        if before - mx.get_active_memory() < nbytes // 2:
            gc.collect()  # a finished request is left in a cycle of references, and holds the weights
        mx.clear_cache()


def memory_in_use() -> int:
    """Return the bytes of all arrays that MLX holds. Any thread."""
    return mx.get_active_memory()


def _pass_on(done: "Future[LoadedModel]", outcome: "Future[LoadedModel]") -> None:
    error = done.exception()
    if error is not None:
        outcome.set_exception(error)
    else:
        outcome.set_result(done.result())
