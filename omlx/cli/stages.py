"""stages: show the stages that a pipeline can have, and what each takes, reads and assigns.

omlx stages ls                        all of them: built in, installed, and named by the pipelines here
omlx stages show prefill              one, with its options
omlx stages show my_stage:MyStage     one of your own, in a module beside the pipelines
"""

import argparse
import json
import shutil
import textwrap
from collections.abc import Iterator
from pathlib import Path

import msgspec

from omlx.config.decode import suggestion
from omlx.config.reference import Option
from omlx.errors import UsageError
from omlx.pipeline.catalogue import StageDoc, known_stages, stage_doc
from omlx.pipeline.stage import Stage
from omlx.pipeline.third_party import StageImportError, third_party_stage
from omlx.stages import built_in_stages
from omlx.units import exact_size

_WIDTH = 100
_INDENT = 10


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the verb's options."""
    actions = parser.add_subparsers(dest="action", metavar="ls | show", required=True)
    listing = actions.add_parser("ls", help="list all stages")
    showing = actions.add_parser("show", help="show one stage")
    showing.add_argument("name", metavar="NAME", help="what `use` takes in a pipeline file")
    for action in (listing, showing):
        action.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Print the stages. Raises UsageError for a name that none has."""
    base = Path.cwd()
    if options.action == "show":
        found = stage_doc(options.name, find_stage(options.name, base))
        print(_json(found) if options.json else "\n".join(show(found)))
        return 0
    docs = [stage_doc(use, kind) for use, kind in known_stages(built_in_stages(), base).items()]
    print(_json(docs) if options.json else "\n".join(listed(docs)))
    return 0


def find_stage(use: str, base: Path) -> type[Stage]:
    """Return the stage that `use` names, as a pipeline file in `base` would. Raises UsageError."""
    known = known_stages(built_in_stages(), base)
    try:
        kind = known.get(use) or third_party_stage(use, (base / "pipelines", base))
    except StageImportError as error:
        raise UsageError(f"stage {use!r} cannot be loaded: {error}") from error
    if kind is None:
        raise UsageError(f"there is no stage {use!r}", hint=suggestion(use, list(known)))
    return kind


def listed(docs: list[StageDoc]) -> Iterator[str]:
    """Yield one line a stage: its name, its lane, and what it does."""
    width = max(len(doc.use) for doc in docs)
    for doc in docs:
        yield f"{doc.use:<{width}}  {doc.lane:<6}  {doc.summary}"


def show(doc: StageDoc) -> Iterator[str]:
    """Yield a page on one stage."""
    yield f"{doc.use} · lane {doc.lane} · {doc.source}"
    for paragraph in (doc.summary, *doc.more.split("\n\n")):
        if paragraph:
            yield from ["", *textwrap.wrap(" ".join(paragraph.split()), _width())]
    declared = {
        "requires": doc.requires,
        "uses": doc.uses,
        "assigns": doc.assigns,
        "after": doc.after,
        "during": doc.during,
    }
    yield ""
    for label, names in declared.items():
        if names:
            yield f"{label:<{_INDENT}}{', '.join(names)}"
    yield from ["", "Options" if doc.options else "No options."]
    for option in doc.options:
        yield from _option(option)


def _option(option: Option, indent: str = "  ") -> Iterator[str]:
    said = f"{option.name} = {'(must be given)' if option.required else _default(option)}"
    unit = f", in {option.unit}" if option.unit and option.unit not in ("bytes", "seconds") else ""
    yield f"{indent}{said:<34}  {option.type}{unit}"
    meaning = option.meaning[:1].upper() + option.meaning[1:]
    for line in textwrap.wrap(meaning, _width() - len(indent) - 4):
        yield f"{indent}    {line}"
    for key in option.keys:
        yield from _option(key, indent + "    ")


def _default(option: Option) -> str:
    if option.default is None:
        return "(not set)"
    shown = exact_size(option.default) if option.unit == "bytes" else option.default
    return json.dumps(shown)


def _width() -> int:
    return min(_WIDTH, shutil.get_terminal_size((_WIDTH, 24)).columns)


def _json(value: object) -> str:
    return msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
