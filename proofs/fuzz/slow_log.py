"""Records of the training log, read slowly: from docs/formats.md and the tables in the docstrings of `record_header`,
`examples`, `marks` and `skips`, with `struct` and lists.

Results are plain tuples, or the name of the error. This file must never import the code under test, nor be changed to
agree with it without a sentence in those tables.
"""

from __future__ import annotations

import itertools
import struct
import zlib
from typing import Any, NamedTuple

FOREIGN, HEADERLESS, NEWER, DAMAGED = "ForeignRecord", "DamagedHeader", "NewerVersion", "DamagedRecord"
EXAMPLES, MARK, CODES, SKIP = 1, 2, 3, 4
VERSIONS = {EXAMPLES: (1, 4), MARK: (1, 2, 3, 4, 5), CODES: (1, 4), SKIP: (3,)}
COUNTED = 4
"""The version of examples that say which field each key is of."""
MOST_STEPS = 64
CODES_AHEAD = 2
"""A flag of marks."""


class Bad(Exception):
    """The record must not be used; the message is the name of the error."""


class Header(NamedTuple):
    """The first 40 bytes."""

    kind: int
    flags: int
    partition: int
    sequence: int
    attempt: int
    tick: int


class SlowMark(NamedTuple):
    """A mark. numbers: first tick, next impression, first click, click cursor, then the fourteen counts. features: the
    fingerprint. stream: the last tick of stream time, and the time before which impressions are late. resume: None, or
    topic ids, three fingerprints, log time, dedupe, log time, usual time, number of codes, partitions, the numbers of
    the steps one after the other, the version. codes: those inside."""

    header: Header
    predecessor: tuple[int, int]
    numbers: tuple[int, ...]
    features: int
    stream: tuple[int, int]
    resume: tuple[Any, ...] | None
    codes: list[int]
    ahead: int


class SlowExamples(NamedTuple):
    """Examples, column by column. bound: the most rows of a field and the hashes of the names of all, or None. counted:
    the number of the field of each key."""

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
    bound: tuple[int, tuple[int, ...]] | None = None
    counted: list[int] = []  # noqa: RUF012 - a named tuple


class SlowSkip(NamedTuple):
    """A skip: the partition, what it names, when and by whom it was said, and why."""

    partition: int
    offset: int
    checksum: int
    at_ms: int
    who: str
    why: str


def header_of(value: bytes) -> Header:
    """The header. Raises Bad."""
    if len(value) < 6 or value[:4] != b"SLTL":
        raise Bad(FOREIGN)
    version = int.from_bytes(value[4:6], "little")
    if version > max(max(known) for known in VERSIONS.values()):
        raise Bad(NEWER)
    if version < 1 or len(value) < 40:
        raise Bad(HEADERLESS)
    if int.from_bytes(value[32:36], "little") != zlib.crc32(value[:32]):
        raise Bad(HEADERLESS)
    _, _, kind, flags, partition, sequence, attempt, tick = struct.unpack("<4sHBBIIQq", value[:32])
    if kind not in VERSIONS or version < VERSIONS[kind][0]:
        raise Bad(DAMAGED)
    if version not in VERSIONS[kind]:
        raise Bad(NEWER)
    return Header(kind, flags, partition, sequence, attempt, tick)


def read(value: bytes) -> SlowExamples | SlowMark | list[int] | SlowSkip:
    """The content of a record; codes as a list. Raises Bad."""
    header = header_of(value)
    return body_of(header, value)


def body_of(header: Header, value: bytes) -> SlowExamples | SlowMark | list[int] | SlowSkip:
    """The content of a record with this header. Raises Bad."""
    if int.from_bytes(value[36:40], "little") != zlib.crc32(value[40:]):
        raise Bad(DAMAGED)
    try:
        version = int.from_bytes(value[4:6], "little")
        if header.kind == EXAMPLES:
            return _examples(header, value, version)
        if header.kind == MARK:
            return _mark(header, value, version)
        if header.kind == SKIP:
            return _skip(header, value)
        (count,) = struct.unpack("<Q", value[40:48])
        return _codes(value[48:], count, version)
    except struct.error:
        raise Bad(DAMAGED) from None


def _need(holds: bool) -> None:
    if not holds:
        raise Bad(DAMAGED)


def _skip(header: Header, value: bytes) -> SlowSkip:
    offset, at_ms, checksum, who, why = struct.unpack("<qqIHH", value[40:64])
    _need(offset >= 0 and len(value) == 64 + who + why)
    try:
        texts = value[64 : 64 + who].decode(), value[64 + who :].decode()
    except UnicodeDecodeError:
        raise Bad(DAMAGED) from None
    return SlowSkip(header.partition, offset, checksum, at_ms, *texts)


class _Cursor:
    """Reads the arrays of a record, one after another."""

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


