"""The JSON Schemas of pipeline files and of `models.toml`, for editors. The registry is the schema."""

import re
from collections.abc import Iterable, Mapping

import msgspec

from omlx.config.schema import DRAFT, Schema, Schemas
from omlx.config.settings import Settings
from omlx.pipeline.pipeline import PipelineInfo
from omlx.pipeline.stage import Stage


def pipeline_schema(stages: Mapping[str, type[Stage]], test: type[msgspec.Struct]) -> Schema:
    """Return the schema of a pipeline file; `stages` by the name that `use` takes, `test` of one `[[test]]`."""
    schemas = Schemas()
    options = [_stage(schemas, use, kind) for use, kind in stages.items()]
    return {
        "$schema": DRAFT,
        "title": "omlx pipeline",
        "description": "A chain of stages that every request of a model walks down, in this order.",
        "type": "object",
        "additionalProperties": False,
        "required": ["stage"],
        "properties": {
            "pipeline": schemas.refer(PipelineInfo),
            "stage": {"type": "array", "minItems": 1, "items": {"anyOf": [*options, _third_party(stages)]}},
            "test": {"type": "array", "items": schemas.refer(test)},
        },
        "definitions": schemas.definitions,
    }


def models_schema(stages: Mapping[str, type[Stage]]) -> Schema:
    """Return the schema of `models.toml`; models may tune the `stages`, named here by their own names."""
    schemas = Schemas()
    whole = schemas.table(Settings)
    for use, kind in stages.items():
        # a model gives some of the keys, the pipeline the others
        part = {key: value for key, value in schemas.table(kind).items() if key != "required"}
        schemas.definitions[_name(use)] = part
    tuned = {kind.name(): {"$ref": f"#/definitions/{_name(use)}"} for use, kind in stages.items()}
    tuning = schemas.definitions["ModelSettings"]["properties"]["stages"]
    tuning |= {"properties": tuned, "additionalProperties": {"type": "object"}}
    head = {"$schema": DRAFT, "title": "omlx models.toml"}
    return {**head, **whole, "definitions": schemas.definitions}


def _stage(schemas: Schemas, use: str, kind: type[Stage]) -> Schema:
    named = {"use": {"const": use, "description": schemas.table(kind)["description"]}}
    schemas.definitions[_name(use)] = schemas.table(kind, named)
    return {"$ref": f"#/definitions/{_name(use)}"}


def _name(use: str) -> str:
    return "stage_" + re.sub(r"\W", "_", use)


def _third_party(known: Iterable[str]) -> Schema:
    """Return the schema of a stage that is not known here: it may have any keys."""
    others = {"type": "string", "pattern": "^[^:]+:[^:]+$", "not": {"enum": list(known)}}
    return {
        "description": "A stage of your own: a class in a Python module beside this file, or in an installed one.",
        "type": "object",
        "required": ["use"],
        "properties": {"use": others},
    }
