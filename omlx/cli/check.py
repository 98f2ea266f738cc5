"""check: find every problem in models.toml and the pipelines, before anything loads."""

import argparse
from pathlib import Path

from omlx.config.load import load_config
from omlx.config.paths import find_models_file, pipeline_folders
from omlx.errors import ConfigError
from omlx.pipeline.pipeline import load_pipeline
from omlx.pipeline.pipelines import load_pipelines
from omlx.stages import built_in_stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "files", nargs="*", type=Path, help="pipeline files to check (default: all that are found)"
    )
    parser.add_argument(
        "--models", metavar="FILE", help="the models.toml to check (default: ./models.toml, if there)"
    )


def run(options: argparse.Namespace) -> int:
    """Print every problem; return 1 when there is one."""
    file = find_models_file(options.models)
    base = file.resolve().parent if file else Path.cwd()
    problems = [*_models_problems(file, base), *_pipeline_problems(options.files, base)]
    for problem in dict.fromkeys(problems):
        print(problem)
    if not problems:
        print("no problems found")
    return 1 if problems else 0


def _models_problems(file: Path | None, base: Path) -> list[str]:
    """Return the problems of a models.toml and of the pipelines its models tune."""
    if file is None:
        return []
    try:
        config = load_config(file)
        load_pipelines(config.settings, base, built_in_stages(), config.document)
    except ConfigError as error:
        return str(error).splitlines()
    return []


def _pipeline_problems(files: list[Path], base: Path) -> list[str]:
    """Return the problems of pipeline files by themselves."""
    found = files or sorted(path for folder in pipeline_folders(base)[:1] for path in folder.glob("*.toml"))
    problems = []
    for path in found:
        try:
            load_pipeline(path, built_in_stages())
        except ConfigError as error:
            problems += str(error).splitlines()
    return problems
