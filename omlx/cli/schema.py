"""schema: print the JSON Schema of pipeline files or of models.toml, for editors.

omlx schema pipeline                  what a pipeline file may say; stages of your own too, where they are used here
omlx schema models                    what models.toml may say
omlx schema --write FOLDER            both, as pipeline.schema.json and models.schema.json

An editor with Taplo or Even Better TOML uses the one that the first line of a file names:

    #:schema ./pipeline.schema.json
"""

import argparse
import json
from pathlib import Path

from omlx.errors import UsageError
from omlx.pipeline.catalogue import known_stages
from omlx.pipeline.schema import models_schema, pipeline_schema
from omlx.stages import built_in_stages
from omlx.testing.scenario import PipelineTest


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument("what", nargs="?", choices=["pipeline", "models"], help="which kind of file")
    parser.add_argument("--write", metavar="FOLDER", type=Path, help="write both into this folder")
    parser.add_argument(
        "--built-in",
        action="store_true",
        help="leave out the stages of others that are installed or used here",
    )


def run(options: argparse.Namespace) -> int:
    """Print a schema, or write both."""
    if (options.what is None) == (options.write is None):
        raise UsageError(
            "name one schema or a folder", hint="omlx schema pipeline, or omlx schema --write FOLDER"
        )
    found = schemas(None if options.built_in else Path.cwd())
    if options.what is not None:
        print(found[f"{options.what}.schema.json"], end="")
        return 0
    for name, text in found.items():
        (options.write / name).write_text(text, encoding="utf-8")
        print(f"written to {options.write / name}")
    return 0


def schemas(base: Path | None) -> dict[str, str]:
    """Return the text of each schema by the name of its file; of the built-in stages, or all known in a folder."""
    registry = built_in_stages()
    stages = dict(registry) if base is None else known_stages(registry, base)
    made = {
        "pipeline.schema.json": pipeline_schema(stages, PipelineTest),
        "models.schema.json": models_schema(stages),
    }
    return {name: json.dumps(schema, indent=2, ensure_ascii=False) + "\n" for name, schema in made.items()}
