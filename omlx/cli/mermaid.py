"""A chain as a Mermaid flowchart, which GitHub draws."""

from collections.abc import Iterator
from itertools import pairwise

from omlx.pipeline.pipeline import Pipeline
from omlx.pipeline.stage import Stage

#: Fill and line of a stage's box, by lane: blue, green, orange.
_COLOURS = {"host": ("#e8f0fe", "#4a6fa5"), "io": ("#e6f4ea", "#3c8d5a"), "device": ("#fef3e0", "#c9822b")}


def mermaid(pipeline: Pipeline) -> str:
    """Return the flowchart: a box a stage, coloured by lane; dotted back to what a stage runs during."""
    return "\n".join(_lines(pipeline))


def _lines(pipeline: Pipeline) -> Iterator[str]:
    yield "flowchart TD"
    for stage in pipeline.stages:
        yield f'    {_id(stage)}["{_box(stage)}"]:::{stage.lane}'
    for before, after in pairwise(pipeline.stages):
        yield (
            f"    {_id(before)} -->|{_label(before)}| {_id(after)}"
            if before.assigns
            else f"    {_id(before)} --> {_id(after)}"
        )
    names = {stage.name() for stage in pipeline.stages}
    for stage in pipeline.stages:
        for other in stage.during:
            if other in names:
                yield f"    {_named(other)} -.->|each step| {_id(stage)}"
    for lane, (fill, line) in _COLOURS.items():
        yield f"    classDef {lane} fill:{fill},stroke:{line},color:#222"


def _box(stage: Stage) -> str:
    """Return a box's words: name and lane, then what the stage reads."""
    lines = [f"<b>{_safe(stage.name())}</b> · {stage.lane}"]
    lines += [f"requires {_safe(', '.join(stage.requires))}"] if stage.requires else []
    lines += [f"uses {_safe(', '.join(stage.uses))}"] if stage.uses else []
    return "<br/>".join(lines)


def _label(stage: Stage) -> str:
    return f'"{_safe(", ".join(stage.assigns))}"'


def _id(stage: Stage) -> str:
    return _named(stage.name())


def _named(name: str) -> str:
    """Return a stage's name as an id; `end` and the like mean something else to Mermaid."""
    return "stage_" + "".join(each if each.isalnum() else "_" for each in name)


def _safe(words: str) -> str:
    return words.replace('"', "#quot;").replace("<", "&lt;")
