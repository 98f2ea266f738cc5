"""Checkers of text: what belongs to one machine or one registry has no place in the tree."""

import re
from collections.abc import Iterator
from pathlib import Path

from tests.house.source import Findings

#: Hosts of registries and folders of one machine, in parts, so that this file does not find itself.
_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("huggingface", "co"),
        ("hf", "co"),
        ("ghcr", "io"),
        ("docker", "io"),
        ("npmjs", "com"),
        ("crates", "io"),
    )
]
_FOLDERS = [
    "/" + "/".join(parts)
    for parts in (
        ("root",),
        ("work",),
        ("home", r"\w+"),
        ("Users", r"\w+"),
        ("private", "var"),
    )
]
_FOREIGN = re.compile(
    "|".join(
        [rf"(?<![\w-]){re.escape(host)}" for host in _HOSTS]
        + [rf"(?<![\w.~]){path}(?:/|\b)" for path in _FOLDERS]
    )
)

_ENDINGS = {".py", ".toml", ".md", ".yml", ".yaml", ".sh", ".json", ".jinja", ".txt"}
_PLACES = [
    "README.md",
    "models.toml",
    "pyproject.toml",
    "omlx",
    "pipelines",
    "tools",
    "tests",
    ".ci",
    ".github",
]


def texts(repository: Path) -> Iterator[tuple[Path, str]]:
    """Yield the text files that belong to the project."""
    for place in _PLACES:
        root = repository / place
        for path in [root] if root.is_file() else sorted(root.rglob("*")):
            if path.is_file() and path.suffix in _ENDINGS:
                yield path.relative_to(repository), path.read_text(encoding="utf-8")


def foreign(repository: Path) -> Findings:
    """Return each line that names a registry's host or an absolute path of some machine."""
    return [
        f"{path}:{number}: {found[0]}"
        for path, text in texts(repository)
        for number, line in enumerate(text.splitlines(), 1)
        if (found := _FOREIGN.search(line))
    ]
