"""A committed checkpoint held still while it is copied, and a copy written back into a new state directory.

Another thread than the store's may use all of this: RocksDB allows it. A `HeldCheckpoint` reads through snapshots of
RocksDB, so the fold may go on to write and delete; what it deletes stays on disk until the snapshots are released. The
lineage names the state directory, and so tells whether it made a copy itself.

| a crash while writing back | leaves                                                                  |
|----------------------------|-------------------------------------------------------------------------|
| before `commit`            | pieces that no head names: the next open deletes them, the directory is new |
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
    """A state directory's random name, 16 hex digits, and the attempts of the last copies that it made or began."""

    name: str
    attempts: tuple[int, ...] = ()

    @classmethod
    def new(cls) -> Lineage:
        """The lineage of a new directory, unlike every other."""
        return cls(secrets.token_hex(8))

    def made(self, copy: CopyHead | None) -> bool:
        """Whether this directory made the copy itself. It did not if it was restored from the copy."""
        return copy is not None and copy.lineage == self.name and copy.stamp.attempt in self.attempts


def read_lineage(store: HasParts) -> Lineage | None:
    """The lineage of a directory; None if nothing was ever copied from it. Raises StateDamaged."""
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
    """Store the lineage, without waiting for the disk: if it is lost, the next copy sends all pieces.

    Raises DiskFull.
    """
    parts = store.parts
    noted = {"lineage": lineage.name, "attempts": list(lineage.attempts[-NOTED_COPIES:])}
    with explained(parts.path):
        parts.db.put(LINEAGE, orjson.dumps(noted))


class HeldCheckpoint:
    """The last checkpoint committed to a store, readable as it is until `close`. Use as a context manager.

    `pieces` are its pieces, ordered by shard and key.
    """

    def __init__(self, store: HasParts) -> None:
        """Raises LookupError if the store has no checkpoint yet; StateDamaged."""
        self._parts = store.parts
        with explained(self._parts.path):
            self._head, self._versions = self._hold()
        self._records = [_version(self._parts.path, version) for version in self._versions]
        self.pieces: list[PieceId] = [
            PieceId(shard, key) for shard, record in enumerate(self._records) for key in sorted(pieces_of(record.state))
        ]

    def _hold(self) -> tuple[bytes, tuple[bytes, ...]]:
        """Take a snapshot of each family.

        Begin again if they are of different checkpoints: a commit came in between.
        """
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
        return self._records[0].stamp.version

    def as_copy(self, lineage: str) -> CopyHead:
        """The head of a copy of it, with a new attempt. A copy is complete once its pieces and this head are there."""
        stamp = self._records[0].stamp._replace(attempt=secrets.randbits(63))
        return CopyHead(stamp, lineage, dict(self._parts.identity), self._head, self._versions)

    def read(self, piece: PieceId) -> bytes:
        """The bytes of a piece. Raises StateDamaged."""
        shard, key = piece
        with explained(self._parts.path):
            try:
                value: bytes = self._snapshots[1 + shard][key]
            except KeyError:
                raise StateDamaged(f"{self._parts.path}: piece {key.hex()} of the checkpoint is missing") from None
        return value

    def close(self) -> None:
        """Release the snapshots of RocksDB."""
        self._snapshots = []

    def __enter__(self) -> HeldCheckpoint:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()


class WriteBack:
    """Writes a copy into a new state directory. At most about 4 MiB wait in memory."""

    def __init__(self, parts: StoreParts) -> None:
        """parts: of a store without a checkpoint. It must be closed and opened again afterwards."""
        self._parts = parts
        self._batch, self._size = WriteBatch(raw_mode=True), 0

    def put(self, piece: PieceId, value: bytes) -> None:
        """Write a piece; if a piece is given twice, the last value counts. Raises DiskFull."""
        shard, key = piece
        self._batch.put(key, value, self._parts.handles[shard])
        self._size += len(value)
        if self._size >= BATCH_BYTES:
            self._write()

    def _write(self, *, durable: bool = False) -> None:
        self._parts.write(self._batch, durable=durable)
        self._batch, self._size = WriteBatch(raw_mode=True), 0

    def commit(self, copy: CopyHead) -> None:
        """Make the checkpoint count. When this returns it survives a power failure. Raises DiskFull."""
        self._batch.put(HEAD, copy.head)
        for handle, version in zip(self._parts.handles, copy.versions, strict=True):
            self._batch.put(VERSION, version, handle)
        self._write(durable=True)


def piece_ids_of(copy: CopyHead) -> list[PieceId]:
    """The pieces that a copy consists of. Raises RecordError."""
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
