"""A copy of one whole version, as a scorer keeps it on disk.

A replica made from a copy serves nothing before every byte of the file was checked.

The layout, little-endian; offsets in bytes:

     0  4s   magic b"SLrc"
     4  u16  format version, 1
     6  u16  shards
     8  u64  when the version was published, milliseconds since 1970
    16       records, one after the other: u16 shard, u16 bytes of the key, u32 bytes of the value, key, value
    end-4  u32  CRC-32 (zlib) of all bytes before it

The records are those of `core/snapshots/records.py`, as a publication that writes every page has them: for each shard
the model record (shard 0 only), a delta without rows, every page, the version record. Each has a checksum of its own
too.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import IO, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.errors import DamagedRecord, ForeignRecord, NewerVersion
from stream_learner.core.machine.checksum import crc32
from stream_learner.core.snapshots.pages import MAX_SHARDS, PagePlanner, PagePolicy, PageState, Prefix, shard_prefix
from stream_learner.core.snapshots.records import MODEL_SHARD, Stamp, publication
from stream_learner.core.snapshots.replica import Replica, Served
from stream_learner.core.snapshots.rows import WeightRows, rows_between

MAGIC = b"SLrc"
FORMAT_VERSION = 1
_HEADER = struct.Struct("<4sHHQ")
_RECORD = struct.Struct("<HHI")
_CRC = struct.Struct("<I")
_RING = 4


class WholeVersion(NamedTuple):
    """A version and all its rows: keys u64, rising, weights f32."""

    served: Served
    shards: int
    keys: NDArray[np.uint64]
    weights: NDArray[np.float32]


class Copy(NamedTuple):
    """A version read from a copy, and when it was published."""

    replica: Replica
    published_ms: int


def encode_copy(version: WholeVersion, published_ms: int) -> Iterator[bytes]:
    """The bytes of a copy, in pieces about as large as a page."""
    crc = 0
    for piece in _pieces(version, published_ms):
        crc = crc32(piece, crc)
        yield piece
    yield _CRC.pack(crc)


def read_copy(file: IO[bytes], size: int) -> Copy:
    """The copy in a file of `size` bytes. Raises ForeignRecord, NewerVersion, DamagedRecord."""
    reader = _Checked(file, size - _CRC.size)
    magic, form, shards, published_ms = _HEADER.unpack(reader.take(_HEADER.size))
    if magic != MAGIC:
        raise ForeignRecord("not a copy of a version")
    if form > FORMAT_VERSION:
        raise NewerVersion(f"a copy of format {form}, this program knows {FORMAT_VERSION}")
    if form != FORMAT_VERSION or not 1 <= shards <= MAX_SHARDS or shards & (shards - 1):
        raise DamagedRecord(f"a copy of format {form} with {shards} shards")
    # Nothing is served before the checksum was compared, so the end counts as not reached.
    replica, read = Replica([2**62] * shards), [0] * shards
    while reader.left:
        shard, key_bytes, value_bytes = _RECORD.unpack(reader.take(_RECORD.size))
        key, value = reader.take(key_bytes), reader.take(value_bytes)
        if shard >= shards:
            raise DamagedRecord(f"a record of shard {shard} in a copy of {shards}")
        replica.take(shard, read[shard], key, value)
        read[shard] += 1
    reader.check()
    for shard in range(shards):
        replica.reached(shard, 2**62)
    if not replica.ready:
        raise DamagedRecord(f"a copy that is not whole: {replica.why_not_ready}")
    return Copy(replica, published_ms)


class _Checked:
    """A reader of bytes that are followed by their checksum."""

    def __init__(self, file: IO[bytes], size: int) -> None:
        self._file = file
        self._crc = 0
        self.left = size

    def take(self, count: int) -> bytes:
        """The next `count` bytes. Raises DamagedRecord where fewer are left."""
        found = self._file.read(count) if count <= self.left else b""
        if len(found) != count:
            raise DamagedRecord("a copy that was cut short")
        self._crc = crc32(found, self._crc)
        self.left -= count
        return found

    def check(self) -> None:
        """Raise DamagedRecord unless the checksum is that of the bytes taken."""
        if self._file.read(_CRC.size) != _CRC.pack(self._crc):
            raise DamagedRecord("a copy whose checksum is wrong")


def _pieces(version: WholeVersion, published_ms: int) -> Iterator[bytes]:
    yield _HEADER.pack(MAGIC, FORMAT_VERSION, version.shards, published_ms)
    rows = WeightRows(version.keys, version.weights)
    for shard in range(version.shards):
        for key, value in _records(version.served, rows, shard, version.shards):
            yield _RECORD.pack(shard, len(key), len(value)) + key + value


def _records(served: Served, rows: WeightRows, shard: int, shards: int) -> Iterator[tuple[bytes, bytes]]:
    """The records of one shard, as a publication that writes every page has them."""
    root = shard_prefix(shard, shards)
    before = PageState(max(served.sequence, 1) - 1, ((root, 0),), np.zeros(_RING, np.int64))

    def below(prefix: Prefix) -> WeightRows:
        return rows_between(rows, prefix.bits, prefix.last)

    plan = PagePlanner(root, PagePolicy(ring=_RING), before).plan(rows.part(0, 0), below)
    stamp = Stamp(shard, shards, plan.sequence, 1, served.version)
    content = served.model if shard == MODEL_SHARD else None
    for key, value in publication(plan, stamp, served.digest, content):
        if value is not None:
            yield key, value
