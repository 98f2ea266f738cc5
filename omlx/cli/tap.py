"""tap: show what a running server does, stage by stage, as it happens.

omlx tap                              every stage of every request
omlx tap --model M --stage prefill    one stage of one model
"""

import argparse

import msgspec

from omlx.cli.local import configured_server
from omlx.errors import UsageError
from omlx.explain.live import event_line
from omlx.explain.paint import Paint
from omlx.pipeline.timeline import StageEvent


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--model", help="events of this model alone, by any of its names")
    parser.add_argument("--stage", help="events of this stage alone, and the ends of requests")
    parser.add_argument("--request", metavar="ID", help="events of this request alone")
    parser.add_argument("--models", metavar="FILE", help="the models.toml that says where the server listens")
    parser.add_argument("--url", help="the running server (default: the address in models.toml)")
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    parser.set_defaults(overrides=[])


def run(options: argparse.Namespace) -> int:
    """Print events until interrupted, or until the server stops."""
    server = configured_server(options)
    wanted = {
        name: value for name in ("model", "stage", "request") if (value := getattr(options, name)) is not None
    }
    try:
        for name, data in server.events("/v1/tap", wanted):
            _show(name, data, as_json=options.json)
    except OSError as error:
        raise UsageError(f"no server answers at {server.url}: {error}", hint="name it with --url") from error
    return 0


def _show(name: str, data: bytes, *, as_json: bool) -> None:
    if as_json:
        print(data.decode(), flush=True)
    elif name == "lost":
        print(f"(too slow: {data.decode()})", flush=True)
    else:
        print(event_line(msgspec.json.decode(data, type=StageEvent), Paint()), flush=True)
