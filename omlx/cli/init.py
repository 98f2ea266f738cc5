"""init: write a models.toml for the models that are on this machine.

omlx init                             the hub's cache, and the small models that omlx has prepared
omlx init ~/models                    also the models in a folder
"""

import argparse
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path

from omlx.cli.checking import Wanted, check
from omlx.cli.problems import as_text
from omlx.config.machine import existing_folder, memory_bytes, port_trouble
from omlx.config.settings import CacheSettings, ServerSettings
from omlx.config.spell import toml_key, toml_value
from omlx.errors import UsageError
from omlx.models.catalog import CATALOG
from omlx.models.discover import FoundModel, find_models
from omlx.stages import built_in_stages
from omlx.units import format_size

_GIB = 1024**3

_HEAD = """\
# The models of this machine, as `omlx init` found them. `omlx serve` reads this file.
# A key that is left out has a default: `omlx check --effective` shows the value of each and where it comes from,
# `omlx check` finds what is wrong, and `omlx schema` tells an editor what may stand here.
"""
_TAIL = """
# To tune one model, put more keys into its table (`omlx stages show prefill` lists those of a stage):
# aliases = ["gpt-4o-mini"]                         # more names that clients may use
# sampling = { temperature = 0.7, top_p = 0.8 }     # when a request gives none
# stages.prefill.chunk_tokens = 1024                # one stage of the pipeline, for this model alone
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "folders", nargs="*", type=Path, metavar="FOLDER", help="a model, or a folder of models"
    )
    parser.add_argument(
        "--out", type=Path, default=Path("models.toml"), metavar="FILE", help="write this file"
    )
    parser.add_argument("--force", action="store_true", help="replace the file if it is there")


def run(options: argparse.Namespace) -> int:
    """Write the file, and check it."""
    for folder in options.folders:
        if not folder.expanduser().is_dir():
            raise UsageError(
                f"there is no folder {folder}", hint="name a model's folder, or one with models in it"
            )
    if options.out.exists() and not options.force:
        raise UsageError(f"{options.out} is there already", hint="use --force to replace it, or --out FILE")
    found = find_models(options.folders) or [_to_fetch()]
    options.out.write_text(models_toml(found), encoding="utf-8")
    problems, _ = check(Wanted([options.out], []), built_in_stages())
    for problem in problems:
        print(as_text(problem))
    print(f"{options.out} has {len(found)} model{'s' * (len(found) != 1)}:")
    for name, model in named(found):
        print(f"  {name}  ({model.about})")
    print("Next: omlx serve")
    return 1 if problems else 0


def models_toml(found: Sequence[FoundModel]) -> str:
    """Return the text of a models.toml that offers these models on this machine."""
    models = list(named(found))
    default = next((name for name, model in models if model.has_chat_template), models[0][0])
    return "\n".join([_HEAD, *_settings(default), *(_model(name, model) for name, model in models)]) + _TAIL


def named(found: Sequence[FoundModel]) -> Iterator[tuple[str, FoundModel]]:
    """Yield each model with a name that clients can use: the last part of its path, made unique."""
    taken: set[str] = set()
    for model in found:
        stem = name = Path(model.path).name.lower()
        number = 1
        while name in taken:
            number += 1
            name = f"{stem}-{number}"
        taken.add(name)
        yield name, model


def _settings(default: str) -> Iterator[str]:
    """Yield the tables that are about the machine, with limits that it can keep."""
    cache = CacheSettings()
    free = shutil.disk_usage(existing_folder(Path(cache.directory))).free
    hot = max(1, min(cache.hot, memory_bytes() // 4) // _GIB)
    cold = max(1, min(cache.cold, free // 2) // _GIB)
    yield "[defaults]"
    yield f"model = {toml_value(default)}          # answers requests that name no model"
    yield 'pipeline = "default"               # see `omlx graph`\n'
    yield "[server]"
    yield f'host = "{ServerSettings().host}"'
    yield f"port = {_free_port()}\n"
    yield "[cache]"
    yield f'directory = "{cache.directory}"'
    yield f'hot = "{hot}GiB"      # RAM'
    yield f'cold = "{cold}GiB"    # disk; {format_size(free)} are free now\n'


def _free_port() -> int:
    """Return the default port, or the next one that is free."""
    server = ServerSettings()
    ports = range(server.port, server.port + 100)
    return next((port for port in ports if port_trouble(server.host, port) is None), 0)


def _model(name: str, model: FoundModel) -> str:
    about = [f"# {model.about}"]
    about += (
        []
        if model.has_chat_template
        else ["# It has no chat template: it continues text, it does not converse."]
    )
    return "\n".join([*about, f"[models.{toml_key(name)}]", f"path = {toml_value(model.path)}", ""])


def _to_fetch() -> FoundModel:
    """Return the small model that omlx fetches by itself."""
    entry = next(entry for entry in CATALOG.values() if entry.by_default)
    about = f"{entry.summary}; fetched on first use ({format_size(entry.download_bytes)})"
    return FoundModel(entry.name, about, entry.has_chat_template)
