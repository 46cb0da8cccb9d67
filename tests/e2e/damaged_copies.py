"""Damage of a copied checkpoint and of snapshots, for the audit to find: edits of the records of both topics.

Checksums are made right unless they are the damage. It must never touch a topic.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from stream_learner.core.snapshots.checkpoint_copy import decode_copy, encode_copy
from stream_learner.core.snapshots.records import (
    DeltaRecord,
    PageRecord,
    VersionRecord,
    decode,
    encode_delta,
    encode_head,
    encode_page,
    encode_version,
)

Edit = Callable[[int, bytes, bytes | None], list[tuple[bytes, bytes | None]]]


def pieces(change: Callable[[bytes], bytes]) -> Edit:
    """Every piece changed."""
    return lambda shard, key, value: [(key, change(value) if value and key.startswith(b"piece/") else value)]


def heads(change: Callable[[bytes], bytes]) -> Edit:
    """Every head changed."""
    return lambda shard, key, value: [(key, change(value) if value and key == b"head" else value)]


def with_head(**changes: Any) -> Edit:
    """Another head of the copy: other values of its identity, or what a function makes of what the learner noted."""

    def change(value: bytes) -> bytes:
        copy = decode_copy(value)
        record = copy.head_record()
        noted = dict(record.content["head"])
        for name, make in changes.items():
            if name in noted:
                noted[name] = make(noted[name])
        identity = {**copy.identity, **{name: value for name, value in changes.items() if name in copy.identity}}
        head = encode_head(record.stamp, {**record.content, "head": noted})
        return encode_copy(replace(copy, identity=identity, head=head))

    return heads(change)


def moved(positions: dict[str, Any]) -> dict[str, Any]:
    """The position of partition 0 a record further."""
    offset, attempt, last_tick = positions["0"]
    return {**positions, "0": [offset + 1, attempt, last_tick]}


def unknown_mark(positions: dict[str, Any]) -> dict[str, Any]:
    """That of partition 0 after a mark that there never was."""
    offset, attempt, last_tick = positions["0"]
    return {**positions, "0": [offset, attempt ^ 1, last_tick]}


def beginning(positions: dict[str, Any]) -> dict[str, Any]:
    """That of partition 0 at the beginning of the log: its ticks would be folded twice."""
    return {**positions, "0": [0, 0, -1]}


def flipped(value: bytes) -> bytes:
    """A bit of the last byte turned."""
    return value[:-1] + bytes([value[-1] ^ 1])


def at_another_sequence(value: bytes) -> bytes:
    """A page or delta of a checkpoint that never was."""
    record = decode(None, value)
    stamp = record.stamp._replace(sequence=record.stamp.sequence + 1000)
    if isinstance(record, PageRecord):
        return encode_page(stamp, record.prefix, record.rows)
    assert isinstance(record, DeltaRecord)
    return encode_delta(stamp, record.part, record.parts, record.rows)


def other_digest(value: bytes | None) -> bytes:
    """A version record with another digest."""
    record = decode(None, value or b"")
    assert isinstance(record, VersionRecord)
    return encode_version(record.stamp, record.digest ^ 1, record.records, record.state)


def foreign_digest(shard: int, key: bytes, value: bytes | None) -> list[tuple[bytes, bytes | None]]:
    """Another digest, on which head and shards agree."""

    def learner(noted: dict[str, Any]) -> dict[str, Any]:
        return {**noted, "digest": f"{int(noted['digest'], 16) ^ 1:016x}"}

    def versions(value: bytes) -> bytes:
        copy = decode_copy(value)
        return encode_copy(replace(copy, versions=tuple(other_digest(version) for version in copy.versions)))

    ((_, changed),) = with_head(learner=learner)(shard, key, value)
    return heads(versions)(shard, key, changed)


COPIES: dict[str, tuple[Edit, str]] = {
    "no pieces": (lambda shard, key, value: [] if key.startswith(b"piece/") else [(key, value)], "is missing"),
    "a flipped byte": (pieces(flipped), "checksum"),
    "a piece of another checkpoint": (pieces(at_another_sequence), "rows of another place"),
    "a flipped byte in the head": (heads(flipped), "checksum"),
    "another model's": (with_head(model="another"), "model is 'another' there"),
    "another log's": (with_head(log_topic_id=lambda topic_id: "00"), "the topic was deleted and made anew"),
    "a position further": (with_head(positions=moved), "not right before it"),
    "a position after an unknown mark": (with_head(positions=unknown_mark), "is not accepted in the log"),
    "a position that comes too early": (with_head(positions=beginning), "it leaves out the mark at offset"),
    "positions that say nothing": (with_head(positions=lambda positions: ["0"]), "has positions of 0 partitions"),
    "another digest": (
        with_head(learner=lambda noted: {**noted, "digest": "00"}),
        "its head and shards have the digests",
    ),
}
"""Each damage of `<model>.checkpoints`, and what a finding says of it."""

SNAPSHOTS: dict[str, tuple[Edit, str]] = {
    "a flipped byte": (lambda shard, key, value: [(key, value and flipped(value))], "checksum"),
    "a page less": (lambda shard, key, value: [] if key.startswith(b"page/") else [(key, value)], "was not read"),
    "another digest in one shard": (
        lambda shard, key, value: [(key, other_digest(value) if (shard, key) == (1, b"version") else value)],
        "in another shard",
    ),
    "a version twice": (
        lambda shard, key, value: [(key, value)] * (1 + (key == b"version" and shard == 1)),
        "comes after",
    ),
}
"""Each damage of `<model>.snapshots`, and a part of the finding about it."""
