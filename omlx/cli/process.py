"""A server in a process of its own, on loopback: started, awaited, stopped, killed."""

import socket
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from omlx.cli.client import Client
from omlx.errors import OmlxError


def free_port() -> int:
    """Return a port of the loopback address that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ServerProcess:
    """Run `omlx serve` with arguments; a context manager that stops it.

    Args:
        arguments: for `omlx serve`, without the port.
        log: the file that gets the server's log.
        port: the port to use; None picks a free one.
    """

    def __init__(self, arguments: list[str], log: Path, port: int | None = None) -> None:
        self.arguments = arguments
        self.log = log
        self.port = port or free_port()
        self.client = Client(self.port)
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        """Return the process id. Raises OmlxError when it was not started."""
        if self._process is None:
            raise OmlxError("the server was not started")
        return self._process.pid

    def command(self) -> list[str]:
        """Return the command that runs the server in the foreground."""
        own = [sys.executable, "-m", "omlx", "serve", "--port", str(self.port), "--log-json"]
        return [*own, *self.arguments]

    def start(self, timeout_s: float = 300.0) -> None:
        """Start the server and wait until its default model is loaded. Raises OmlxError with the log's end."""
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(self.command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL)  # noqa: S603
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            if self._process.poll() is not None:
                raise OmlxError(f"the server ended at its start:\n{self._log_end()}")
            if self.ready():
                return
            time.sleep(0.05)
        raise OmlxError(f"the server was not ready within {timeout_s:.0f} s:\n{self._log_end()}")

    def ready(self) -> bool:
        """Tell whether the server answers and has its model."""
        try:
            health = self.health()
        except OSError:
            return False  # nobody listens yet
        return any(model["loaded"] for model in health["models"])

    def health(self) -> dict[str, Any]:
        """Return the server's health."""
        return dict(self.client.get("/health"))

    def wait_written(self, timeout_s: float = 60.0) -> None:
        """Wait until every block is on disk. Raises OmlxError when that takes too long."""
        deadline = time.monotonic() + timeout_s
        while time.monotonic() < deadline:
            queue = ((self.health().get("cache") or {}).get("queue")) or {}
            if not queue.get("records"):
                return
            time.sleep(0.02)
        raise OmlxError("the server is still writing blocks to disk")

    def kill(self) -> None:
        """End the process at once (SIGKILL), as a crash would."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def stop(self, timeout_s: float = 20.0) -> int:
        """Ask the process to end (SIGTERM) and wait; return its exit code."""
        if self._process is None:
            return 0
        self._process.terminate()
        try:
            return self._process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()
            return -9

    def detach(self) -> None:
        """Leave the process running when this object goes."""
        self._process = None

    def wait(self) -> int:
        """Wait for the process to end."""
        return self._process.wait() if self._process is not None else 0

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.kill()  # a server that did not get ready is not left behind
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._process is not None and self._process.poll() is None:
            self.stop()

    def _log_end(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-8:]
        return "\n".join(line[:1000] for line in lines)
