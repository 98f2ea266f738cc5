"""Every value of every model as a request would meet it, and where it comes from.

request         what a request says itself: above all, and not known here
--set           the command line
alias           the table of an alias, for requests that name it
model           the model's own table in models.toml
defaults        [defaults] in models.toml
pipeline file   the [[stage]] table
model folder    generation_config.json beside the weights
default         omlx
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec

from omlx.cli.problems import near_path
from omlx.config.document import Document, read_document
from omlx.config.lines import KeyPath
from omlx.config.load import Config, load_config
from omlx.config.paths import find_pipeline
from omlx.config.reference import options_of, plain
from omlx.config.settings import AliasSettings, SamplingDefaults
from omlx.config.spell import toml_key, toml_value
from omlx.errors import ModelLoadError
from omlx.models.describe import local_folder
from omlx.models.generation import model_sampling
from omlx.pipeline.pipelines import load_pipelines
from omlx.pipeline.request import Sampling
from omlx.pipeline.stage import Stage
from omlx.stages import built_in_stages
from omlx.units import exact_size

_WIDTH = 60


class Value(msgspec.Struct, frozen=True):
    """One value. `where` is a file and line, or the words of a `--set`; null for a default."""

    key: str
    value: Any
    source: str
    where: str | None = None
    unit: str | None = None


def show_effective(models: Path | None, overrides: tuple[str, ...], *, as_json: bool) -> int:
    """Print the values of the server, the cache and each model. Raises ConfigError."""
    tables = effective(load_config(models, overrides))
    if as_json:
        print(json.dumps({"version": 1, **msgspec.to_builtins(tables)}, indent=2))
        return 0
    for name in ("server", "cache"):
        print(as_toml(f"[{name}]", tables[name]), end="\n\n")
    for name, values in tables["models"].items():
        print(as_toml(f"[models.{toml_key(name)}]", values), end="\n\n")
    print("# What a request says itself is above all of these.")
    return 0


def effective(config: Config) -> dict[str, Any]:
    """Return the values of `server`, `cache` and, by name, `models`."""
    settings = config.settings
    pipelines = load_pipelines(settings, config.base, built_in_stages(), config.document)
    tables: dict[str, Any] = {
        name: list(_table(config.document, (name,), getattr(settings, name), "models.toml"))
        for name in ("server", "cache")
    }
    tables["models"] = {}
    for name in settings.models:
        values = list(_model(config, name))
        stages = _stages(config, name, pipelines[name].stages)
        tables["models"][name] = [*values, *_aliases(config, name, values), *stages]
    return tables


def _table(document: Document, at: KeyPath, table: msgspec.Struct, source: str) -> Iterator[Value]:
    """Yield the values of a table whose keys a document may give."""
    for option in options_of(type(table)):
        value = plain(getattr(table, option.name))
        found = _said(document, (*at, option.name), option.name, value, source)
        yield msgspec.structs.replace(found or Value(option.name, value, "default"), unit=option.unit)


def _said(document: Document, at: KeyPath, key: str, value: Any, source: str) -> Value | None:
    """Return the value with its place when the document says it; None when it does not."""
    if override := document.override(at):
        return Value(key, value, "--set", override)
    if not _has(document.data, at):
        return None
    return Value(key, value, source, f"{near_path(document.path, Path.cwd())}:{document.line(at)}")


def _has(data: Any, at: KeyPath) -> bool:
    for part in at:
        inside = part in data if isinstance(data, dict) else isinstance(part, int) and part < len(data)
        if not inside:
            return False
        data = data[part]
    return True


def _model(config: Config, name: str) -> Iterator[Value]:
    """Yield a model's own settings; sampling by single values, without the tuning of stages."""
    model, document = config.settings.models[name], config.document
    for value in _table(document, ("models", name), model, "model"):
        if value.key == "pipeline" and value.value is None:
            chosen = config.settings.defaults.pipeline
            said = _said(document, ("defaults", "pipeline"), "pipeline", chosen, "defaults")
            yield said or Value("pipeline", chosen, "default")
        elif value.key == "sampling":
            yield from _sampling(config, name)
        elif value.key == "aliases":
            yield msgspec.structs.replace(value, value=list(model.aliases))
        elif value.key != "stages":
            yield value


