"""Schema: what a row of the cold tier says, its version, and how older rows are read.

    row value    msgpack [version, body]      the body is decoded only by the version that wrote it
    row key      block name (20 bytes) + one byte:
                   "b" the block itself: identity and tokens, no file
                   "k" "w" "s" its kv, window and state record: one safetensors file each
                 "r" + 16 random bytes: a reservation, bytes that a writer is about to use

A block row outlives its records as long as blocks continue it: its tokens are what a lookup compares on the
way. A row of a newer version is a miss and is left alone (the budget may still evict it); one of an older
version is brought up to date in memory by `MIGRATIONS`, one number at a time, or is a miss when a step is
lacking.
"""

import zlib
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from omlx.errors import CacheError
from omlx.prefix.block import Block
from omlx.types import BlockName, Fingerprint, PrefixDigest, RecordKind

SCHEMA_VERSION = 1

#: version n -> a function from the body of version n to that of version n + 1. A body is a plain dict with
#: the key "type" ("block", "record", "reservation"); files are never rewritten, a record that a new version
#: cannot read in place is dropped by raising CacheError.
Migration = Callable[[dict[str, Any]], dict[str, Any]]
MIGRATIONS: Mapping[int, Migration] = {}

_BLOCK_MARK = b"b"
_RECORD_MARKS: dict[RecordKind, bytes] = {"kv": b"k", "window": b"w", "state": b"s"}
_KINDS = {mark: kind for kind, mark in _RECORD_MARKS.items()}
_RESERVATION_MARK = b"r"
_NAME_BYTES = 20
_TOKEN_BYTES = 16


class BlockRow(msgspec.Struct, frozen=True, tag="block"):
    """Identity and tokens of a block. `tokens` is zlib over int32 little-endian."""

    fingerprint: str
    parent: bytes | None
    prefix: bytes
    digest: bytes
    start: int
    end: int
    tokens: bytes


class TensorRow(msgspec.Struct, frozen=True, array_like=True):
    """One array of a record, in file order; `dtype` is the NumPy name."""

    name: str
    dtype: str
    shape: tuple[int, ...]


class RecordRow(msgspec.Struct, frozen=True, tag="record"):
    """What must be true of a record's file: its exact length, the CRC-32 of all of it, and its arrays.

    `window` is the layout's window, so that superseded window records are known without the model.
    """

    kind: RecordKind
    file_bytes: int
    crc32: int
    tensors: tuple[TensorRow, ...]
    window: int = 0


class ReservationRow(msgspec.Struct, frozen=True, tag="reservation"):
    """Bytes that a process may use for the files of these stems; void some minutes after it was made."""

    host: str
    pid: int
    stems: tuple[str, ...]


Row = BlockRow | RecordRow | ReservationRow


class UnknownVersionError(CacheError):
    """The row was written by another schema version and there is no way from there to ours."""


def block_key(name: BlockName) -> bytes:
    """Return the key of a block's own row."""
    return name + _BLOCK_MARK


def record_key(name: BlockName, kind: RecordKind) -> bytes:
    """Return the key of a record's row."""
    return name + _RECORD_MARKS[kind]


def reservation_key(token: bytes) -> bytes:
    """Return the key of a reservation; `token` is 16 random bytes."""
    return _RESERVATION_MARK + token


def is_reservation(key: bytes) -> bool:
    """Return whether a key is that of a reservation."""
    return key[:1] == _RESERVATION_MARK and len(key) == 1 + _TOKEN_BYTES


def split_key(key: bytes) -> tuple[BlockName, RecordKind | None]:
    """Return name and kind (None: the block itself). Raises CacheError for any other key."""
    name, mark = key[:_NAME_BYTES], key[_NAME_BYTES:]
    if len(name) == _NAME_BYTES and (mark == _BLOCK_MARK or mark in _KINDS):
        return BlockName(name), _KINDS.get(mark)
    raise CacheError(f"row key {key.hex()} is not one of ours")


def encode_row(row: Row) -> bytes:
    """Return the value column of a row, in the present version."""
    return msgspec.msgpack.encode([SCHEMA_VERSION, row])


def decode_row(value: bytes, migrations: Mapping[int, Migration] = MIGRATIONS) -> Row:
    """Return the row that a value column holds, migrated when it is older.

    Raises UnknownVersionError for a version that cannot be reached, CacheError for anything that is not a
    row.
    """
    try:
        version, body = msgspec.msgpack.decode(value, type=tuple[int, msgspec.Raw])
        if version == SCHEMA_VERSION:
            row: Row = msgspec.msgpack.decode(body, type=Row)
        else:
            row = msgspec.convert(_migrate(version, msgspec.msgpack.decode(body), migrations), type=Row)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise CacheError(f"a cache row cannot be decoded: {error}") from error
    return row


def _migrate(version: int, body: Any, migrations: Mapping[int, Migration]) -> dict[str, Any]:
    if not isinstance(body, dict):
        raise CacheError("a cache row has no fields")
    fields: dict[str, Any] = body
    while version != SCHEMA_VERSION:
        step = migrations.get(version)
        if version > SCHEMA_VERSION or step is None:
            raise UnknownVersionError(f"schema version {version}; this omlx reads up to {SCHEMA_VERSION}")
        fields, version = step(fields), version + 1
    return fields


def row_of_block(block: Block) -> BlockRow:
    """Return the row that keeps a block."""
    return BlockRow(
        fingerprint=block.fingerprint,
        parent=block.parent,
        prefix=block.prefix,
        digest=block.digest,
        start=block.start,
        end=block.end,
        tokens=zlib.compress(block.token_bytes, 1),
    )


def block_of_row(name: BlockName, row: BlockRow) -> Block:
    """Return the block that a row keeps. Raises CacheError when its parts do not fit together."""
    try:
        tokens = zlib.decompress(row.tokens)
    except zlib.error as error:
        raise CacheError(f"the tokens of block {name.hex()} cannot be unpacked: {error}") from error
    num_tokens = row.end - row.start
    fits = row.start >= 0 and num_tokens > 0 and len(tokens) == 4 * num_tokens
    if not fits or name != row.digest + row.start.to_bytes(4, "little"):
        raise CacheError(f"the row of block {name.hex()} contradicts itself")
    return Block(
        name=name,
        fingerprint=Fingerprint(row.fingerprint),
        parent=None if row.parent is None else BlockName(row.parent),
        prefix=PrefixDigest(row.prefix),
        digest=PrefixDigest(row.digest),
        start=row.start,
        end=row.end,
        token_bytes=tokens,
    )
