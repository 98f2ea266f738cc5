"""models: list, fetch, remove, load and unload models.

omlx models ls                        configured and found models: size, window, loaded or not
omlx models pull owner/name           fetch a model from the hub; owner/name@revision pins one
omlx models rm owner/name             delete what was fetched or prepared; asks first
omlx models load NAME                 have the running server load a model
omlx models unload NAME               have it unload one; its cache stays

Exit code: 0 well, 1 it could not be done, 2 wrong usage.
"""

import argparse
import json
import sys
from pathlib import Path
from urllib.parse import quote

import msgspec

from omlx.cli.local import configured_server
from omlx.cli.table import format_table
from omlx.config.load import load_settings
from omlx.config.paths import find_models_file
from omlx.config.settings import Settings
from omlx.errors import ModelLoadError, OmlxError, UsageError
from omlx.models.describe import local_folder
from omlx.models.discover import find_models, look
from omlx.models.shelf import find_kept, remove
from omlx.units import format_size


class Listed(msgspec.Struct, frozen=True):
    """A model: configured under a name, or only found on this machine.

    `bytes` and `window_tokens` are null when the model is not on this machine; `loaded` is when no server answers.
    """

    name: str | None
    path: str
    aliases: tuple[str, ...]
    bytes: int | None
    window_tokens: int | None
    loaded: bool | None


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    actions = parser.add_subparsers(dest="action", metavar="ls | pull | rm | load | unload", required=True)
    listing = actions.add_parser("ls", help="list configured and found models")
    listing.add_argument("folders", nargs="*", type=Path, metavar="FOLDER", help="look into these, too")
    pulling = actions.add_parser("pull", help="fetch a model")
    pulling.add_argument("--revision", help="a commit, tag or branch of the hub; the latest if left out")
    removing = actions.add_parser("rm", help="delete a model that was fetched or prepared")
    removing.add_argument("--yes", action="store_true", help="do not ask")
    loading = actions.add_parser("load", help="have the running server load a model")
    unloading = actions.add_parser("unload", help="have the running server unload a model")
    for action in (pulling, removing, loading, unloading):
        action.add_argument(
            "name", metavar="NAME", help="a name of models.toml, a hub name, a small model's name"
        )
    for action in (listing, pulling, removing, loading, unloading):
        action.add_argument("--json", action="store_true", help="print JSON")
        action.add_argument(
            "--models", metavar="FILE", help="the models.toml to use (default: ./models.toml)"
        )
        action.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], dest="overrides")
        action.add_argument("--url", help="the server's address (default: that of models.toml)")


def run(options: argparse.Namespace) -> int:
    """Do what is asked. Raises OmlxError for what cannot be done."""
    verbs = {"ls": _ls, "pull": _pull, "rm": _rm, "load": _tell, "unload": _tell}
    said, lines = verbs[options.action](options)
    print(json.dumps(said, indent=2) if options.json else lines)
    return 0


def listed(settings: Settings, folders: list[Path], said: dict[str, dict[str, object]]) -> list[Listed]:
    """Return the configured models, then those that are found besides; `said` is what the server says."""
    rows = []
    for name, model in settings.models.items():
        try:
            found = look(local_folder(model.path), model.path)
        except ModelLoadError:
            found = None
        loaded = bool(said[name]["loaded"]) if name in said else None
        size, window = (found.nbytes, found.window_tokens) if found else (None, None)
        rows.append(
            Listed(name, model.path, tuple(model.aliases), size, model.window_tokens or window, loaded)
        )
    known = {_absolute(row.path) for row in rows}
    found_besides = [each for each in find_models(folders) if _absolute(each.path) not in known]
    return rows + [
        Listed(None, each.path, (), each.nbytes, each.window_tokens, None) for each in found_besides
    ]


def _absolute(path: str) -> str:
    folder = Path(path).expanduser()
    return str(folder.resolve()) if folder.is_dir() else path


def _settings(options: argparse.Namespace) -> Settings:
    return load_settings(find_models_file(options.models), tuple(options.overrides))


def _ls(options: argparse.Namespace) -> tuple[object, str]:
    rows = listed(_settings(options), options.folders, configured_server(options).models())
    loaded = {None: "", True: "yes", False: "no"}
    table = [
        (
            row.name or "-",
            row.path,
            "not here" if row.bytes is None else format_size(row.bytes),
            row.window_tokens or "",
            loaded[row.loaded],
        )
        for row in rows
    ]
    text = format_table(("name", "path", "size", "window", "loaded"), table)
    return msgspec.to_builtins(rows), text if rows else "no models; fetch one with omlx models pull"


def _pull(options: argparse.Namespace) -> tuple[object, str]:
    path = _path(options)
    if options.revision:
        path = f"{path.partition('@')[0]}@{options.revision}"
    from omlx.models.resolve import resolve_folder  # noqa: PLC0415 - imports huggingface_hub: 0.4 s

    folder = resolve_folder(path, progress=sys.stderr.isatty())
    found = look(folder, path)
    size = found.nbytes if found else 0
    said = {"path": path, "folder": str(folder), "bytes": size}
    return said, f"{path} is in {folder} ({format_size(size)})"


def _rm(options: argparse.Namespace) -> tuple[object, str]:
    path = _path(options)
    if Path(path).expanduser().is_dir():
        raise UsageError(f"{path} is a folder of yours", hint="delete it by hand")
    kept = find_kept(path)
    if kept is None:
        raise OmlxError(f"model {path!r} is not on this machine", hint="list them with omlx models ls")
    server = configured_server(options).models()
    if any(server.get(name, {}).get("loaded") for name in (path, options.name)):
        raise OmlxError(
            f"model {options.name!r} is loaded", hint=f"first say omlx models unload {options.name}"
        )
    size = format_size(kept.nbytes)
    if not options.yes and not _agreed(f"Delete {path} ({size})?"):
        raise OmlxError("nothing was deleted")
    remove(kept)
    said = {"path": path, "bytes": kept.nbytes, "folders": [str(folder) for folder in kept.folders]}
    return said, f"{path} is deleted ({size})"


def _agreed(question: str) -> bool:
    """Ask the person. Raises UsageError when there is nobody to ask."""
    if not sys.stdin.isatty():
        raise UsageError("there is nobody to ask", hint="say --yes to delete without a question")
    return input(f"{question} [y/N] ").strip().lower() in {"y", "yes"}


def _tell(options: argparse.Namespace) -> tuple[object, str]:
    server = configured_server(options)
    try:
        answer = server.post(f"/v1/models/{quote(options.name, safe='')}/{options.action}", b"", {})
    except OSError as error:
        raise OmlxError(f"no server answers at {server.url}", hint="start one with omlx serve") from error
    said = json.loads(answer)
    return said, f"{options.name} is {'loaded' if said['loaded'] else 'unloaded'}"


def _path(options: argparse.Namespace) -> str:
    """Return the path of a configured model, or what was named."""
    for name, model in _settings(options).models.items():
        if options.name in (name, *model.aliases):
            return model.path
    return str(options.name)
