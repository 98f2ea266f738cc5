"""What a configuration asks of this machine: folders that are there, room on the disk, a free port."""

import errno
import json
import os
import shutil
import socket
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

from omlx.config.document import Document
from omlx.config.problem import Problem
from omlx.config.settings import CacheSettings, ModelSettings, ServerSettings, Settings
from omlx.units import format_size

_ASK_TIMEOUT_S = 0.3


def machine_problems(document: Document, settings: Settings) -> list[Problem]:
    """Return what this machine, as it is now, cannot give.

    A limit counts only where the file states it: the defaults adapt to the machine.
    """
    return [
        *missing_folders(document, settings.models),
        *_cache_limits(document, settings.cache),
        *_memory(document, settings.server),
        *_port(document, settings.server),
    ]


def missing_folders(document: Document, models: Mapping[str, ModelSettings]) -> list[Problem]:
    """Return a problem for each path that can only be a folder and is none; others may be hub names."""
    problems = []
    for name, model in models.items():
        only_folder = model.path.startswith((".", "/", "~")) or model.path.count("/") > 1
        if not model.path.strip() or (only_folder and not _is_folder(model.path)):
            hint = "give an existing folder, or a hub name such as owner/name"
            message = f"model folder {model.path!r} does not exist"
            problems.append(document.value_problem(("models", name, "path"), message, hint))
        if model.adapter is not None and not _is_folder(model.adapter):
            at, message = ("models", name, "adapter"), f"adapter folder {model.adapter!r} does not exist"
            problems.append(document.value_problem(at, message, "give an existing folder"))
    return problems


def existing_folder(path: Path) -> Path:
    """Return the nearest folder at or above `path` that exists."""
    path = path.expanduser().absolute()
    return next(folder for folder in (path, *path.parents) if folder.is_dir())


def memory_bytes() -> int:
    """Return the bytes of RAM of this machine."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def port_trouble(host: str, port: int) -> str | None:
    """Return why a server cannot listen there, in words; None when it can, or when it is omlx that does."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        with closing(socket.socket(family, kind, protocol)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            return f"{host}:{port} cannot be listened on: {error.strerror}"
        return None if _is_omlx(host, port) else f"port {port} is taken by another program"
    return None


def _is_folder(path: str) -> bool:
    return bool(path) and Path(path).expanduser().is_dir()


def _cache_limits(document: Document, cache: CacheSettings) -> list[Problem]:
    problems = []
    stated = document.data.get("cache", {})
    if "hot" in stated and cache.hot > (memory := memory_bytes()):
        message = f"hot: {format_size(cache.hot)}, but this machine has {format_size(memory)} of RAM"
        problems.append(document.value_problem(("cache", "hot"), message, "leave most of it to the models"))
    if "cold" in stated and (room := _room(cache)) is not None and cache.cold > room:
        message = f"cold: {format_size(cache.cold)}, but {cache.directory} has room for {format_size(room)}"
        hint = "write less, or name a directory on a larger volume"
        problems.append(document.value_problem(("cache", "cold"), message, hint))
    return problems


def _memory(document: Document, server: ServerSettings) -> list[Problem]:
    if server.memory is None or server.memory <= (memory := memory_bytes()):
        return []
    message = f"memory: {format_size(server.memory)}, but this machine has {format_size(memory)} of RAM"
    return [
        document.value_problem(("server", "memory"), message, "leave it out for three quarters of the RAM")
    ]


def _room(cache: CacheSettings) -> int | None:
    """Return the bytes that are free for the cold tier, with those it has; None when the disk does not tell."""
    try:
        free = shutil.disk_usage(existing_folder(Path(cache.directory))).free
        return free if cache.cold <= free else free + _held_bytes(Path(cache.directory).expanduser())
    except OSError:
        return None


def _held_bytes(directory: Path) -> int:
    return sum(path.stat(follow_symlinks=False).st_size for path in directory.rglob("*.safetensors"))


def _port(document: Document, server: ServerSettings) -> list[Problem]:
    trouble = port_trouble(server.host, server.port) if server.port else None
    if trouble is None:
        return []
    at = ("server", "port") if "port" in document.data.get("server", {}) else ("server",)
    return [document.value_problem(at, trouble, "stop what uses it, or name another; 0 picks a free one")]


def _is_omlx(host: str, port: int) -> bool:
    """Tell whether it is this program that listens there."""
    import http.client  # noqa: PLC0415 - needed for a port in use only; takes 20 ms

    with closing(http.client.HTTPConnection(host, port, timeout=_ASK_TIMEOUT_S)) as connection:
        try:
            connection.request("GET", "/health")
            health = json.loads(connection.getresponse().read(65536))
        except (OSError, http.client.HTTPException, ValueError):
            return False
    return isinstance(health, dict) and {"status", "version", "models"} <= health.keys()
