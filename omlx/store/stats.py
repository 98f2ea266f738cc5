"""What the store tells about itself: for /metrics, `omlx cache` and tests."""

import msgspec


class HotStats(msgspec.Struct, frozen=True):
    """The tier in RAM."""

    budget_bytes: int
    bytes: int
    arrays: int
    blocks: int
    records: int
    pinned_blocks: int
    evicted_records: int
    refused_records: int


class ColdStats(msgspec.Struct, frozen=True):
    """The tier on disk. `bytes` counts every file under the directory, as `du` does."""

    directory: str
    budget_bytes: int
    bytes: int
    blocks: int
    records: int
    evicted_records: int
    refused_records: int
    corrupt_records: int
    missing_records: int
    written_records: int
    written_bytes: int
    read_records: int
    read_bytes: int
    suspended: str | None  # why nothing is written at the moment
    orphan_bytes: int = 0  # of models that are configured no more: the first to go


class QueueStats(msgspec.Struct, frozen=True):
    """The write-back queue."""

    limit_bytes: int
    bytes: int
    records: int
    rejected_records: int  # pushed back to the caller: the queue was full
    abandoned_records: int  # given up: no room, no parent, or closed before they were written


class StoreStats(msgspec.Struct, frozen=True):
    """Both tiers, the queue, and what lookups found."""

    hot: HotStats | None
    cold: ColdStats | None
    queue: QueueStats | None
    index_blocks: int
    loads: int
    hot_hit_records: int
    cold_hit_records: int
    shortened_loads: int  # loads that came out shorter than their match
