"""trace: show what a request would reuse, what it would cost, and why not more. Changes nothing.

omlx trace REQUEST.json --model M                  by the running server if there is one, else by the files
omlx trace REQUEST.json --against OTHER.json       where two requests part, and why
omlx trace SESSION.jsonl                           a session turn by turn: lines with `path` and `body`
omlx trace --live ID                               plan beside fact of a request that is over; `last` will do
"""

import argparse
import sys
from collections.abc import Iterable
from pathlib import Path

import msgspec

from omlx.cli.asking import Server
from omlx.cli.bodies import Body, read_bodies
from omlx.cli.local import configured_server, local_model
from omlx.errors import UsageError
from omlx.explain.later import live_page, session_page
from omlx.explain.live import against_report, live_report, session_report
from omlx.explain.page import trace_page
from omlx.explain.paint import Paint
from omlx.explain.report import report
from omlx.explain.session import Session, follow, prepare
from omlx.pipeline.explanation import Explanation
from omlx.pipeline.request import Request
from omlx.pipeline.timeline import RequestTrace
from omlx.server.dialects import read_request


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "request", nargs="?", metavar="REQUEST.json", help="a request's body, or a session; - is stdin"
    )
    parser.add_argument(
        "--model", metavar="FOLDER_OR_NAME", help="the model (default: the one that the body names)"
    )
    parser.add_argument(
        "--models", metavar="FILE", help="the models.toml to use (default: ./models.toml, if there)"
    )
    parser.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], dest="overrides")
    parser.add_argument("--path", help="the path that the body is for (default: told by its shape)")
    parser.add_argument(
        "--against", metavar="OTHER.json", help="compare with another request instead of the cache"
    )
    parser.add_argument("--live", metavar="ID", help="show plan and fact of a request of the running server")
    parser.add_argument(
        "--show-text", action="store_true", help="show 20 tokens of both sides of a difference"
    )
    parser.add_argument("--blocks", action="store_true", help="list every block: its tokens, bytes and tier")
    parser.add_argument("--format", choices=["text", "json", "html"], default="text")
    parser.add_argument(
        "--json", action="store_const", const="json", dest="format", help="the same as --format json"
    )
    parser.add_argument("--out", metavar="FILE", type=Path, help="write there instead of to the terminal")
    parser.add_argument("--url", help="the running server (default: the address in models.toml)")
    parser.add_argument(
        "--offline", action="store_true", help="ask no server: only the files of the cold tier"
    )


def run(options: argparse.Namespace) -> int:
    """Print the trace."""
    if options.live:
        _write(options, _live(options))
        return 0
    if not options.request:
        raise UsageError("there is nothing to trace", hint="name a file with a request, or use --live ID")
    bodies = read_bodies(options.request)
    if options.against:
        bodies = [*read_bodies(options.against), *bodies]
    found = _trace(options, bodies[0]) if len(bodies) == 1 else _session(options, bodies)
    _write(options, found)
    return 0


def _trace(options: argparse.Namespace, body: Body) -> str:
    """Explain one request: by the server where one serves the model, else by the files."""
    path, request = read_request(body.raw, options.path or body.path)
    found = _explained(options, body, path, request)
    if options.format == "json":
        return _json(found)
    if options.format == "html":
        return trace_page(found, path)
    return report(found, f"POST {path}", _paint(options), list_blocks=options.blocks)


def _explained(options: argparse.Namespace, body: Body, path: str, request: Request) -> Explanation:
    server = configured_server(options)
    show_text = bool(options.show_text)
    if options.url and not options.offline:
        return _asked(server, body, path, options.model, show_text=show_text)
    local = local_model(options, request.model)
    if not options.offline and local.name in server.names():
        found = _asked(server, body, path, local.name, show_text=show_text)
        if found.fingerprint == local.fingerprint():  # another folder may have the same name
            return found
    return local.explainer().dry(local.own(request), local.model, show_text=show_text)


def _asked(server: Server, body: Body, path: str, model: str | None, *, show_text: bool) -> Explanation:
    """Return the server's explanation of a body, sent to `model` where one is given."""
    fields = msgspec.json.decode(body.raw)
    raw = msgspec.json.encode({**fields, "model": model}) if model else body.raw
    answer = server.post("/v1/trace", raw, {"path": path, "text": str(show_text).lower()})
    return msgspec.json.decode(answer, type=Explanation)


def _session(options: argparse.Namespace, bodies: Iterable[Body]) -> str:
    """Compare requests with one another."""
    requests = [read_request(body.raw, options.path or body.path)[1] for body in bodies]
    local = local_model(options, requests[0].model)
    services = local.services()
    states = (
        prepare(local.pipeline.stages, local.own(request), local.model, services) for request in requests
    )
    found = follow(states, show_text=options.show_text)
    if options.against and len(found.turns) == 2 and options.format == "text":
        return against_report(found.turns[1], Path(options.against).name, _paint(options))
    return _worded(options, found)


def _worded(options: argparse.Namespace, found: Session) -> str:
    if options.format == "json":
        return _json(found)
    if options.format == "html":
        return session_page(found)
    return session_report(found, _paint(options))


def _live(options: argparse.Namespace) -> str:
    server = configured_server(options)
    try:
        found = msgspec.json.decode(server.get(f"/v1/trace/{options.live}"), type=RequestTrace)
    except OSError as error:
        raise UsageError(f"no server answers at {server.url}: {error}", hint="name it with --url") from error
    if options.format == "json":
        return _json(found)
    return live_page(found) if options.format == "html" else live_report(found, _paint(options))


def _json(found: msgspec.Struct) -> str:
    return msgspec.json.format(msgspec.json.encode(found)).decode() + "\n"


def _paint(options: argparse.Namespace) -> Paint:
    return Paint(colours=options.out is None and sys.stdout.isatty())


def _write(options: argparse.Namespace, words: str) -> None:
    if options.out is None:
        print(words, end="")
    else:
        options.out.write_text(words, encoding="utf-8")
        print(f"written to {options.out}")
