"""Records of the training log, against a decoder written from their layout.

Most damaged records get a right checksum, so that they are not all refused there.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from dataclasses import astuple
from random import Random
from typing import Any

import numpy as np

from proofs.fuzz import slow_log
from proofs.fuzz.guard import GuardedBuffer, Side
from proofs.fuzz.mutate import mutated, number_set
from proofs.fuzz.slow_log import Bad, Header, SlowExamples, SlowMark, SlowSkip
from proofs.fuzz.target import Target, Wrong
from stream_learner.core.errors import RecordError
from stream_learner.core.log.examples import ExampleRecord, decode, encode_examples, to_batch
from stream_learner.core.log.header import HEADER_BYTES
from stream_learner.core.log.marks import Mark
from stream_learner.core.log.skips import Skip

_BODY_COUNTS = 40, 44, 48, 52, 64, 72, 300
"""Offsets of counts in the body: the first four of examples and codes, the next of a bound on fields, the last of a
resume point."""


class LogRecords(Target):
    """Examples, marks, codes."""

    name = "log-records"
    batch_inputs = 200

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._buffers: dict[Side, GuardedBuffer] = {"end": GuardedBuffer("end"), "begin": GuardedBuffer("begin")}

    def make(self, rng: Random) -> bytes:
        return damaged_record(rng, rng.choice(self.corpus), self.corpus)

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(value, side) for value in inputs)

    def _check(self, value: bytes, side: Side) -> bool:
        wanted = slowly(value)
        got = self._read(value, side)
        if got != wanted:
            raise Wrong(f"{value[:200].hex()} is {str(got)[:300]}, not {str(wanted)[:300]}")
        return not isinstance(wanted, str)

    def _read(self, value: bytes, side: Side) -> Any:
        """Decode the record in ordinary memory and at the edge of guarded memory."""
        found = [fast(value), fast(memoryview(self._buffers[side].put(value, align=16)).toreadonly())]  # type: ignore[arg-type]
        if found[0] != found[1]:
            raise Wrong(f"{value[:200].hex()} is something else at another place")
        return found[0]


def fast(value: bytes) -> Any:
    """The result of the decoder under test for a record, in the terms of the slow one."""
    try:
        found = decode(value)
    except RecordError as error:
        return type(error).__name__
    if isinstance(found, ExampleRecord):
        _check_usable(found)
        return _plain_examples(found, value)
    if isinstance(found, Mark):
        return plain_mark(found)
    if isinstance(found, Skip):
        return SlowSkip(*astuple(found))
    return found.tolist()


def slowly(value: bytes) -> Any:
    """The result of the slow decoder for a record."""
    try:
        found = slow_log.read(value)
    except Bad as bad:
        return str(bad)
    if isinstance(found, SlowMark):
        return found._replace(header=found.header._replace(flags=found.header.flags & ~slow_log.CODES_AHEAD))
    return found


def _header(value: bytes) -> Header:
    return Header(*struct.unpack_from("<BBIIQq", bytes(value[6:32]).ljust(26, b"\0")))


def _cells(array: np.ndarray) -> tuple[bytes, ...]:
    return tuple(array[i : i + 1].tobytes() for i in range(len(array)))


def _plain_examples(found: ExampleRecord, value: bytes) -> SlowExamples:
    flags = _header(value).flags
    own = Header(1, flags, found.partition, found.sequence, found.attempt, found.tick)
    return SlowExamples(
        own,
        found.log_time_ms.tolist(),
        found.id_hash.tolist(),
        _cells(found.label),
        _cells(found.weight),
        found.keys.tolist(),
        found.indices.tolist(),
        found.row_len.tolist(),
        found.positions.tolist(),
        _cells(found.values),
        None if found.bound is None else tuple(found.bound),
        found.counted.tolist(),
    )


def plain_mark(mark: Mark) -> SlowMark:
    """A mark in the terms of the slow decoder, without the flag for codes ahead, which the decoded mark does not
    keep."""
    resume = mark.resume
    fields: tuple[Any, ...] | None = None
    if resume is not None:
        fields = (
            resume.impression_topic_id,
            resume.click_topic_id,
            resume.join_fingerprint,
            resume.impressions_fingerprint,
            resume.clicks_fingerprint,
            resume.impression_log_time,
            resume.dedupe_from,
            resume.click_log_time,
            resume.click_usual_time,
            resume.detached or len(resume.codes),
            resume.partitions,
            tuple(number for step in resume.steps for number in step),
            resume.rules,
        )
    numbers = (mark.first_tick, mark.next_impression, mark.first_click, mark.click_cursor)
    counts = (*mark.counts.impressions, *mark.counts.clicks)
    return SlowMark(
        Header(
            2,
            int(resume is not None) + 4 * mark.begins_anew,
            mark.partition,
            mark.records,
            mark.attempt,
            mark.last_tick,
        ),
        (mark.pred_attempt, mark.pred_tick),
        numbers + counts,
        mark.features,
        (mark.stream_tick, mark.labels_from_ms),
        fields,
        resume.codes.tolist() if resume is not None else [],
        resume.detached if resume is not None else 0,
    )


def _check_usable(found: ExampleRecord) -> None:
    """Use a record as its readers do, indices included, and encode it again: nothing may fail."""
    batch = to_batch(found)
    if len(batch.keys) != len(found.indices) or len(batch.row_start) != len(found) + 1:
        raise Wrong("columns that do not fit together")
    if len(found) <= 50:
        encode_examples(found.partition, found.tick, found.attempt, batch, bound=found.bound)


def sealed_anew(value: bytes) -> bytes:
    """The record with both checksums corrected."""
    if len(value) < HEADER_BYTES:
        return value
    head = value[:32]
    return head + struct.pack("<II", zlib.crc32(head), zlib.crc32(value[HEADER_BYTES:])) + value[HEADER_BYTES:]


def damaged_record(rng: Random, value: bytes, others: Sequence[bytes]) -> bytes:
    """A record with its bytes or numbers changed; nine of ten have right checksums."""
    kind = rng.random()
    if kind < 0.35:
        value = mutated(rng, value, others)
    elif kind < 0.75:
        for _ in range(rng.choice((1, 1, 2))):
            value = number_set(rng, value)
    else:
        value = _resized(rng, value)
    return sealed_anew(value) if rng.random() < 0.9 else value


def _resized(rng: Random, value: bytes) -> bytes:
    """The record with a count or the flags changed slightly, and its length adapted, or not."""
    changed = bytearray(value)
    if rng.random() < 0.3 and len(changed) > 7:
        changed[7] ^= rng.choice((1, 2, 3, 4))
    at = rng.choice(_BODY_COUNTS)
    if len(changed) >= at + 4:
        count = int.from_bytes(changed[at : at + 4], "little") + rng.choice((-1, 1, 1, 2))
        changed[at : at + 4] = (count % 2**32).to_bytes(4, "little")
        by = rng.choice((-16, -8, -4, -2, -1, 1, 2, 4, 8, 16))
        changed = changed[:by] if by < 0 else changed + bytes(rng.randrange(3) for _ in range(by))
    return bytes(changed)