def _examples(header: Header, value: bytes, version: int) -> SlowExamples:
    n, k, m, v, first_ms = struct.unpack("<IIIIq", value[40:64])
    _need(header.flags in (0, 1, 2, 3) and n >= 1)
    weighted, soft = header.flags & 1, header.flags & 2
    most_rows, fields = struct.unpack("<QQ", value[64:80]) if version == COUNTED else (0, 0)
    _need(version != COUNTED or (most_rows >= 1 and 1 <= fields <= 255))
    cursor = _Cursor(value, 80 if version == COUNTED else 64)
    keys, ids, values = cursor.numbers(8, k), cursor.numbers(8, n), cursor.raw(8, v)
    weight = cursor.raw(8, n) if weighted else (struct.pack("<d", 1.0),) * n
    label = cursor.raw(8, n) if soft else ()
    hashes = cursor.numbers(8, fields)
    after, positions = cursor.numbers(4, n), cursor.numbers(4, v)
    indices, lengths = cursor.numbers(2, m), cursor.numbers(2, n)
    if not soft:
        hard = cursor.numbers(1, n)
        _need(set(hard) <= {0, 1})
        label = tuple(struct.pack("<d", x) for x in hard)
    counted = cursor.numbers(1, k) if version == COUNTED else []
    _need(all(number <= fields for number in counted))
    _need(cursor.at == len(value))
    _need(0 not in keys and all(index < k for index in indices) and sum(lengths) == m)
    _need(all(a < b for a, b in itertools.pairwise(positions)) and all(p < m for p in positions))
    _need(after[0] == 0 and after == sorted(after))
    times = [first_ms + ms for ms in after]
    _need(times[-1] < 2**63)
    bound = (most_rows, tuple(hashes)) if version == COUNTED else None
    return SlowExamples(header, times, ids, label, weight, keys, indices, lengths, positions, values, bound, counted)


def _mark(header: Header, value: bytes, version: int) -> SlowMark:
    _need(header.flags in ((0, 1, 3) if version == 1 else (0, 1, 3, 5, 7)))
    end, layout = {1: (192, "<Qq17q"), 2: (208, "<Qq18qQ")}.get(version, (224, "<Qq18qQqq"))
    pred_attempt, pred_tick, *numbers = struct.unpack(layout, value[40:end])
    stream = (numbers.pop(-2), numbers.pop()) if version >= 3 else (header.tick, 0)
    features = numbers.pop() if version > 1 else 0
    if version == 1:
        numbers.insert(10, 0)  # No impression was late.
    resume, codes, ahead = None, [], 0
    if header.flags:
        fields, packed = _resume(value, version)
        resume = (*fields, version)
        inside = 0 if header.flags & CODES_AHEAD else fields[9]
        ahead = fields[9] - inside
        codes = _codes(packed, inside, version)
    else:
        _need(len(value) == end)
    first_tick, _, first_click, cursor = numbers[:4]
    _need(0 <= first_tick <= header.tick and pred_tick >= -1)
    _need(min(numbers) >= 0 and first_click <= cursor)
    _need(-1 <= stream[0] <= header.tick and stream[1] >= 0)
    _need(len(codes) + ahead <= cursor - first_click)
    return SlowMark(header, (pred_attempt, pred_tick), tuple(numbers), features, stream, resume, codes, ahead)


def _resume(value: bytes, version: int) -> tuple[tuple[Any, ...], bytes]:
    """The fields of a resume point, the numbers of its steps as the last of them, and the bytes behind it."""
    if version == 1:
        impressions, clicks, join, *fields = struct.unpack("<16s16sQqqqQI", value[192:268])
        fields.insert(3, fields[2])  # The usual time was the log time.
        return (impressions, clicks, join, 0, 0, *fields, ()), value[268:]
    begin, end, layout = (208, 304, "<16s16sQQQqqqQII") if version == 2 else (224, 328, "<16s16sQQQqqqqQII")
    *fields, count = struct.unpack(layout, value[begin:end])
    if version == 2:
        fields.insert(8, fields[7])
    _need(count <= MOST_STEPS)
    behind = end + 16 * count
    return (*fields, struct.unpack(f"<{2 * count}q", value[end:behind])), value[behind:]


def _codes(packed: bytes, count: int, version: int) -> list[int]:
    """The codes; zeros fill the last byte. Of three bits each, the first in the highest; before version 4 of two bits
    each, the first in the lowest, and each click is ahead: 4 is added.
    """
    if version < 4:
        _need(len(packed) == -(-count // 4))
        every = [byte >> shift & 3 for byte in packed for shift in (0, 2, 4, 6)]
        _need(not any(every[count:]))
        return [code + 4 for code in every[:count]]
    _need(len(packed) == -(-3 * count // 8))
    bits = "".join(f"{byte:08b}" for byte in packed)
    _need("1" not in bits[3 * count :])
    return [int(bits[3 * i : 3 * i + 3], 2) for i in range(count)]
