"""Records of the training log, read slowly: from the tables in the docstrings of `record_header`, `examples` and
`mark_codec`, with `struct` and lists.

In: the bytes of a record. Out: what it holds as plain tuples, or the name of the error that it is.
This file must never import the code under test, nor be made to agree with it without a sentence in those tables.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from typing import Any, NamedTuple

FOREIGN, NEWER, DAMAGED = "ForeignRecord", "NewerVersion", "DamagedRecord"
EXAMPLES, MARK, CODES = 1, 2, 3


class Bad(Exception):
    """The record must not be used; the message is the name of the error it is."""


NEWEST = {EXAMPLES: 1, MARK: 2, CODES: 1}
MOST_STEPS = 64


class Header(NamedTuple):
    """The first 40 bytes."""

    version: int
    kind: int
    flags: int
    partition: int
    sequence: int
    attempt: int
    tick: int


class SlowMark(NamedTuple):
    """A mark. numbers: first tick, next impression, first click, click cursor, then the fourteen counts; in version 1
    no impression is late. resume: None, or topic ids, fingerprints of join, impressions and clicks, log time, dedupe,
    log time, number of codes, partitions, steps; in version 1 without the latter two fingerprints and without steps.
    codes: those inside. features: their fingerprint, 0 in version 1."""

    header: Header
    predecessor: tuple[int, int]
    numbers: tuple[int, ...]
    resume: tuple[Any, ...] | None
    codes: list[int]
    ahead: int
    features: int


class SlowExamples(NamedTuple):
    """Examples, column by column."""

    header: Header
    log_time_ms: list[int]
    id_hash: list[int]
    label: tuple[bytes, ...]
    weight: tuple[bytes, ...]
    keys: list[int]
    indices: list[int]
    row_len: list[int]
    positions: list[int]
    values: tuple[bytes, ...]


def header_of(value: bytes) -> Header:
    """The header. Raises Bad."""
    if len(value) < 6 or value[:4] != b"SLTL":
        raise Bad(FOREIGN)
    version = int.from_bytes(value[4:6], "little")
    if version > max(NEWEST.values()):
        raise Bad(NEWER)
    if version < 1 or len(value) < 40:
        raise Bad(DAMAGED)
    if int.from_bytes(value[32:36], "little") != zlib.crc32(value[:32]):
        raise Bad(DAMAGED)
    _, _, kind, flags, partition, sequence, attempt, tick = struct.unpack("<4sHBBIIQq", value[:32])
    if kind not in NEWEST:
        raise Bad(DAMAGED)
    if version > NEWEST[kind]:
        raise Bad(NEWER)
    return Header(version, kind, flags, partition, sequence, attempt, tick)


def read(value: bytes) -> SlowExamples | SlowMark | list[int]:
    """What a record holds; codes as a list. Raises Bad."""
    header = header_of(value)
    return body_of(header, value)


def body_of(header: Header, value: bytes) -> SlowExamples | SlowMark | list[int]:
    """What a record of this header holds. Raises Bad."""
    if int.from_bytes(value[36:40], "little") != zlib.crc32(value[40:]):
        raise Bad(DAMAGED)
    try:
        if header.kind == EXAMPLES:
            return _examples(header, value)
        if header.kind == MARK:
            return _mark(header, value)
        (count,) = struct.unpack("<Q", value[40:48])
        return _codes(value[48:], count)
    except struct.error:
        raise Bad(DAMAGED) from None


def _need(holds: bool) -> None:
    if not holds:
        raise Bad(DAMAGED)


class _Cursor:
    """Goes through the arrays of a record."""

    def __init__(self, value: bytes, at: int) -> None:
        self._value, self.at = value, at

    def raw(self, size: int, count: int) -> tuple[bytes, ...]:
        end = self.at + size * count
        _need(end <= len(self._value))
        places = range(self.at, end, size)
        self.at = end
        return tuple(self._value[place : place + size] for place in places)

    def numbers(self, size: int, count: int) -> list[int]:
        return [int.from_bytes(raw, "little") for raw in self.raw(size, count)]


def _examples(header: Header, value: bytes) -> SlowExamples:
    n, k, m, v, first_ms = struct.unpack("<IIIIq", value[40:64])
    _need(header.flags in (0, 1, 2, 3) and n >= 1)
    weighted, soft = header.flags & 1, header.flags & 2
    cursor = _Cursor(value, 64)
    keys, ids, values = cursor.numbers(8, k), cursor.numbers(8, n), cursor.raw(8, v)
    weight = cursor.raw(8, n) if weighted else (struct.pack("<d", 1.0),) * n
    label = cursor.raw(8, n) if soft else ()
    after, positions = cursor.numbers(4, n), cursor.numbers(4, v)
    indices, lengths = cursor.numbers(2, m), cursor.numbers(2, n)
    if not soft:
        hard = cursor.numbers(1, n)
        _need(set(hard) <= {0, 1})
        label = tuple(struct.pack("<d", x) for x in hard)
    _need(cursor.at == len(value))
    _need(0 not in keys and all(index < k for index in indices) and sum(lengths) == m)
    _need(all(a < b for a, b in itertools.pairwise(positions)) and all(p < m for p in positions))
    _need(after[0] == 0 and after == sorted(after))
    times = [first_ms + ms for ms in after]
    _need(times[-1] < 2**63)
    return SlowExamples(header, times, ids, label, weight, keys, indices, lengths, positions, values)


def _mark(header: Header, value: bytes) -> SlowMark:
    old = header.version == 1
    _need(header.flags in ((0, 1, 3) if old else (0, 1, 3, 5, 7)))
    resume_at, features = (192, 0) if old else (208, *struct.unpack("<Q", value[200:208]))
    counts = 13 if old else 14
    pred_attempt, pred_tick, *numbers = struct.unpack(f"<Qq{4 + counts}q", value[40 : 56 + 8 * (4 + counts)])
    if old:
        numbers.insert(10, 0)
    resume, codes, ahead = None, [], 0
    if header.flags:
        resume, codes, ahead = _resume(header, value, resume_at)
    else:
        _need(len(value) == resume_at)
    first_tick, _, first_click, cursor = numbers[:4]
    _need(0 <= first_tick <= header.tick and pred_tick >= -1)
    _need(min(numbers) >= 0 and first_click <= cursor)
    _need(len(codes) + ahead <= cursor - first_click)
    return SlowMark(header, (pred_attempt, pred_tick), tuple(numbers), resume, codes, ahead, features)


def _resume(header: Header, value: bytes, at: int) -> tuple[tuple[Any, ...], list[int], int]:
    """The resume point of a mark: its fields, the codes inside, how many lie ahead."""
    ids, at = struct.unpack("<16s16s", value[at : at + 32]), at + 32
    fingerprints = struct.unpack("<Q", value[at : at + 8])
    if header.version > 1:
        fingerprints = struct.unpack("<QQQ", value[at : at + 24])
    at += 8 * len(fingerprints)
    *times, count, partitions = struct.unpack("<qqqQI", value[at : at + 36])
    at += 36
    steps: list[tuple[int, ...]] = []
    if header.version > 1:
        (many,) = struct.unpack("<I", value[at : at + 4])
        _need(many <= MOST_STEPS)
        steps = [struct.unpack("<qq", value[place : place + 16]) for place in range(at + 4, at + 4 + 16 * many, 16)]
        at += 4 + 16 * many
    inside = 0 if header.flags & 2 else count
    rest = (*fingerprints, 0, 0)[:3]
    return (*ids, *rest, *times, count, partitions, tuple(steps)), _codes(value[at:], inside), count - inside


def _codes(packed: bytes, count: int) -> list[int]:
    """Two bits each, the first in the lowest; zeros fill the last byte."""
    _need(len(packed) == -(-count // 4))
    every = [byte >> shift & 3 for byte in packed for shift in (0, 2, 4, 6)]
    _need(not any(every[count:]))
    return every[:count]
