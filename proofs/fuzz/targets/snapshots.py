"""Records of the snapshots and of checkpoints, against a decoder written from their layout.

Most damaged records get a right checksum, so that they are not all refused there.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from proofs.fuzz import slow_snapshots
from proofs.fuzz.guard import GuardedBuffer, Side
from proofs.fuzz.mutate import json_bytes_mutated, mutated, number_set
from proofs.fuzz.slow_snapshots import Bad, SlowRecord
from proofs.fuzz.target import Target, Wrong, pack, unpack
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots import records as snapshots
from stream_learner.core.snapshots.rows import AnyRows, WeightRows

_HEADER = 64
_JSON_KINDS = (slow_snapshots.MODEL, slow_snapshots.HEAD)


class SnapshotRecords(Target):
    """Models, versions, deltas, pages and heads."""

    name = "snapshot-records"
    batch_inputs = 200

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._pairs = [tuple(unpack(data)[:2]) for data in corpus]
        self._values = [value for _, value in self._pairs]
        self._buffers: dict[Side, GuardedBuffer] = {"end": GuardedBuffer("end"), "begin": GuardedBuffer("begin")}

    def make(self, rng: Random) -> bytes:
        key, value = rng.choice(self._pairs)
        if rng.random() < 0.1:
            key = rng.choice((b"", mutated(rng, key, [other for other, _ in self._pairs])))
        return pack((key, damaged_snapshot(rng, value, self._values)))

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(unpack(data), side) for data in inputs)

    def _check(self, parts: list[bytes], side: Side) -> bool:
        key, value = [*parts, b"", b""][:2]
        named = key if value[:1] != b"\x00" and key else None
        wanted = slowly(named, value)
        place = memoryview(self._buffers[side].put(value, align=16)).toreadonly()
        for memory in (value, place):
            got = fast(named, memory)  # type: ignore[arg-type]
            if got != wanted:
                raise Wrong(f"{key!r}: {value[:200].hex()} is {str(got)[:300]}, not {str(wanted)[:300]}")
        return not isinstance(wanted, str)


def slowly(key: bytes | None, value: bytes) -> SlowRecord | str:
    """The result of the slow decoder for a record."""
    try:
        return slow_snapshots.read(key, value)
    except Bad as bad:
        return str(bad)


def fast(key: bytes | None, value: bytes) -> SlowRecord | str:
    """The result of the decoder under test for a record, in the terms of the slow one."""
    try:
        found = snapshots.decode(key, value)
    except RecordError as error:
        return type(error).__name__
    stamp = tuple(found.stamp)
    if isinstance(found, (snapshots.ModelRecord, snapshots.HeadRecord)):
        kind = slow_snapshots.MODEL if isinstance(found, snapshots.ModelRecord) else slow_snapshots.HEAD
        return SlowRecord(kind, stamp, found.content, [])
    if isinstance(found, snapshots.VersionRecord):
        pages = tuple((prefix.bits, prefix.nbits, written) for prefix, written in found.state.pages)
        about: Any = (found.digest, found.records, pages, tuple(found.state.slot_parts.tolist()))
        return SlowRecord(slow_snapshots.VERSION, stamp, about, [])
    rows = rows_of(found.rows)
    if isinstance(found, snapshots.DeltaRecord):
        return SlowRecord(slow_snapshots.DELTA, stamp, (found.part, found.parts), rows)
    return SlowRecord(slow_snapshots.PAGE, stamp, (found.prefix.bits, found.prefix.nbits), rows)


def rows_of(rows: AnyRows) -> list[tuple[Any, ...]]:
    """Rows in the terms of the slow decoder."""
    keys = rows.keys.tolist()
    if isinstance(rows, WeightRows):
        return [(key, rows.weights[i : i + 1].tobytes()) for i, key in enumerate(keys)]
    columns = np.ascontiguousarray(rows.columns)
    return [(key, int(rows.touched[i]), columns[i].tobytes()) for i, key in enumerate(keys)]


def sealed_anew(value: bytes) -> bytes:
    """The record with its checksum corrected."""
    if len(value) < 12:
        return value
    crc = zlib.crc32(value[:8] + value[12:])
    return value[:8] + crc.to_bytes(4, "little") + value[12:]


def damaged_snapshot(rng: Random, value: bytes, others: Sequence[bytes]) -> bytes:
    """A record with bytes, numbers or JSON changed; nine of ten have the right checksum."""
    kind = rng.random()
    if kind < 0.3:
        value = mutated(rng, value, others)
    elif kind < 0.6 or len(value) < _HEADER:
        for _ in range(rng.choice((1, 1, 2))):
            value = number_set(rng, value)
    elif value[6] in _JSON_KINDS:
        body = json_bytes_mutated(rng, value[_HEADER:])
        value = value[:12] + len(body).to_bytes(4, "little") + value[16:_HEADER] + body
    else:
        header, body = bytearray(value[:_HEADER]), value[_HEADER:]
        if kind < 0.8:
            at = rng.choice((7, 12, 16, 18, 20, 24, 28))
            header[at] = (header[at] + rng.choice((-1, 1, 1, 2))) % 256
            by = rng.choice((-24, -17, -12, -8, -4, -1, 4, 8, 12, 17, 24))
            body = body[:by] if by < 0 else body + bytes(rng.randrange(256) for _ in range(by))
        else:
            body = number_set(rng, body)
        value = bytes(header) + body
    return sealed_anew(value) if rng.random() < 0.9 else value
