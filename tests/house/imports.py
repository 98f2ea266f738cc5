"""Checkers of imports: rooms, MLX, cycles, imports inside functions."""

import ast
import re
from collections.abc import Iterable, Mapping

from tests.house.source import Findings, Module

#: The line of each room: a room imports rooms of lower lines only, and itself.
ROOM_LINES = {
    **dict.fromkeys(["errors", "types", "units", "registry", "telemetry", "blas"], 0),
    "config": 1,
    **dict.fromkeys(["prefix", "store"], 2),
    "text": 3,
    **dict.fromkeys(["pipeline", "codecs"], 4),
    **dict.fromkeys(["stages", "kv"], 5),
    **dict.fromkeys(["engine", "models", "explain"], 6),
    **dict.fromkeys(["runtime", "testing"], 7),
    "server": 8,
    "cli": 9,
    "__main__": 10,
}

#: Rooms of one line of which the first may import the second: bytes are stored by the identity of their
#: block; sequences run on models that are held.
NEIGHBOURS = {("store", "prefix"), ("engine", "models")}

#: Rooms that may import MLX; `blas` measures it, once it is loaded.
MLX_ROOMS = frozenset({"engine", "models", "kv", "codecs", "blas"})

_MLX = re.compile(r"(mlx|mlx_lm)(\.|$)")
_NO_MLX = re.compile(r"\bNo MLX\b")
_COST = re.compile(r"#.*\d(\.\d+)? ?(ms|s)\b")


def rooms(modules: Iterable[Module]) -> Findings:
    """Return each import of a room that is not below, and each room that has no line."""
    findings = []
    for module in modules:
        if module.room and module.room not in ROOM_LINES:
            findings.append(f"{module.name}: room {module.room!r} has no line")
            continue
        above = [room for room in _imported_rooms(module) if not _may_import(module.room, room)]
        findings += [
            f"{module.name} imports room {room!r}, which is not below {module.room!r}" for room in above
        ]
    return findings


def _imported_rooms(module: Module) -> list[str]:
    """Return the rooms that a module imports, each once."""
    parts = [name.split(".") for name, _ in module.imports()]
    found = [part[1] for part in parts if part[0] == "omlx" and len(part) > 1]
    return [room for room in dict.fromkeys(found) if room in ROOM_LINES]


def _may_import(room: str, other: str) -> bool:
    if not room:
        return False  # the top package is imported by all
    return room == other or ROOM_LINES[other] < ROOM_LINES[room] or (room, other) in NEIGHBOURS


def mlx(modules: Iterable[Module]) -> Findings:
    """Return each import of MLX outside its rooms, or in a module whose docstring says "No MLX"."""
    findings = []
    for module in modules:
        promised = _NO_MLX.search(ast.get_docstring(module.tree) or "")
        if module.room in MLX_ROOMS and not promised:
            continue
        lines = [node.lineno for name, node in module.imports() if _MLX.match(name)]
        findings += [f"{module.name}:{line} imports MLX" for line in dict.fromkeys(lines)]
    return findings


def relative(modules: Iterable[Module]) -> Findings:
    """Return each relative import: the other checkers do not see where it points."""
    return [
        f"{module.name}:{node.lineno} is relative"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom) and node.level
    ]


def cycles(modules: Iterable[Module]) -> Findings:
    """Return a cycle of modules that import each other at their top, if there is one."""
    by_name = {module.name: module for module in modules}
    graph = {name: _imported_modules(module, by_name) for name, module in by_name.items()}
    done: set[str] = set()
    for name in graph:
        if cycle := _cycle_from(name, graph, [], done):
            return [" -> ".join(cycle)]
    return []


def _imported_modules(module: Module, known: Mapping[str, Module]) -> list[str]:
    """Return the modules that are named by imports at the top level of a module."""
    names = []
    for node in module.tree.body:
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            parts = [f"{node.module}.{alias.name}" for alias in node.names]
            names += [part if part in known else node.module or "" for part in parts]
    return [name for name in dict.fromkeys(names) if name in known and name != module.name]


def _cycle_from(name: str, graph: Mapping[str, list[str]], path: list[str], done: set[str]) -> list[str]:
    if name in path:
        return [*path[path.index(name) :], name]
    if name in done:
        return []
    for other in graph[name]:
        if cycle := _cycle_from(other, graph, [*path, name], done):
            return cycle
    done.add(name)
    return []


def inside_functions(modules: Iterable[Module]) -> Findings:
    """Return each import inside a function whose line carries no comment with its measured cost."""
    return [
        f"{module.name}:{node.lineno} imports inside {function.name!r} without its cost"
        for module in modules
        for function in module.functions()
        for node in ast.walk(function)
        if isinstance(node, ast.Import | ast.ImportFrom) and not _has_cost(module, node.lineno)
    ]


def _has_cost(module: Module, line: int) -> bool:
    """Tell whether a line, or the comment right above it, names a cost in seconds."""
    above = module.line(line - 1).strip()
    return bool(_COST.search(module.line(line)) or (above.startswith("#") and _COST.search(above)))
