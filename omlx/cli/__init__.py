"""The `omlx` command. Each verb is a module here with `add_arguments` and `run`.

Only the verb that is asked for is imported: all of them cost 0.3 s. Its heavy parts (the server, MLX) wait until it
runs, so that `omlx --help`, `check` and other verbs that need none of them start at once: importing mlx-lm alone
costs 2 to 5 seconds.
"""

import argparse
import importlib
import os
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from omlx import __version__
from omlx.cli.problems import as_text, near
from omlx.config.problem import ProblemsError
from omlx.errors import OmlxError, UsageError
from omlx.telemetry import configure_logging

#: The verbs in the order of `omlx --help`, by the names of their modules.
VERBS = (
    "serve",
    "models",
    "init",
    "check",
    "graph",
    "stages",
    "schema",
    "trace",
    "tap",
    "demo",
    "doctor",
    "bench",
    "verify",
)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; return the exit code: 0 well, 1 problems found, 2 wrong usage."""
    os.environ.setdefault(
        "TRANSFORMERS_NO_ADVISORY_WARNINGS", "1"
    )  # it warns that there is no PyTorch: none is needed
    given = sys.argv[1:] if arguments is None else arguments
    parsed = _parser([given[0]] if given and given[0] in VERBS else VERBS).parse_args(given)
    configure_logging()
    try:
        return int(parsed.run(parsed))
    except UsageError as error:
        print(f"omlx: {error}", file=sys.stderr)
        return 2
    except ProblemsError as error:
        for problem in near(error.problems, Path.cwd()):
            print(as_text(problem, colours=sys.stderr.isatty()), file=sys.stderr)
        return 1
    except OmlxError as error:
        print(f"omlx: {error}" if "\n" not in str(error) else str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser(names: Iterable[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="omlx",
        description="Serve local models to coding agents, with a KV cache kept in RAM and on SSD.",
    )
    parser.add_argument("--version", action="version", version=f"omlx {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name in names:
        module = importlib.import_module(f"omlx.cli.{name}")
        summary, _, more = (module.__doc__ or "").partition(": ")[2].partition("\n")
        verb = verbs.add_parser(
            name,
            help=summary,
            description=f"{summary}\n{more}",
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser
