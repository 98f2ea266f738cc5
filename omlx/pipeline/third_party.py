"""Find a third-party stage: `module:Class`, or an entry point of the group `omlx.stages`.

Why modules beside the TOML are loaded by their file: the folder is never put on `sys.path`, where everything
else in it could shadow what omlx imports later. An installed module of the same name comes first.
"""

import importlib
import importlib.util
import sys
import traceback
from collections.abc import Sequence
from importlib.machinery import PathFinder
from importlib.metadata import entry_points
from pathlib import Path
from types import ModuleType

from omlx.pipeline.stage import Stage

GROUP = "omlx.stages"


class StageImportError(Exception):
    """A stage cannot be had from where its name points. The message says why."""


def third_party_stage(use: str, folders: Sequence[Path]) -> type[Stage] | None:
    """Return the class, or None when `use` names none; runs the code of its module.

    Modules are looked for where Python finds them, then in `folders`. Raises StageImportError.
    """
    module, colon, attribute = use.partition(":")
    named = () if colon else tuple(entry_points(group=GROUP, name=use))
    if not colon and not named:
        return None
    if colon and not (module and attribute):
        raise StageImportError("write module:Class")
    try:
        found = getattr(_module(module, folders), attribute) if colon else named[0].load()
    except Exception as error:  # the boundary to code that is not ours
        raise StageImportError(_reason(error)) from error
    return _checked(found)


def _module(name: str, folders: Sequence[Path]) -> ModuleType:
    """Import a module; its top package may lie in one of the folders."""
    top = name.partition(".")[0]
    if top not in sys.modules and importlib.util.find_spec(top) is None:
        _load_beside(top, folders)
    return importlib.import_module(name)


def _load_beside(name: str, folders: Sequence[Path]) -> None:
    """Load a top-level module or package from the first folder that has it, if one has."""
    spec = PathFinder.find_spec(name, [str(folder) for folder in folders])
    if spec is None or spec.loader is None:
        return
    sys.modules[name] = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(sys.modules[name])
    except BaseException:  # a half-run module must not be found by the next import
        del sys.modules[name]
        raise


def _checked(found: object) -> type[Stage]:
    if not (isinstance(found, type) and issubclass(found, Stage)):
        raise StageImportError(f"{found!r} is not a subclass of omlx.pipeline.stage.Stage")
    if found.run is Stage.run:
        raise StageImportError(f"{found.__name__} has no method 'run'")
    for field in ("requires", "uses", "assigns", "after", "during"):
        if not isinstance(getattr(found, field), tuple):  # a lone text would be read letter by letter
            raise StageImportError(f"{found.__name__}.{field} must be a tuple of names")
    if found.lane not in {"host", "io", "device"}:
        raise StageImportError(f"{found.__name__}.lane must be 'host', 'io' or 'device', not {found.lane!r}")
    return found


def _reason(error: Exception) -> str:
    """Return an error with the line of the third-party file that raised it."""
    text = f"{type(error).__name__}: {error}"
    files = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
    theirs = [(name, line) for name, line in files if name != __file__ and "importlib" not in name]
    return f"{text} ({Path(theirs[-1][0]).name}:{theirs[-1][1]})" if theirs else text
