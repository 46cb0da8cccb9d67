"""Checkpoints read slowly, from the tables in the docstrings of `adapters/rocksdb/layout` and
`core/snapshots/checkpoint_copy`.

Results are plain values, or the name of the error. This file must never import the code under test.
"""

from __future__ import annotations

import base64
import json
import struct
from collections.abc import Mapping
from typing import Any, NamedTuple

from proofs.fuzz.slow_snapshots import DAMAGED, DELTA, HEAD, NEWER, PAGE, VERSION, Bad, SlowRecord, read

Entries = Mapping[tuple[int, bytes], bytes]
"""Values by column family (0: the default one, 1 and more: the shards) and key."""


class SlowCheckpoint(NamedTuple):
    """tick, digest, head; rows: (touched, columns) by key."""

    tick: int
    digest: int
    head: Any
    rows: dict[int, tuple[int, bytes]]


class SlowCopy(NamedTuple):
    """The content of the head of a copy. versions: the stamps of the records, None for records of another
    checkpoint."""

    stamp: tuple[int, ...]
    lineage: str
    identity: Any
    head: bytes
    versions: tuple[bytes, ...]


def checkpoint(entries: Entries, shards: int, ncols: int) -> SlowCheckpoint | None:
    """The checkpoint in a state directory, None without one. Raises Bad, whose name is DAMAGED or NEWER."""
    if (0, b"head") not in entries:
        return None
    head = _record(HEAD, b"head", entries[0, b"head"])
    content = head.about
    _need(isinstance(content.get("head"), dict))
    versions = [_record(VERSION, b"version", entries.get((1 + shard, b"version"), b"")) for shard in range(shards)]
    for shard, version in enumerate(versions):
        _need(version.stamp == (shard, *head.stamp[1:]) and shards == head.stamp[1])
    rows: dict[int, tuple[int, bytes]] = {}
    for shard, version in enumerate(versions):
        rows.update(_rows(entries, shard, version, ncols))
    return SlowCheckpoint(head.stamp[4], versions[0].about[0], content["head"], rows)


def _record(kind: int, key: bytes | None, value: bytes) -> SlowRecord:
    try:
        record = read(key, value)
    except Bad as bad:
        raise Bad(NEWER if str(bad) == NEWER else DAMAGED) from None
    _need(record.kind == kind)
    return record


def _need(holds: bool) -> None:
    if not holds:
        raise Bad(DAMAGED)


def _rows(entries: Entries, shard: int, version: SlowRecord, ncols: int) -> dict[int, tuple[int, bytes]]:
    """The rows of a shard: those of its pages, with the changes of every later delta."""
    _, _, pages, slots = version.about
    sequence, found = version.stamp[2], dict[int, tuple[int, bytes]]()

    def piece(kind: int, written: int, tail: bytes) -> SlowRecord:
        value = entries.get((1 + shard, b"p" + struct.pack(">Q", written) + tail))
        _need(value is not None)
        record = _record(kind, None, value or b"")
        stamp = record.stamp
        wide = all(len(row) == 3 and len(row[2]) == 8 * ncols for row in record.rows)
        _need((stamp[0], stamp[2]) == (shard, written) and wide and (value or b"")[7] == ncols)
        return record

    deltas = []
    for written in range(max(1, sequence - len(slots) + 1), sequence + 1):
        for part in range(slots[written % len(slots)]):
            record = piece(DELTA, written, b"d" + struct.pack(">I", part))
            _need(record.about[0] == part)
            deltas.append((written, record))
    for first, bits, written in pages:
        record = piece(PAGE, written, b"p" + struct.pack(">QB", first, bits))
        _need(record.about == (first, bits))
        last = first + (1 << (64 - bits)) - 1
        found.update({key: (touched, columns) for key, touched, columns in record.rows})
        for since, delta in deltas:
            if since > written:
                found.update({key: (t, columns) for key, t, columns in delta.rows if first <= key <= last})
    return found


def copy_head(value: bytes) -> SlowCopy:
    """The head of a copy. Raises Bad."""
    record = read(None, value)
    _need(record.kind == HEAD)
    said = record.about
    _need(isinstance(said.get("copy_format"), (int, float)))
    if said["copy_format"] > 1:
        raise Bad(NEWER)
    _need(type(said.get("lineage")) is str and type(said.get("identity")) is dict)
    texts = [said.get("head"), *_list(said.get("versions"))]
    _need(all(type(text) is str for text in texts))
    try:
        head, *versions = [base64.b64decode(text, validate=True) for text in texts]
    except ValueError:
        raise Bad(DAMAGED) from None
    return SlowCopy(record.stamp, said["lineage"], said["identity"], head, tuple(versions))


def _list(value: Any) -> list[Any]:
    _need(type(value) is list)
    return list(value)


def parts_of(copy: SlowCopy) -> tuple[Any, list[Any]]:
    """The content of the store's head in a copy, and the pages and slots of each shard. Raises Bad."""
    versions = [read(None, value) for value in copy.versions]
    _need(all(record.kind == VERSION for record in versions))
    head = read(None, copy.head)
    _need(head.kind == HEAD)
    shards, (sequence, tick) = len(versions), (copy.stamp[2], copy.stamp[4])
    wanted = [(shard, shards, sequence, 0, tick) for shard in (0, *range(shards))]
    _need(copy.stamp[0] == 0 and [head.stamp, *(record.stamp for record in versions)] == wanted)
    return json.loads(json.dumps(head.about)), [(record.about[2], record.about[3]) for record in versions]
