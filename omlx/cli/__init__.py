"""The `omlx` command. Each verb is a module here with `add_arguments` and `run`.

A verb's heavy parts (the server, MLX) are imported when the verb runs, so that `omlx --help`, `check` and other
verbs that need none of them start at once: importing mlx-lm alone costs 2 to 5 seconds.
"""

import argparse
import os
import sys
from collections.abc import Sequence

from omlx import __version__
from omlx.cli import bench, check, demo, doctor, serve, tap, trace, verify
from omlx.errors import OmlxError, UsageError
from omlx.telemetry import configure_logging

_VERBS = {
    "serve": serve,
    "check": check,
    "trace": trace,
    "tap": tap,
    "demo": demo,
    "doctor": doctor,
    "bench": bench,
    "verify": verify,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a verb; return the exit code: 0 well, 1 problems found, 2 wrong usage."""
    os.environ.setdefault(
        "TRANSFORMERS_NO_ADVISORY_WARNINGS", "1"
    )  # it warns that there is no PyTorch: none is needed
    parsed = _parser().parse_args(arguments)
    configure_logging()
    try:
        return int(parsed.run(parsed))
    except UsageError as error:
        print(f"omlx: {error}", file=sys.stderr)
        return 2
    except OmlxError as error:
        print(f"omlx: {error}" if "\n" not in str(error) else str(error), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="omlx",
        description="Serve local models to coding agents, with a KV cache kept in RAM and on SSD.",
    )
    parser.add_argument("--version", action="version", version=f"omlx {__version__}")
    verbs = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for name, module in _VERBS.items():
        summary = (module.__doc__ or "").partition("\n")[0].partition(": ")[2]
        verb = verbs.add_parser(name, help=summary, description=summary)
        module.add_arguments(verb)
        verb.set_defaults(run=module.run)
    return parser
