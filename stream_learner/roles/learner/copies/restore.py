"""Finds the last complete copy in `<model>.checkpoints`, and writes its pieces into a new state directory."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from stream_learner.adapters.kafka import KafkaSettings, OffsetQueries, PartitionReader
from stream_learner.adapters.record_errors import error_in_topic
from stream_learner.adapters.rocksdb.copy import PieceId, WriteBack, piece_ids_of
from stream_learner.adapters.rocksdb.database import StoreParts
from stream_learner.adapters.rocksdb.store import identity_differences
from stream_learner.core.errors import DamagedRecord, RecordError, Where
from stream_learner.core.snapshots.checkpoint_copy import (
    COPYING_KEY,
    HEAD_KEY,
    HEAD_SHARD,
    CopyHead,
    decode_copy,
    piece_key,
)
from stream_learner.errors import BrokerUnreachable, NewerFormat, RetryLater, StateOfAnotherModel
from stream_learner.roles.learner.checkpoints import RISING, has_learned

FIRST_LOOK_RECORDS = 8
LOOK_FURTHER = 8
READ_RECORDS = 16
READ_WAIT_S = 0.5
PATIENCE_S = 60.0
"""How long it goes on to ask brokers that do not answer, in the middle of a copy."""


@dataclass(frozen=True, slots=True)
class LastCopy:
    """The end of a topic of copies.

    head: of the last complete copy, None without one or if the head is damaged. copying: of a copy that was begun after
    it and is not complete, None without one. trouble: the damage of a head.
    """

    head: CopyHead | None
    copying: CopyHead | None
    trouble: str = ""


def read_last_copy(settings: KafkaSettings, queries: OffsetQueries, topic: str) -> LastCopy:
    """Read the end of the topic's first partition; look back further and further until there is a head.

    Raises DamagedLog for a record that is not ours, NewerFormat.
    """
    at = (topic, HEAD_SHARD)
    end, earliest = queries.last_stable_offsets([at])[at], queries.earliest([at])[at]
    look = FIRST_LOOK_RECORDS
    while True:
        start = max(end - look, earliest)
        found = {}
        for offset, key, value in committed_records(settings, topic, HEAD_SHARD, start, end):
            if key in (HEAD_KEY, COPYING_KEY):
                found[key] = (offset, value)
        if HEAD_KEY in found or start <= earliest:
            return _decoded(topic, found)
        look *= LOOK_FURTHER


def _decoded(topic: str, found: dict[bytes, tuple[int, bytes | None]]) -> LastCopy:
    copies: dict[bytes, CopyHead] = {}
    trouble = ""
    for key, (offset, value) in found.items():
        if value is None:
            continue
        try:
            copies[key] = decode_copy(value, Where(offset, HEAD_SHARD, topic))
            copies[key].version_records()
        except DamagedRecord as error:
            copies.pop(key, None)
            trouble = trouble or str(error)
        except RecordError as error:
            raise error_in_topic(error, topic, HEAD_SHARD, offset) from error
    copying = copies.get(COPYING_KEY)
    if HEAD_KEY in found and COPYING_KEY in found and found[COPYING_KEY][0] < found[HEAD_KEY][0]:
        copying = None
    return LastCopy(copies.get(HEAD_KEY), copying, trouble)


def copy_has_learned(copy: CopyHead) -> bool:
    """Whether the state that was copied holds an example."""
    return has_learned(copy.head_record().content["head"])


def check_copy_identity(topic: str, copy: CopyHead, parts: StoreParts) -> None:
    """Raise StateOfAnotherModel or NewerFormat for a copy that is not of this store's model."""
    mine, theirs = dict(parts.identity), copy.identity
    if theirs.get("store_format", 0) > mine["store_format"]:
        raise NewerFormat(f"{topic} has format {theirs['store_format']}, this program knows {mine['store_format']}")
    # Either may have been made before the training log was given partitions; the positions say of which they are.
    differing = sorted(name for name in {*mine, *theirs} - RISING if theirs.get(name) != mine.get(name))
    if differing:
        details = identity_differences(theirs, mine, differing)
        raise StateOfAnotherModel(
            f"{topic} holds copies of another model's state ({details})",
            action="Give each model its own `topics.checkpoints`." if "model" in differing else "",
        )


@dataclass(slots=True)
class RestoreProgress:
    """How far a restoration is: `pieces` of `of` are written, in `seconds` since its beginning."""

    pieces: int
    of: int
    size_bytes: int
    seconds: float


def restore_copy(
    settings: KafkaSettings,
    queries: OffsetQueries,
    topic: str,
    copy: CopyHead,
    parts: StoreParts,
    show: Callable[[RestoreProgress], None],
) -> int:
    """Write the pieces of a copy into a new state directory, and its head if the topic has all of them.

    Returns how many pieces are missing; if any is, the directory counts as empty. show: called after every piece.
    Raises DiskFull, and what reading raises.
    """
    began_s = time.monotonic()
    wanted: dict[tuple[int, bytes | None], PieceId] = {
        (piece.shard, piece_key(copy.lineage, piece.key)): piece for piece in piece_ids_of(copy)
    }
    into = WriteBack(parts)
    found: set[PieceId] = set()
    progress = RestoreProgress(0, len(wanted), 0, 0.0)
    for shard in range(len(copy.versions)):
        at = (topic, shard)
        # These ends are asked for after the head was read, so the pieces that it names lie before them.
        end, earliest = queries.last_stable_offsets([at])[at], queries.earliest([at])[at]
        for _, key, value in committed_records(settings, topic, shard, earliest, end):
            piece = wanted.get((shard, key))
            if value is None or piece is None:
                continue
            into.put(piece, value)
            found.add(piece)
            progress.pieces, progress.seconds = len(found), time.monotonic() - began_s
            progress.size_bytes += len(value)
            show(progress)
    if len(found) == len(wanted):
        into.commit(copy)
    return len(wanted) - len(found)


def committed_records(
    settings: KafkaSettings, topic: str, partition: int, start: int, end: int
) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """Offset, key and value of the committed records from `start` on, before `end`."""
    heard_s = time.monotonic()
    if start >= end:
        return
    with PartitionReader(settings, topic, partition, start, with_keys=True, name="checkpoint-copy") as reader:
        while reader.position < end:
            before = reader.position
            try:
                batch = reader.read(READ_RECORDS, READ_WAIT_S)
            except (BrokerUnreachable, RetryLater):
                if time.monotonic() - heard_s > PATIENCE_S:
                    raise
                continue
            if reader.position > before:
                heard_s = time.monotonic()
            if batch is not None:
                for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
                    if offset < end:
                        yield offset, key, value
