"""serve: run the server.

omlx serve                         the models of ./models.toml
omlx serve --model FOLDER          one model, no TOML at all
"""

import argparse

import msgspec

from omlx.cli.options import add_settings_arguments, settings_from
from omlx.telemetry import configure_logging


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    add_settings_arguments(parser)
    parser.add_argument("--host", help="address to listen on (default 127.0.0.1)")
    parser.add_argument("--port", type=int, help="port to listen on; 0 picks a free one (default 8321)")
    parser.add_argument(
        "--no-preload", action="store_true", help="load the default model at its first request only"
    )
    parser.add_argument("--log-json", action="store_true", help="log JSON lines even on a terminal")


def run(options: argparse.Namespace) -> int:
    """Serve until interrupted."""
    settings, base = settings_from(options)
    asked = {name: getattr(options, name) for name in ("host", "port") if getattr(options, name) is not None}
    settings = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, **asked))
    configure_logging(json=True if options.log_json else None)

    from omlx.runtime import Runtime  # noqa: PLC0415 - imports mlx-lm and transformers: 2 to 5 s
    from omlx.server.serve import serve  # noqa: PLC0415 - imports litestar: 0.5 s

    runtime = Runtime(settings, base)
    try:
        runtime.start()
        if not options.no_preload:
            runtime.preload()
        ended_well = serve(runtime, settings.server)
    finally:
        runtime.close()
    return 0 if ended_well else 1
