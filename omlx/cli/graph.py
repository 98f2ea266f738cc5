"""graph: draw a pipeline: its stages, their lanes, what each reads and assigns.

omlx graph                            the default pipeline
omlx graph ram_only                   a pipeline by its name, or by its file
omlx graph --format mermaid           for a README
"""

import argparse
import sys
from pathlib import Path

from omlx.cli.canvas import ASCII
from omlx.cli.drawing import draw
from omlx.cli.mermaid import mermaid
from omlx.config.paths import find_pipeline
from omlx.pipeline.pipeline import load_pipeline
from omlx.stages import built_in_stages


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "pipeline",
        nargs="?",
        default="default",
        metavar="PIPELINE",
        help="a name, or a TOML file (default: default)",
    )
    parser.add_argument("--format", choices=["ascii", "mermaid"], default="ascii")


def run(options: argparse.Namespace) -> int:
    """Print the drawing. Raises ConfigError for a pipeline with problems."""
    base = Path.cwd()
    pipeline = load_pipeline(find_pipeline(options.pipeline, base), built_in_stages(), None, (base,))
    if options.format == "mermaid":
        print(mermaid(pipeline))
        return 0
    drawing = draw(pipeline)
    if not (sys.stdout.encoding or "").lower().startswith("utf"):
        drawing = drawing.translate(ASCII)
    print(drawing)
    return 0
