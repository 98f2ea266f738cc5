"""ColdTier: records on disk under one budget of real bytes, shared by all models and processes.

How a block gets there (writer thread only):

    reserve   one transaction: learn what others did, evict until there is room, insert a reservation of the bytes
    write     each record: temporary name, fsync, rename; no lock is held
    commit    one transaction: reservation out, block row and record rows in

At every moment the sum of the rows' sizes is what finished, half-written and about-to-be-written files take, in
all processes: diskcache keeps that sum in its Settings table by triggers. Beside it count the table and its log,
folders, and files without a row. A process that dies leaves a reservation; it is void when its process is gone.

Reading takes neither table nor lock: the ledger in memory knows file, length and checksum. Another process may
have evicted the file: that is a miss. A writer that finds the volume full, read-only or gone suspends writing,
says so in `stats()`, and tries again after `retry_s`.
"""

import errno
import os
import secrets
import sqlite3
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import diskcache
import structlog

from omlx.errors import CacheError, ConfigError
from omlx.prefix.block import Block
from omlx.store import rows, tensorfile
from omlx.store.disk import DATABASE, BlockDisk, Entry, filename_of, new_stem, open_directory, record_path
from omlx.store.disk import remove_files, write_file
from omlx.store.eviction import Cost, Demand, plan_eviction
from omlx.store.ledger import Ledger, StoredRecord
from omlx.store.record import Record
from omlx.store.schema import ReservationRow, block_key, record_key, reservation_key, row_of_block
from omlx.store.stats import ColdStats
from omlx.store.sweep import Census, sweep, table_bytes
from omlx.store.volume import Allowance, FreeBytes, free_bytes
from omlx.types import BlockName, Fingerprint, RecordKind

_log = structlog.get_logger(__name__)

_LOCK_TIMEOUT_S = 20.0
#: What the table and its log may grow by between two looks at them: a transaction, and 64 pages of log.
_TABLE_MARGIN_BYTES = 512 * 1024
_PAGE_BYTES = 4096
_SETTINGS = {
    "eviction_policy": "none",  # ours: diskcache's knows nothing of chains
    "cull_limit": 0,
    "statistics": 0,
    "sqlite_wal_autocheckpoint": 64,
    "sqlite_journal_size_limit": 64 * _PAGE_BYTES,
}
#: What the outside world can do to a write. diskcache turns a failed BEGIN of any cause into Timeout.
_TROUBLE = (OSError, sqlite3.Error, diskcache.Timeout)


class _NoRoomError(Exception):
    """The block is refused: what may be evicted for it is not enough, or its parent has gone."""


@dataclass(slots=True)
class _Counters:
    evicted: int = 0
    refused: int = 0
    corrupt: int = 0
    missing: int = 0
    written: int = 0
    written_bytes: int = 0
    read: int = 0
    read_bytes: int = 0
