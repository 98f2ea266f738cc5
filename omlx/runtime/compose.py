"""Make the parts of a runtime from settings."""

from collections.abc import Sequence
from pathlib import Path

from omlx.config.settings import CacheSettings
from omlx.pipeline.pipeline import Pipeline
from omlx.stages.lookup import LookupStage
from omlx.stages.writeback import WritebackStage
from omlx.store.cold import ColdTier
from omlx.store.hot import HotTier
from omlx.store.store import BlockStore


def open_store(cache: CacheSettings, pipelines: Sequence[Pipeline]) -> BlockStore | None:
    """Open the tiers that the pipelines use; None when they use none.

    A tier that no stage names is not opened: without a cold tier no file is made.
    """
    tiers = {tier for pipeline in pipelines for tier in pipeline_tiers(pipeline)}
    if not tiers:
        return None
    hot = HotTier(int(cache.hot)) if "hot" in tiers else None
    directory = Path(cache.directory).expanduser()
    cold = None
    if "cold" in tiers:
        cold = ColdTier(directory, int(cache.cold), max_share=cache.disk_share, max_age_s=cache.max_age)
    return BlockStore(hot, cold)


def pipeline_tiers(pipeline: Pipeline) -> set[str]:
    """Return the tiers that a pipeline reads or writes."""
    stages = [stage for stage in pipeline.stages if isinstance(stage, LookupStage | WritebackStage)]
    return {tier for stage in stages for tier in stage.tiers}