def _sampling(config: Config, name: str) -> Iterator[Value]:
    model = config.settings.models[name]
    own, file = _own_sampling(model.path)
    for value in _table(config.document, ("models", name, "sampling"), model.sampling, "model"):
        key = f"sampling.{value.key}"
        theirs = getattr(own, value.key)
        if value.source == "default" and theirs is not None:
            yield Value(key, theirs, "model folder", str(near_path(file, Path.cwd())))
        elif value.source == "default" and value.key == "temperature":
            yield Value(key, 0.0, "default")
        else:
            yield msgspec.structs.replace(value, key=key)


def _aliases(config: Config, name: str, values: list[Value]) -> Iterator[Value]:
    """Yield what a request under each alias with settings of its own gets: the alias's values over the model's."""
    aliases = config.settings.models[name].aliases
    for alias, said in aliases.items() if isinstance(aliases, dict) else ():
        at: KeyPath = ("models", name, "aliases", alias)
        for value in values:
            table, _, key = value.key.partition(".")
            if table == "sampling":
                own = _said(config.document, (*at, table, key), key, getattr(said.sampling, key), "alias")
                yield msgspec.structs.replace(own or value, key=f"aliases.{alias}.{value.key}")
        yield from _alias_options(config, name, alias, said)


def _alias_options(config: Config, name: str, alias: str, said: AliasSettings) -> Iterator[Value]:
    for option in {**config.settings.models[name].template_options, **said.template_options}:
        own = option in said.template_options
        at: KeyPath = ("models", name, *(("aliases", alias) if own else ()), "template_options", option)
        options = said.template_options if own else config.settings.models[name].template_options
        key, source = f"aliases.{alias}.template_options.{option}", "alias" if own else "model"
        yield _said(config.document, at, key, options[option], source) or Value(key, options[option], source)


def _own_sampling(path: str) -> tuple[Sampling, Path]:
    """Return what a model's folder asks for, and the file that says so; nothing for one that is not here yet."""
    try:
        folder = local_folder(path)
    except ModelLoadError:
        return Sampling(), Path(path)
    return model_sampling(folder, SamplingDefaults()), folder / "generation_config.json"


def _stages(config: Config, name: str, stages: tuple[Stage, ...]) -> Iterator[Value]:
    """Yield the options of each stage of the model's chain."""
    model = config.settings.models[name]
    path = find_pipeline(model.pipeline or config.settings.defaults.pipeline, config.base)
    file = read_document(path)
    for index, stage in enumerate(stages):
        tuning: KeyPath = ("models", name, "stages", stage.name())
        for value in _table(file, ("stage", index), stage, "pipeline file"):
            tuned = _said(config.document, (*tuning, value.key), value.key, value.value, "model")
            yield msgspec.structs.replace(tuned or value, key=f"stages.{stage.name()}.{value.key}")


def as_toml(title: str, values: list[Value]) -> str:
    """Return a table of values as TOML, each with a comment that says where it comes from."""
    lines = [_line(value) for value in values]
    width = min(max((len(line) for line in lines), default=0), _WIDTH)
    comments = [", ".join(filter(None, [value.source, value.where])) for value in values]
    return "\n".join(
        [title, *(f"{line:<{width}}  # {why}" for line, why in zip(lines, comments, strict=True))]
    )


def _line(value: Value) -> str:
    if value.value is None:
        return f"# {value.key}"
    shown = exact_size(value.value) if value.unit == "bytes" else value.value
    return f"{value.key} = {toml_value(shown)}"
