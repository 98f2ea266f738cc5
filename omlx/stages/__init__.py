"""The built-in stages. Each is a config, a declaration and one method; none does anything a third party could not.

tokenize -> segment -> lookup -> fetch -> prefill -> decode -> writeback

optional: normalize, before tokenize; coalesce, before lookup
"""

from omlx.pipeline.stage import Stage
from omlx.registry import Registry
from omlx.stages.coalesce import CoalesceStage
from omlx.stages.decode import DecodeStage
from omlx.stages.fetch import FetchStage
from omlx.stages.lookup import LookupStage
from omlx.stages.normalize import NormalizeStage
from omlx.stages.prefill import PrefillStage
from omlx.stages.segment import SegmentStage
from omlx.stages.tokenize import TokenizeStage
from omlx.stages.writeback import WritebackStage


def built_in_stages() -> Registry[type[Stage]]:
    """Return a registry of the stages that ship, in the order of the chain."""
    registry: Registry[type[Stage]] = Registry("stage")
    kinds: tuple[type[Stage], ...] = (
        NormalizeStage,
        TokenizeStage,
        SegmentStage,
        CoalesceStage,
        LookupStage,
        FetchStage,
        PrefillStage,
        DecodeStage,
        WritebackStage,
    )
    for kind in kinds:
        registry.add(kind.name(), kind)
    return registry
