"""rehearse: walk the tests of a pipeline file with a fake model over a real store in a temporary folder."""

import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from omlx.config.document import Document
from omlx.config.lines import KeyPath
from omlx.config.problem import Problem
from omlx.errors import RequestError
from omlx.pipeline.model import Model
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Stage
from omlx.testing.expectation import Outcome, differences
from omlx.testing.kv import fake_layout
from omlx.testing.model import fake_model
from omlx.testing.rehearsal_cache import RehearsalCache
from omlx.testing.scenario import FakeModelTable, MessageTable, PipelineTest, Step
from omlx.text.chat import ChatPrompt, Message, Prompt, TextPrompt, ToolCall
from omlx.types import RequestId

#: Reads a request's body, of any of the APIs. Raises RequestError.
ReadRequest = Callable[[bytes], Request]


@dataclass(frozen=True, slots=True)
class Rehearsed:
    """A test that was walked. It passed when there are no problems."""

    name: str
    path: Path
    seconds: float
    problems: tuple[Problem, ...]


def rehearse(
    document: Document, number: int, test: PipelineTest, stages: Sequence[Stage], read: ReadRequest
) -> Rehearsed:
    """Walk one test of a file, its `number` counted from 0; each step that goes wrong is a problem."""
    started = time.perf_counter()
    problems: list[Problem] = []
    with tempfile.TemporaryDirectory(prefix="omlx-test-") as folder:
        cache = RehearsalCache(stages, _model(test.model), Path(folder), int(test.hot), int(test.cold))
        walk = _Walk(cache, test, document, read)
        try:
            for index, step in enumerate(test.step):
                problems += walk.take(step, ("test", number, "step", index))
        finally:
            cache.close()
    return Rehearsed(test.name, document.path, time.perf_counter() - started, tuple(problems))


class _Walk:
    """The steps of one test. Mutable: the conversation so far."""

    def __init__(
        self, cache: RehearsalCache, test: PipelineTest, document: Document, read: ReadRequest
    ) -> None:
        self._cache = cache
        self._test = test
        self._document = document
        self._read = read
        self._last: tuple[ChatPrompt, str] | None = None

    def take(self, step: Step, at: KeyPath) -> list[Problem]:
        """Take a step; return what went wrong."""
        name = f"test {self._test.name!r}, step {int(at[-1]) + 1}"
        event = next((key for key in ("restart", "evict", "corrupt", "wait") if getattr(step, key)), None)
        if event is not None:
            trouble = self._happen(step)
            return [self._document.value_problem((*at, event), f"{name}: {trouble}")] if trouble else []
        try:
            request = self._request(step)
        except RequestError as error:
            return [self._document.problem(at, f"{name}: {error.message}", error.hint)]
        outcome = self._cache.ask(request, self._test.answer if step.answer is None else step.answer)
        self._last = (request.prompt, outcome.text) if isinstance(request.prompt, ChatPrompt) else None
        return _problems(self._document, at, name, step, outcome)

    def _happen(self, step: Step) -> str | None:
        """Do to the cache what a step says; return what is in the way."""
        if step.corrupt is not None:
            return self._cache.corrupt(step.corrupt_block)
        if step.evict is not None:
            self._cache.evict(step.evict)
        elif step.wait is not None:
            self._cache.wait(step.wait)
        else:
            self._cache.restart()
        return None

    def _request(self, step: Step) -> Request:
        """Return what a step asks. Raises RequestError for a body that cannot be read."""
        identity = RequestId("test-1")
        if step.file is not None:
            return self._read((self._document.path.parent / step.file).read_bytes())
        prompt = self._prompt(step)
        return Request(id=identity, model="fake", prompt=prompt, max_tokens=step.max_tokens, stop=step.stop)

    def _prompt(self, step: Step) -> Prompt:
        if step.prompt is not None:
            return TextPrompt(step.prompt)
        if step.follow_up is None:
            return ChatPrompt(tuple(map(_message, step.messages)), step.tools)
        if self._last is None:
            raise RequestError("there is no conversation to follow up", hint="ask with messages first")
        prompt, answer = self._last
        turn = (Message("assistant", answer), Message("user", step.follow_up))
        return ChatPrompt((*prompt.messages, *turn), prompt.tools, prompt.template_options)


def _problems(document: Document, at: KeyPath, name: str, step: Step, outcome: Outcome) -> list[Problem]:
    """Return each way in which a request came out otherwise than expected, at the line that expects it."""
    return [
        document.value_problem((*at, *where), f"{name}: {found.what}", None, found.lines)
        for found in differences(step.expect, outcome)
        for where in [("expect", found.key) if found.key else ()]
    ]


def _model(table: FakeModelTable) -> Model:
    layout = fake_layout(*table.layout, window=table.window)
    return fake_model(layout=layout, cached=table.cached, window_tokens=table.context_tokens)


def _message(table: MessageTable) -> Message:
    calls = tuple(ToolCall(call.name, call.arguments, call.id) for call in table.tool_calls)
    return Message(table.role, table.content, table.reasoning, calls, table.tool_call_id)
