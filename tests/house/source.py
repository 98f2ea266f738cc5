"""The modules of the package as the checkers see them: name, text and syntax tree. Nothing is imported."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TypeAlias

REPOSITORY = Path(__file__).parents[2]

#: What a checker returns: one line a finding, empty when all is well.
Findings: TypeAlias = list[str]
Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef


@dataclass(frozen=True)
class Module:
    """One module. `name` is its dotted name; that of a package is the package's."""

    name: str
    text: str

    @cached_property
    def tree(self) -> ast.Module:
        """Return the syntax tree."""
        return ast.parse(self.text)

    @property
    def room(self) -> str:
        """Return the part of the name below the top package: the room; empty for the top package itself."""
        return self.name.partition(".")[2].partition(".")[0]

    def line(self, number: int) -> str:
        """Return a line of the text (1-based)."""
        return self.text.splitlines()[number - 1]

    def functions(self) -> Iterator[Function]:
        """Yield every function and method, nested ones too."""
        for node in ast.walk(self.tree):
            if isinstance(node, Function):
                yield node

    def imports(self) -> Iterator[tuple[str, ast.stmt]]:
        """Yield each imported name with its statement: for `from a.b import c` both `a.b` and `a.b.c`."""
        for node in ast.walk(self.tree):
            if isinstance(node, ast.Import):
                yield from ((alias.name, node) for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                base = node.module or ""
                yield base, node
                yield from ((f"{base}.{alias.name}", node) for alias in node.names)


def read_modules(folder: Path, top: str = "omlx") -> list[Module]:
    """Return every module below a folder, by name."""
    modules = []
    for path in sorted(folder.rglob("*.py")):
        parts = path.relative_to(folder).with_suffix("").parts
        name = ".".join((top, *parts)).removesuffix(".__init__")
        modules.append(Module(name, path.read_text(encoding="utf-8")))
    return modules


def package() -> list[Module]:
    """Return the modules of omlx."""
    return read_modules(REPOSITORY / "omlx")
