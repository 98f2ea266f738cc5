"""MLX is touched on the device thread, and by the loader: seen from inside, in a process of its own."""

import json
import subprocess
import sys

import pytest

from tests.serving import REPOSITORY
from tests.tiny_models import make_model

#: Wraps every function of MLX, serves requests of all kinds, and prints who called what.
_WATCH = """
import collections, functools, json, pathlib, sys, threading
import omlx.models  # loads the BLAS, before MLX
import mlx.core as mx

callers = collections.defaultdict(set)
watching = False

def watched(name, function):
    @functools.wraps(function)
    def call(*arguments, **options):
        if watching:
            callers[threading.current_thread().name].add(name)
        return function(*arguments, **options)
    return call

builtin = type(mx.zeros)
for name, value in list(vars(mx).items()):
    if isinstance(value, builtin):
        setattr(mx, name, watched(name, value))

from tests.trust.talk import answer, small_server, tokens_of

def main(folder, cache):
    global watching
    prompt, bits = tokens_of(1, 200), {"hot": 1_000_000}
    for _ in range(2):  # the second time blocks come from disk
        with small_server(pathlib.Path(folder), pathlib.Path(cache), **bits) as server:
            watching = True
            answer(server, prompt)
            answer(server, [*prompt[:120], *tokens_of(2, 90)], temperature=0.8, seed=1, logit_bias={"5": 2})
            answer(server, prompt, stop=["zz"], logprobs=2)
            server.http.get("/health")
            server.http.post("/trace", json={"path": "/v1/completions", "body": {"prompt": prompt}})
            server.http.post("/v1/models/tiny/unload")
            answer(server, prompt)
            server.runtime._store.flush(30)
        watching = False
    print(json.dumps({name: sorted(calls) for name, calls in callers.items()}))

main(*sys.argv[1:])
"""
#: Questions about memory and devices: no array, and so no stream, has part in them.
_HARMLESS = {"get_active_memory", "get_cache_memory", "get_peak_memory", "device_info", "default_device"}


@pytest.mark.parametrize("family", ["llama", "gemma3", "qwen3_5"])
def test_nothing_but_the_device_thread_and_the_loader_uses_mlx(tmp_path, family):
    """F11: load, prefill, restore, decode, write-back and both tiers: no call of MLX comes from another thread."""
    folder = make_model(tmp_path / "model", family)
    done = subprocess.run(
        [sys.executable, "-c", _WATCH, str(folder), str(tmp_path / "blocks")],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert 0 == done.returncode, done.stderr[-2000:]
    callers = {
        name: set(calls) - _HARMLESS for name, calls in json.loads(done.stdout.splitlines()[-1]).items()
    }
    assert {"omlx-device", "omlx-loader"} == {name for name, calls in callers.items() if calls}
    assert {"eval", "async_eval"} <= callers["omlx-device"]
