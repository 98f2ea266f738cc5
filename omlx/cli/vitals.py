"""What a process holds: memory, threads, open files. Read from the system, on Linux and macOS."""

import subprocess
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Vitals:
    """A process at one moment, after that many requests. `files` is -1 where the system does not say."""

    requests: int
    rss_bytes: int
    threads: int
    files: int


def read_vitals(pid: int, requests: int) -> Vitals:
    """Return what a process holds now. Raises OSError when it is gone."""
    proc = Path("/proc") / str(pid)
    if proc.is_dir():
        lines = dict(line.split(":", 1) for line in (proc / "status").read_text().splitlines() if ":" in line)
        rss = int(lines["VmRSS"].split()[0]) * 1024
        return Vitals(requests, rss, int(lines["Threads"]), len(list((proc / "fd").iterdir())))
    rss = int(_ps("-o", "rss=", "-p", str(pid)).strip()) * 1024
    threads = len(_ps("-M", "-p", str(pid)).splitlines()) - 1
    return Vitals(requests, rss, threads, -1)


def _ps(*arguments: str) -> str:
    done = subprocess.run(["/bin/ps", *arguments], capture_output=True, text=True, check=False, timeout=10)  # noqa: S603
    if done.returncode:
        raise ProcessLookupError(f"ps: {done.stderr.strip() or 'no such process'}")
    return done.stdout
