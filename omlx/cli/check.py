"""check: find every problem in models.toml and the pipelines, before anything loads.

omlx check                            models.toml and the pipelines beside it
omlx check FILE ...                   these files
omlx check --tests                    walk the tests in the pipelines too, with a fake model
omlx check --templates                render two turns with each model's chat template: what does each turn lose?
omlx check --effective                every value of every model, and where it comes from

Exit code: 0 no problems, 1 problems, 2 wrong usage.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from omlx.cli.checking import Wanted, check, found_files, sorted_files
from omlx.cli.problems import as_github, as_json, as_text, near, near_path
from omlx.config.paths import find_models_file
from omlx.config.problem import Problem
from omlx.errors import UsageError
from omlx.stages import built_in_stages
from omlx.telemetry import configure_logging
from omlx.testing.rehearsal import ReadRequest, Rehearsed


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        help="files to check (default: models.toml and the pipelines beside it)",
    )
    parser.add_argument(
        "--models", metavar="FILE", help="the models.toml to check (default: ./models.toml, if there)"
    )
    parser.add_argument("--set", metavar="PATH=VALUE", action="append", default=[], dest="overrides")
    parser.add_argument("--tests", action="store_true", help="walk the tests that the pipelines carry")
    parser.add_argument(
        "--templates",
        action="store_true",
        help="look for chat templates that lose the prompt from turn to turn; loads tokenizers: seconds a model",
    )
    parser.add_argument(
        "--no-env", action="store_true", help="do not ask this machine: model folders, free space, the port"
    )
    parser.add_argument(
        "--effective", action="store_true", help="print every value of every model and where it comes from"
    )
    parser.add_argument("--format", choices=["text", "json", "github"], default="text")
    parser.add_argument(
        "--json", action="store_const", const="json", dest="format", help="the same as --format json"
    )


def run(options: argparse.Namespace) -> int:
    """Print every problem; return 1 when there is one."""
    models, pipelines = (
        sorted_files(options.files) if options.files else found_files(find_models_file(options.models))
    )
    read = _reader() if options.tests else None
    overrides = tuple(options.overrides)
    if overrides and not models:
        raise UsageError("--set changes a models.toml, and there is none to check", hint="name one")
    machine = not (options.no_env or options.effective)
    wanted = Wanted(models, pipelines, overrides, machine=machine, read=read, templates=options.templates)
    problems, tests = check(wanted, built_in_stages())
    problems = near(problems, Path.cwd())
    if options.effective and not problems:
        from omlx.cli.effective import show_effective  # noqa: PLC0415 - asks the folders of models: 20 ms

        return show_effective(next(iter(models), None), overrides, as_json=options.format == "json")
    files = [near_path(path, Path.cwd()) for path in (*models, *pipelines)]
    _show(options.format, files, problems, tests)
    return 1 if problems else 0


def _reader() -> ReadRequest:
    """Return what reads requests of any API; walking tests logs nothing but what fails."""
    from omlx.server.dialects import read_request  # noqa: PLC0415 - the schemas of all APIs: 60 ms

    configure_logging(level="critical")
    return lambda body: read_request(body)[1]


def _show(form: str, files: Sequence[Path], problems: Sequence[Problem], tests: Sequence[Rehearsed]) -> None:
    if form == "json":
        print(json.dumps(_json(files, problems, tests), indent=2))
        return
    if form == "github":
        for problem in problems:
            print(as_github(problem))
    else:
        for problem in problems:
            print(as_text(problem, colours=sys.stdout.isatty()), end="\n\n")
    print(_summary(files, problems, tests))


def _summary(files: Sequence[Path], problems: Sequence[Problem], tests: Sequence[Rehearsed]) -> str:
    """Return one line: how many problems in how many files, how many tests."""
    found = _count(len(problems), "problem") if problems else "no problems found"
    bad = len({problem.path for problem in problems})
    where = f"in {bad} of {_count(len(files), 'file')}" if problems else f"in {_count(len(files), 'file')}"
    passed = sum(not test.problems for test in tests)
    seconds = sum(test.seconds for test in tests)
    ran = f"; {passed} of {_count(len(tests), 'test')} passed ({seconds:.1f} s)" if tests else ""
    return f"{found} {where}{ran}"


def _json(
    files: Sequence[Path], problems: Sequence[Problem], tests: Sequence[Rehearsed]
) -> dict[str, object]:
    here = Path.cwd()
    return {
        "version": 1,
        "ok": not problems,
        "files": [str(path) for path in files],
        "problems": [as_json(problem) for problem in problems],
        "tests": [
            {
                "file": str(near_path(test.path, here)),
                "name": test.name,
                "passed": not test.problems,
                "seconds": test.seconds,
            }
            for test in tests
        ],
    }


def _count(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"
