"""Options that several verbs share, and the settings they amount to."""

import argparse
from pathlib import Path

import msgspec

from omlx.config.load import load_config
from omlx.config.paths import find_models_file
from omlx.config.settings import ModelSettings, Settings
from omlx.errors import UsageError
from omlx.pipeline.pipelines import load_pipelines
from omlx.stages import built_in_stages


def add_settings_arguments(parser: argparse.ArgumentParser) -> None:
    """Add --models, --model and --set."""
    parser.add_argument(
        "--models", metavar="FILE", help="the models.toml to use (default: ./models.toml, if there)"
    )
    parser.add_argument(
        "--model",
        metavar="FOLDER_OR_NAME",
        action="append",
        default=[],
        help="offer this model: a folder or a hub name; its last part is the name clients use (repeatable)",
    )
    parser.add_argument(
        "--set",
        metavar="PATH=VALUE",
        action="append",
        default=[],
        dest="overrides",
        help="override one setting, for example cache.hot=2GiB (repeatable)",
    )


def settings_from(options: argparse.Namespace) -> tuple[Settings, Path]:
    """Return the settings and the folder beside which pipelines are looked for.

    With --model and no --models, a models.toml in the current folder is not read: what the command line names is all
    there is. Raises ConfigError, UsageError.
    """
    file = find_models_file(options.models) if options.models or not options.model else None
    config = load_config(file, tuple(options.overrides))
    load_pipelines(
        config.settings, config.base, built_in_stages(), config.document
    )  # problems, by their lines
    settings = config.settings
    extra = {model_name(path): ModelSettings(path=path) for path in options.model}
    settings = msgspec.structs.replace(settings, models={**settings.models, **extra})
    if not settings.models:
        raise UsageError(
            "there is no model to serve", hint="name one with --model FOLDER_OR_NAME, or write a models.toml"
        )
    return settings, file.resolve().parent if file else Path.cwd()


def model_name(path: str) -> str:
    """Return the name clients use for a folder or a hub name: its last part."""
    return Path(path).expanduser().name or path
