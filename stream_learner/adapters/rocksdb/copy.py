"""The state directory as bytes: a committed checkpoint held still while it is copied, and one written back.

In: an open store; or the records of a copy. Out: the bytes of a checkpoint's records and pieces; or a state directory.
This file must never read a piece of one checkpoint with the head of another, nor let what was written back count
before all of it is on disk.

Another thread than the store's may use all of this: RocksDB is made for it. A `HeldCheckpoint` reads through snapshots
of RocksDB, so that the fold may go on to write and delete; what it deletes stays on disk until the snapshots are gone.
The default column family has one more key:

    default   "lineage"   which directory this is, and the last copies that it made, JSON

| a crash while writing back | leaves                                                                  |
|----------------------------|-------------------------------------------------------------------------|
| before `commit`            | pieces that no head names: dropped at the next open, a new directory     |
| after `commit`             | the checkpoint                                                          |
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import orjson
from rocksdict import WriteBatch

from stream_learner.adapters.record_errors import error_in_state
from stream_learner.adapters.rocksdb.database import HasParts, StoreParts, explained
from stream_learner.adapters.rocksdb.layout import HEAD, VERSION, pieces_of
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots.checkpoint_copy import CopyHead
from stream_learner.core.snapshots.records import Stamp, VersionRecord, decode
from stream_learner.errors import StateDamaged

LINEAGE = b"lineage"
HOLD_TRIES = 100
BATCH_BYTES = 4 << 20
NOTED_COPIES = 2


class PieceId(NamedTuple):
    """Names one piece of a checkpoint: its shard, and its key in the column family of that shard."""

    shard: int
    key: bytes


@dataclass(frozen=True, slots=True)
class Lineage:
    """A state directory's own random name, 16 hex digits; and the attempts of the last copies that it made, or was
    about to make."""

    name: str
    attempts: tuple[int, ...] = ()

    @classmethod
    def new(cls) -> Lineage:
        """Another one than every other."""
        return cls(secrets.token_hex(8))

    def made(self, copy: CopyHead | None) -> bool:
        """Whether a copy is of this directory as it is, and not of one that it was put back from."""
        return copy is not None and copy.lineage == self.name and copy.stamp.attempt in self.attempts


def read_lineage(store: HasParts) -> Lineage | None:
    """What the directory says of itself, None where nothing was ever copied from it."""
    parts = store.parts
    with explained(parts.path):
        found = parts.db.get(LINEAGE)
    if found is None:
        return None
    try:
        noted = orjson.loads(found)
        return Lineage(str(noted["lineage"]), tuple(int(attempt) for attempt in noted["attempts"]))
    except (ValueError, KeyError, TypeError) as error:
        raise StateDamaged(f"{parts.path}: the note of the lineage cannot be read ({error})") from error


def note_lineage(store: HasParts, lineage: Lineage) -> None:
    """Note it, without waiting for the disk: without the note the next copy is a whole one. Raises DiskFull."""
    parts = store.parts
    noted = {"lineage": lineage.name, "attempts": list(lineage.attempts[-NOTED_COPIES:])}
    with explained(parts.path):
        parts.db.put(LINEAGE, orjson.dumps(noted))


class HeldCheckpoint:
    """The last checkpoint committed to a store, held as it is until `close`. Use as a context manager.

    `pieces` are the places of its pieces, in the order of shards and keys.
    """

    def __init__(self, store: HasParts) -> None:
        """Raises LookupError where the store has no checkpoint yet; StateDamaged."""
        self._parts = store.parts
        with explained(self._parts.path):
            self._head, self._versions = self._hold()
        self._records = [_version(self._parts.path, version) for version in self._versions]
        self.pieces: list[PieceId] = [
            PieceId(shard, key) for shard, record in enumerate(self._records) for key in sorted(pieces_of(record.state))
        ]

    def _hold(self) -> tuple[bytes, tuple[bytes, ...]]:
        """Take snapshots until those of all families are of one checkpoint: a commit may come between two of them."""
        for _ in range(HOLD_TRIES):
            self._snapshots = [self._parts.db.snapshot(), *(family.snapshot() for family in self._parts.families)]
            first, *shards = self._snapshots
            try:
                head, versions = first[HEAD], tuple(snapshot[VERSION] for snapshot in shards)
            except KeyError:
                raise LookupError("no checkpoint yet") from None
            stamps = {_stamp(self._parts.path, record)._replace(shard=0) for record in (head, *versions)}
            if len(stamps) == 1:
                return head, versions
        raise StateDamaged(f"{self._parts.path}: its shards are not of the checkpoint of the head")

    @property
    def tick(self) -> int:
        """The tick that it is of."""
        return self._records[0].stamp.version

    def as_copy(self, lineage: str) -> CopyHead:
        """What makes it complete once its pieces are copied, under a new attempt."""
        stamp = self._records[0].stamp._replace(attempt=secrets.randbits(63))
        return CopyHead(stamp, lineage, dict(self._parts.identity), self._head, self._versions)

    def read(self, place: PieceId) -> bytes:
        """The bytes of a piece. Raises StateDamaged."""
        shard, key = place
        with explained(self._parts.path):
            try:
                value: bytes = self._snapshots[1 + shard][key]
            except KeyError:
                raise StateDamaged(f"{self._parts.path}: piece {key.hex()} of the checkpoint is missing") from None
        return value

    def close(self) -> None:
        """Let go of what RocksDB keeps for it."""
        self._snapshots = []

    def __enter__(self) -> HeldCheckpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class WriteBack:
    """Writes a copy into a new directory. At most about 4 MiB wait in memory."""

    def __init__(self, parts: StoreParts) -> None:
        """Into a store without a checkpoint; it must be opened again afterwards."""
        self._parts = parts
        self._batch, self._size = WriteBatch(raw_mode=True), 0

    def put(self, place: PieceId, value: bytes) -> None:
        """Write a piece; the last value given for a place counts. Raises DiskFull."""
        shard, key = place
        self._batch.put(key, value, self._parts.handles[shard])
        self._size += len(value)
        if self._size >= BATCH_BYTES:
            self._write()

    def _write(self, *, durable: bool = False) -> None:
        self._parts.write(self._batch, durable=durable)
        self._batch, self._size = WriteBatch(raw_mode=True), 0

    def commit(self, copy: CopyHead) -> None:
        """Make the checkpoint count; when this returns it survives a power failure. Raises DiskFull."""
        self._batch.put(HEAD, copy.head)
        for handle, version in zip(self._parts.handles, copy.versions, strict=True):
            self._batch.put(VERSION, version, handle)
        self._write(durable=True)


def piece_ids_of(copy: CopyHead) -> list[PieceId]:
    """The places of the pieces that a copy consists of. Raises RecordError."""
    return [
        PieceId(shard, key) for shard, record in enumerate(copy.version_records()) for key in pieces_of(record.state)
    ]


def _stamp(path: Path, value: bytes) -> Stamp:
    try:
        return decode(None, value).stamp
    except RecordError as error:
        raise error_in_state(error, path) from error


def _version(path: Path, value: bytes) -> VersionRecord:
    record = decode(None, value)
    if not isinstance(record, VersionRecord):
        raise StateDamaged(f"{path}: a {type(record).__name__} where a VersionRecord should be")
    return record
