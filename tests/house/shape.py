"""Checkers of shape: sizes, nesting, names, docstrings, broad excepts."""

import ast
from collections.abc import Iterable, Iterator, Mapping

from tests.house.source import Findings, Function, Module

MODULE_LINES = 400
FUNCTION_LINES = 60
NESTING = 4

#: Names that say nothing about what is inside.
EMPTY_NAMES = frozenset({"helper", "helpers", "util", "utils", "manager", "common", "misc"})

_BLOCKS = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.With, ast.AsyncWith, ast.Try, ast.TryStar, ast.Match)
_Documented = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef


def sizes(modules: Iterable[Module]) -> Findings:
    """Return each module, function and nesting that is too large."""
    findings = []
    for module in modules:
        lines = len(module.text.splitlines())
        if lines > MODULE_LINES:
            findings.append(f"{module.name} has {lines} lines")
        for function in module.functions():
            length = (function.end_lineno or function.lineno) - function.lineno + 1
            if length > FUNCTION_LINES:
                findings.append(f"{module.name}:{function.lineno} {function.name!r} has {length} lines")
            if (depth := _depth(function.body)) > NESTING:
                findings.append(f"{module.name}:{function.lineno} {function.name!r} is nested {depth} deep")
    return findings


def _depth(body: Iterable[ast.stmt]) -> int:
    """Return how many blocks the deepest statement lies in. An `elif` is as deep as its `if`."""
    return max((_statement_depth(statement) for statement in body), default=0)


def _statement_depth(node: ast.stmt) -> int:
    if isinstance(node, _BLOCKS):
        chained = node.orelse if isinstance(node, ast.If) else []
        if len(chained) == 1 and isinstance(chained[0], ast.If):
            return max(1 + _depth(node.body), _statement_depth(chained[0]))
        return 1 + max(_depth(body) for body in _bodies(node))
    if isinstance(node, Function | ast.ClassDef):
        return _depth(node.body)
    return 0


def _bodies(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """Yield the lists of statements inside a block."""
    for name in ("body", "orelse", "finalbody"):
        yield getattr(node, name, [])
    for part in (*getattr(node, "handlers", ()), *getattr(node, "cases", ())):
        yield part.body


def names(modules: Iterable[Module]) -> Findings:
    """Return each module whose name says nothing."""
    return [module.name for module in modules if EMPTY_NAMES & set(module.name.replace("_", ".").split("."))]


def docstrings(modules: Iterable[Module]) -> Findings:
    """Return each public module, class, function and method without a docstring."""
    findings = []
    for module in modules:
        if not ast.get_docstring(module.tree):
            findings.append(module.name)
        findings += [f"{module.name}:{node.lineno} {node.name!r}" for node in _undocumented(module.tree)]
    return findings


def _undocumented(parent: ast.Module | ast.ClassDef) -> Iterator[_Documented]:
    for node in parent.body:
        if isinstance(node, _Documented) and not node.name.startswith("_"):
            if not ast.get_docstring(node):
                yield node
            if isinstance(node, ast.ClassDef):
                yield from _undocumented(node)


def broad_excepts(modules: Iterable[Module], allowed: Mapping[str, int]) -> Findings:
    """Return each module with more broad excepts than it is allowed. One that only raises again is none."""
    findings = []
    for module in modules:
        broad = [
            node for node in ast.walk(module.tree) if isinstance(node, ast.ExceptHandler) and _is_broad(node)
        ]
        if len(broad) > allowed.get(module.name, 0):
            places = ", ".join(str(node.lineno) for node in broad)
            findings.append(f"{module.name} catches everything in lines {places}")
    return findings


def _is_broad(handler: ast.ExceptHandler) -> bool:
    kinds = handler.type.elts if isinstance(handler.type, ast.Tuple) else [handler.type]
    named = {kind.id for kind in kinds if isinstance(kind, ast.Name)}
    last = handler.body[-1]
    raised_again = isinstance(last, ast.Raise) and last.exc is None
    return (handler.type is None or bool(named & {"Exception", "BaseException"})) and not raised_again
