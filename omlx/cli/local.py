"""A model as a dry run sees it, without a server: settings, chain, tokenizer, and the files of the cold tier."""

import argparse
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

import msgspec

from omlx.cli.asking import Server, server_at
from omlx.cli.options import model_name
from omlx.config.decode import suggestion
from omlx.config.load import load_settings
from omlx.config.paths import find_models_file
from omlx.config.settings import ModelSettings, Settings
from omlx.errors import UsageError
from omlx.explain.disk import DiskStore
from omlx.explain.explainer import Explainer
from omlx.models.catalog import CATALOG
from omlx.models.describe import describe, identity, local_folder
from omlx.pipeline.cost import CostBook, profile_folder
from omlx.pipeline.defaults import with_defaults
from omlx.pipeline.model import Model
from omlx.pipeline.pipeline import Pipeline
from omlx.pipeline.pipelines import load_pipelines
from omlx.pipeline.request import Request
from omlx.pipeline.stage import Services
from omlx.stages import built_in_stages
from omlx.stages.prefill import computing_of
from omlx.types import Fingerprint


@dataclass(frozen=True)
class Local:
    """One configured model on this machine. What is not asked for is not read.

    Attributes:
        settings: with that model alone.
        base: the folder beside which pipelines are looked for.
        name: the model's configured name.
    """

    settings: Settings
    base: Path
    name: str

    @cached_property
    def pipeline(self) -> Pipeline:
        """Return the model's chain. Raises ConfigError."""
        return load_pipelines(self.settings, self.base, built_in_stages())[self.name]

    @cached_property
    def costs(self) -> CostBook:
        """Return what was measured in earlier runs."""
        return CostBook(profile_folder(self.settings.cache))

    @cached_property
    def folder(self) -> Path:
        """Return the model's folder. Raises ModelLoadError when it is not on this machine."""
        return local_folder(self.settings.models[self.name].path)

    def fingerprint(self) -> Fingerprint:
        """Return the identity under which its blocks are stored."""
        return identity(self.settings.models[self.name], self.folder, computing_of(self.pipeline.stages))

    @cached_property
    def model(self) -> Model:
        """Return the model without its weights."""
        settings = self.settings.models[self.name]
        return describe(self.name, settings, self.folder, self.costs, computing_of(self.pipeline.stages))

    def explainer(self) -> Explainer:
        """Return what explains requests by the files of the cold tier."""
        cache = self.settings.cache
        stored = DiskStore(Path(cache.directory), int(cache.cold), cache.disk_share, cache.max_age)
        return Explainer(self.pipeline, Services(stored, costs=self.costs), stored, "disk")

    def services(self) -> Services:
        """Return what stages need that look nothing up."""
        return Services(None, costs=self.costs)

    def own(self, request: Request) -> Request:
        """Return a request to this model, with what its alias and the model's settings say where it says nothing."""
        settings = self.settings.models[self.name]
        aliases = settings.aliases if isinstance(settings.aliases, dict) else {}
        asked = with_defaults(request, aliases.get(request.model), settings.template_options)
        return msgspec.structs.replace(asked, model=self.name)


def local_model(options: argparse.Namespace, asked: str = "") -> Local:
    """Return the model that --model names (a name of models.toml, or a folder), else the one that was asked for.

    Raises UsageError when there is none, ConfigError for a models.toml with problems.
    """
    file = find_models_file(options.models)
    settings = load_settings(file, tuple(options.overrides))
    base = file.resolve().parent if file else Path.cwd()
    name = _configured(settings, options.model or asked)
    if name is None and options.model:
        _require_place(options.model, settings)
        name = model_name(options.model)
        settings = msgspec.structs.replace(settings, models={name: ModelSettings(path=options.model)})
    name = name or settings.defaults.model or next(iter(settings.models), None)
    if name is None:
        raise UsageError("there is no model to trace for", hint="name one with --model FOLDER_OR_NAME")
    found = _configured(settings, name) or name
    alone = msgspec.structs.replace(settings, models={found: settings.models[found]})
    return Local(alone, base, found)


def _require_place(path: str, settings: Settings) -> None:
    """Raise UsageError with the names of models.toml for what can be neither a folder nor a name on the hub."""
    if "/" in path or path.lower() in CATALOG or Path(path).expanduser().is_dir():
        return
    names = [name for key, model in settings.models.items() for name in (key, *model.aliases)]
    raise UsageError(f"there is no model {path!r}", hint=suggestion(path, names) if names else None)


def configured_server(options: argparse.Namespace) -> Server:
    """Return the server that --url names, else the one whose address is in models.toml."""
    settings = load_settings(find_models_file(options.models), tuple(options.overrides))
    return server_at(options.url, settings.server)


def _configured(settings: Settings, asked: str) -> str | None:
    """Return the configured name of a model by its name or an alias."""
    for name, model in settings.models.items():
        if asked in (name, *model.aliases):
            return name
    return None
