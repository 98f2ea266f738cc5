"""How long others wait while a long prompt is computed, counted in slices of it: no clock decides."""

import threading
from types import SimpleNamespace

from omlx.engine.device import DeviceThread
from omlx.pipeline.chunks import chunk_ends
from omlx.pipeline.work import Decode, Decoded, Prefill

#: A prompt of forty blocks of 256 tokens, in chunks of 512.
LONG, CHUNK = 40 * 256, 512


class Slices:
    """An executor that writes down who was served: `x` for a step of the stream, and each piece by its name."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.on_slice = lambda count: None

    def run(self, work):
        work.sequence.offset = work.end
        self.ran.append(work.sequence.name)
        self.on_slice(self.ran.count("y"))

    def decode(self, works):
        for work in works:
            self.ran.append(work.sequence.name)
        return [Decoded(1) for _ in works]

    def forget(self, sequence):
        pass

    def num_rows(self):
        return 0


def prompt(name: str, tokens: int, answer: int):
    """Yield the work of a request: its prompt in chunks, then its answer."""
    sequence = SimpleNamespace(name=name, offset=0)
    for end in chunk_ends(0, tokens - 1, CHUNK):
        yield Prefill(sequence, end)
    for _ in range(answer):
        yield Decode(sequence)


def submit(device: DeviceThread, steps) -> threading.Event:
    """Submit work; return what is set at its end."""
    ended = threading.Event()
    state = SimpleNamespace(request=SimpleNamespace(id="r"), sequence=None, cancelled=False)
    device.submit_steps(state, steps, lambda _error: ended.set())
    return ended


def test_a_stream_and_a_short_request_wait_a_slice_or_two_beside_a_long_prompt():
    """F7: x streams, y is long and cold, z is short and warm: x waits one slice at most, z for two, y for none."""
    executor = Slices()
    device = DeviceThread(executor)
    came: list[threading.Event] = []

    def z_comes(slices: int) -> None:
        if slices == 5 and not came:
            came.append(submit(device, prompt("z", 40, 4)))

    executor.on_slice = z_comes
    x, y = submit(device, prompt("x", 20, 200)), submit(device, prompt("y", LONG, 1))
    device.start()
    assert y.wait(20)
    assert came[0].wait(20)
    assert x.wait(20)
    device.close()
    ran = "".join(executor.ran)
    assert LONG // CHUNK + 1 == ran.count("y")  # the last one is its first token
    beside = ran[: ran.rindex("y")]
    assert 1 == max(gap.count("y") for gap in beside.split("x")[1:])
    [_, until_first_token, *_] = beside.split("z")  # its prompt, then its first token
    assert beside.split("z")[0].count("y") <= 5 + 1
    assert until_first_token.count("y") <= 1
    assert len(beside) <= 3 * beside.count("y")
