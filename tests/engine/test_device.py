"""The device thread interleaves tasks, keeps a fault to its own request, and runs functions."""

import subprocess
import sys
import threading
from collections.abc import Iterator
from types import SimpleNamespace

import pytest

from omlx.engine.device import DeviceThread
from omlx.errors import CancelledError, OmlxError
from omlx.pipeline.work import Decode, Decoded, Prefill, Wait


class Recorder:
    """An executor that writes down what it was asked; a piece whose sequence says so fails."""

    def __init__(self) -> None:
        self.ran: list[tuple[str, str]] = []

    def run(self, work):
        name = work.sequence.name
        if name == "bad":
            raise RuntimeError("the device refused")
        self.ran.append((name, type(work).__name__))
        return len(self.ran)

    def decode(self, works):
        return [Decoded(self.run(work)) for work in works]

    def forget(self, sequence):
        self.ran.append((sequence.name, "forget"))


@pytest.fixture
def device() -> Iterator[tuple[DeviceThread, Recorder]]:
    recorder = Recorder()
    thread = DeviceThread(recorder)
    yield thread, recorder
    thread.close()


def _submit(thread: DeviceThread, steps) -> "tuple[threading.Event, list[OmlxError | None]]":
    ended, errors = threading.Event(), []

    def done(error):
        errors.append(error)
        ended.set()

    thread.submit_steps(
        SimpleNamespace(request=SimpleNamespace(id="r"), sequence=None, cancelled=False), steps, done
    )
    return ended, errors


def _task(name: str, kinds: str):
    sequence = SimpleNamespace(name=name, offset=0)
    for kind in kinds:
        yield Prefill(sequence, 1) if kind == "p" else Decode(sequence)


def test_two_prefills_alternate(device):
    """Two long prompts advance piece by piece in turn; neither waits for the other's end."""
    thread, recorder = device
    first, _ = _submit(thread, _task("a", "pppp"))
    second, _ = _submit(thread, _task("b", "pppp"))
    thread.start()
    assert first.wait(5)
    assert second.wait(5)
    assert ["a", "b"] * 4 == [name for name, _ in recorder.ran]


def test_a_stream_decodes_between_the_pieces_of_a_prefill(device):
    """While one request prefills, another decodes one token per piece."""
    thread, recorder = device
    long, _ = _submit(thread, _task("long", "pppp"))
    stream, _ = _submit(thread, _task("stream", "dddd"))
    thread.start()
    assert long.wait(5)
    assert stream.wait(5)
    assert ["stream", "long"] * 4 == [name for name, _ in recorder.ran]


def test_a_fault_fails_its_own_request_only(device):
    """An exception in one request's piece is that request's error; the others finish."""
    thread, _ = device
    bad, bad_errors = _submit(thread, _task("bad", "p"))
    good, good_errors = _submit(thread, _task("good", "pd"))
    thread.start()
    assert bad.wait(5)
    assert good.wait(5)
    assert "RuntimeError" in str(bad_errors[0])
    assert [None] == good_errors
    assert thread.alive()


def test_an_error_with_a_name_reaches_the_client_as_it_is(device):
    """An OmlxError raised by a stage is passed on unchanged."""
    thread, _ = device

    def steps():
        yield from _task("a", "p")
        raise CancelledError("gone")

    ended, errors = _submit(thread, steps())
    thread.start()
    assert ended.wait(5)
    assert "gone" == errors[0].message


def test_functions_run_on_the_device_thread(device):
    """`call` runs on the one thread, and hands back results and exceptions."""
    thread, _ = device
    thread.start()
    assert "omlx-device" == thread.call(lambda: threading.current_thread().name).result(5)
    with pytest.raises(ZeroDivisionError):
        thread.call(lambda: 1 // 0).result(5)
    assert thread.alive()


def test_a_process_that_has_computed_on_device_threads_ends_well():
    """When device threads have ended, nothing of them is left that would abort the process at its exit."""
    # the abort is a race: with forty threads half of the runs or more had it
    script = """
import omlx.models
import mlx.core as mx
from omlx.engine.device import DeviceThread

devices = [DeviceThread(None) for _ in range(40)]
for device in devices:
    device.start()
for device in devices:
    device.call(lambda: mx.eval(mx.random.normal((64, 64)) @ mx.ones((64, 64)))).result()
for device in devices:
    device.close()
"""
    runs = [subprocess.run([sys.executable, "-c", script], check=False).returncode for _ in range(3)]
    assert [0, 0, 0] == runs


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_nothing_hangs_on_a_device_thread_that_has_died(device):
    """F1: when the thread itself dies, all that waits for it fails at once, and so does what comes later."""
    thread, _ = device

    def die():
        raise SystemExit

    def endless():
        while True:
            yield Wait(lambda: False)

    waiting, errors = _submit(thread, endless())
    thread.start()
    thread.call(die)
    assert waiting.wait(5)
    assert "device thread has ended" in str(errors[0])
    late, late_errors = _submit(thread, endless())
    assert late.wait(5)
    assert "device thread has ended" in str(late_errors[0])
    with pytest.raises(OmlxError, match="device thread"):
        thread.call(lambda: None).result(5)
    thread.close()
    assert not thread.alive()
