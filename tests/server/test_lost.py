"""A server whose device thread has died says so and ends: a supervisor then starts it again."""

import os
import subprocess
import sys
import threading
import time

import httpx
import pytest

from omlx.cli.process import free_port
from tests.serving import REPOSITORY
from tests.tiny_models import make_model

#: Runs the server as `omlx serve` does, and kills its device thread when a file appears.
_SERVE = """
import pathlib, sys, threading, time
import omlx.engine.device as device
from omlx.cli import main

threads = []
start = device.DeviceThread.start
device.DeviceThread.start = lambda self: (threads.append(self), start(self))[1]

def kill(path):
    while not path.exists():
        time.sleep(0.05)
    threads[0].call(sys.exit)

threading.Thread(target=kill, args=(pathlib.Path(sys.argv[1]),), daemon=True).start()
sys.exit(main(sys.argv[2:]))
"""


def test_a_server_whose_device_thread_died_says_so_and_ends(tmp_path):
    """F1: `/health` is 503 within 5 s, requests are refused and not left hanging, and the exit code is not 0."""
    folder, port, sign = make_model(tmp_path / "model", "llama"), free_port(), tmp_path / "die"
    arguments = [
        "serve",
        "--model",
        str(folder),
        "--port",
        str(port),
        "--set",
        f"cache.directory={tmp_path / 'c'}",
    ]
    process = subprocess.Popen(
        [sys.executable, "-c", _SERVE, str(sign), *arguments],
        cwd=REPOSITORY,
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=10) as http:
            _until(lambda: _status(http) == 200, 60)
            body = {"prompt": "Begin. " * 20, "max_tokens": 8}
            assert 200 == http.post("/v1/completions", json=body).status_code
            sign.touch()
            _until(lambda: _status(http) == 503, 5)
            assert 500 == http.post("/v1/completions", json=body).status_code
        assert 1 == process.wait(30)
    finally:
        process.kill()
        process.wait()


def _status(http: httpx.Client) -> int:
    try:
        return http.get("/health").status_code
    except httpx.TransportError:
        return 0


def _until(holds, seconds: float) -> None:
    waited = threading.Event()
    end = time.monotonic() + seconds
    while not holds():
        if time.monotonic() > end:
            pytest.fail("it did not come to that in time")
        waited.wait(0.05)
