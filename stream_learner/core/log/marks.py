"""The mark that ends a tick of a partition in the training log: its types, and its bytes.

A mark may be a *resume point*: then it holds what is needed to make the join's state again. A few bytes do for the
positions; the click codes take three bits each, and go to records of their own where there are too many for one record.

Body of a mark, version 5, little-endian, after the header of `log.header`:

    offset  type     field
        40  u64      attempt of the predecessor
        48  i64      last tick of the predecessor
        56  i64      first tick
        64  i64      next impression to emit (offset)
        72  i64      first click not expired (offset)
        80  i64      click cursor (offset)
        88  i64[7]   impressions: read, examples, positives, duplicates, sampled out, dead, late
       144  i64[7]   clicks: read, matched, duplicates, orphans, late, dead, waiting
       200  u64      fingerprint of the features' settings, 0 where it is not known
       208  i64      last tick of stream time whose windows are closed, -1 for none
       216  i64      impressions with a time before this are late, ms; 0 for none

With flag 1 a resume point follows:

       224  16s      topic id of the impressions
       240  16s      topic id of the clicks
       256  u64[3]   fingerprints of the settings of the join, of the impressions and of the clicks
       280  i64      log time written for the last impression emitted, ms
       288  i64      impression to read from to know the duplicates (offset)
       296  i64      log time with which the last click went, ms
       304  i64      usual time with which the last click went, ms
       312  u64      number of codes
       320  u32      partitions of each input topic
       324  u32      number of steps
       328  i64[2]   for each step, its number and the first impression emitted in it (offset)
         …  u8[]     the codes, three bits each, the first in the highest bits; a last byte is filled with zeros

With flag 4, only beside flag 1, the log begins anew with the resume point.

Version 4 differs in the rules of the join alone. In version 3, by yet other rules, codes have two bits each, the first
in the lowest bits: every click is ahead.

In version 2, by yet other rules, codes are those of version 3, the fields at 208, 216 and 304 are missing, and a resume
point begins at 208: the last tick of stream time is that of the mark, no impression is late but by lateness, and clicks
went by log time.

In version 1, by the first rules, there are neither late impressions nor steps nor a flag 4, of the fingerprints
only the join's, the two fields of log time have another meaning, and a resume point begins at 192 and its codes at 268.

With flag 2 the codes are not here but in records of kind 3 ahead of the mark, which follow the attempt's
records of examples in the count of sequences. Body of such a record:

        40  u64      number of codes
        48  u8[]     the codes, packed as above; in version 1 as in marks of version 3
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, replace
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.errors import NOWHERE, DamagedRecord, Where
from stream_learner.core.log.header import HEADER_BYTES, VERSION_OF, Kind, LogRecord, RecordHeader, seal

RULES: Final = 5
"""Version of docs/join-rules.md. In version 4 a late click was a repeat as any other. In version 3 every click
was ahead, too, and went by one row. In version 2 stream time was the end of the tick, and clicks went by log time. In
version 1 log time took no agreement of several events.
"""
AHEAD_RULES: Final = 4
"""From these rules on a click may be ahead or not, and its code has a bit that says so."""
LOG_TIME_RULES: Final = 2
"""A join can go on from a resume point of these rules, too, and makes the ticks of their marks again by them."""


class MarkId(NamedTuple):
    """The name of a mark: the attempt that wrote it and the last tick it covers."""

    attempt: int
    last_tick: int


GENESIS = MarkId(0, -1)
"""Predecessor of the first mark of a partition. No attempt has the id 0."""


class ClickCode(IntEnum):
    """The outcome so far of a click that was taken and is still remembered; two bits of its code in a resume point."""

    UNMATCHED = 0
    LATE = 1
    MATCHED = 2
    DUPLICATE = 3


AHEAD: Final = 4
"""The bit of a code that says that the click was ahead when it was taken."""
CODE_BITS: Final = 3


IMPRESSION_OUTCOMES: Final = MappingProxyType(
    {
        "examples": "example",
        "duplicates": "duplicate",
        "late": "late",
        "sampled_out": "sampled_out",
        "dead": "dead_lettered",
    }
)
"""The outcomes of impressions, fields of `ImpressionCounts`, and their names in metrics: docs/join-rules.md."""
CLICK_OUTCOMES: Final = MappingProxyType(
    {
        "matched": "matched",
        "duplicates": "duplicate",
        "orphans": "orphan",
        "late": "late",
        "dead": "dead_lettered",
    }
)
"""The outcomes of clicks, fields of `ClickCounts`, and their names in metrics."""


class ImpressionCounts(NamedTuple):
    """Impressions of one mark, in the order of its layout: all that were `read` have one outcome each.

    `positives` is the number of `examples` whose label is above 0. `late` is always 0 in a mark of the rules 1.
    """

    read: int = 0
    examples: int = 0
    positives: int = 0
    duplicates: int = 0
    sampled_out: int = 0
    dead: int = 0
    late: int = 0

    @property
    def settled(self) -> int:
        """How many have an outcome."""
        return sum(getattr(self, outcome) for outcome in IMPRESSION_OUTCOMES)


class ClickCounts(NamedTuple):
    """Clicks of one mark, in the order of its layout: those read for it, the outcomes of those forgotten, those waiting
    after it. `waiting before + read = settled + waiting`.
    """

    read: int = 0
    matched: int = 0
    duplicates: int = 0
    orphans: int = 0
    late: int = 0
    dead: int = 0
    waiting: int = 0

    @property
    def settled(self) -> int:
        """How many have an outcome."""
        return sum(getattr(self, outcome) for outcome in CLICK_OUTCOMES)


class TickCounts(NamedTuple):
    """The outcomes of the input records between a mark's predecessor and the mark."""

    impressions: ImpressionCounts = ImpressionCounts()
    clicks: ClickCounts = ClickCounts()


NOTHING_COUNTED: Final = TickCounts()


class InputIdentity(NamedTuple):
    """The input topics that a resume point was made from, and how their events were read.

    impression_topic_id, click_topic_id: 16 bytes each, the broker's topic ids. partitions: of each input topic.
    impressions_fingerprint, clicks_fingerprint: u64 of the settings of both inputs (`EventSpec`), 0 where not known.
    """

    impression_topic_id: bytes
    click_topic_id: bytes
    partitions: int
    impressions_fingerprint: int = 0
    clicks_fingerprint: int = 0


_AS_LOG_TIME: Final = -(1 << 63)


@dataclass(frozen=True, slots=True, eq=False)
class ResumePoint:
    """Enough to make a partition's join state again from the input topics.

    The fields of `InputIdentity` say which topics those are. join_fingerprint: u64 of the settings of the join
    (`JoinSpec`). rules: those of the join that made it, `RULES` or older; one of the rules 1 can be read, not resumed
    from.

    impression_log_time: the log time written for the last impression emitted, ms. dedupe_from: impression to read from
    to know the duplicates (offset). steps: ids are forgotten in steps of several ticks; of each step from `dedupe_from`
    on in which something was emitted, the number and the first impression emitted in it (offset).

    click_log_time, click_usual_time: those with which the last click went, ms; both the same if only one is given.
    codes: u8[k], the `ClickCode`, and `AHEAD`, of every click record in `[first_click, click_cursor)` of the mark, in
    offset order. detached: how many codes lie in records ahead of the mark instead; 0 once rule R has put them back.
    """

    impression_topic_id: bytes
    click_topic_id: bytes
    partitions: int
    join_fingerprint: int
    impression_log_time: int
    dedupe_from: int
    click_log_time: int
    codes: NDArray[np.uint8]
    detached: int = 0
    steps: tuple[tuple[int, int], ...] = ()
    rules: int = RULES
    impressions_fingerprint: int = 0
    clicks_fingerprint: int = 0
    click_usual_time: int = _AS_LOG_TIME

    def __post_init__(self) -> None:
        if self.click_usual_time == _AS_LOG_TIME:
            object.__setattr__(self, "click_usual_time", self.click_log_time)

    @property
    def inputs(self) -> InputIdentity:
        """The input topics that it was made from."""
        return InputIdentity(
            self.impression_topic_id,
            self.click_topic_id,
            self.partitions,
            self.impressions_fingerprint,
            self.clicks_fingerprint,
        )

    def _plain(self) -> tuple[object, ...]:
        return (
            self.inputs,
            self.join_fingerprint,
            self.impression_log_time,
            self.dedupe_from,
            self.click_log_time,
            self.click_usual_time,
            self.detached,
            self.steps,
            self.rules,
        )

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, ResumePoint):
            return NotImplemented
        return self._plain() == other._plain() and np.array_equal(self.codes, other.codes)

    def __hash__(self) -> int:
        return hash((self._plain(), len(self.codes)))


AS_LAST_TICK: Final = -2
"""Given as the stream tick of a mark: that of its last tick."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The end of the ticks `first_tick..last_tick` of a partition, written by one attempt.

    All examples since the predecessor belong to `last_tick`.

    next_impression: offset of the first impression not emitted. first_click: of the first click not forgotten.
    click_cursor: offset before which clicks had been read. With the positions of the predecessor they decide the
    examples. records: how many records the attempt wrote for these ticks, the mark not counted. features: u64, the
    fingerprint of the `FeatureSpec` of its attempt; 0 where it is not known, as with the rules 1.

    stream_tick: the last tick of stream time whose windows are closed, -1 for none; never after `last_tick`, and
    `last_tick` where none is given, as with the rules 1 and 2. labels_from_ms: impressions with a time before it are
    late, because their clicks could not be read. rules: those by which it was made.

    begins_anew: the join goes on from the resume point with nothing but its positions, which need not follow those of
    the predecessor; clicks that waited there are given up. Such a mark has no examples, and always a resume point.
    """

    partition: int
    attempt: int
    first_tick: int
    last_tick: int
    next_impression: int
    first_click: int
    click_cursor: int
    records: int
    pred_attempt: int
    pred_tick: int
    counts: TickCounts = NOTHING_COUNTED
    resume: ResumePoint | None = None
    features: int = 0
    begins_anew: bool = False
    stream_tick: int = AS_LAST_TICK
    labels_from_ms: int = 0
    rules: int = RULES

    def __post_init__(self) -> None:
        if self.stream_tick == AS_LAST_TICK:
            object.__setattr__(self, "stream_tick", self.last_tick)

    @property
    def id(self) -> MarkId:
        """The name by which the next mark calls this one its predecessor."""
        return MarkId(self.attempt, self.last_tick)

    @property
    def predecessor(self) -> MarkId:
        """The mark this one follows; `GENESIS` for the first of a partition."""
        return MarkId(self.pred_attempt, self.pred_tick)


HAS_RESUME = 1
CODES_AHEAD = 2
BEGINS_ANEW = 4

_BODY = struct.Struct("<Qqqqqq7q7qQqq")
_RESUME = struct.Struct("<16s16s3QqqqqQII")
_RESUME_2 = struct.Struct("<16s16s3QqqqQII")
_STEP = struct.Struct("<qq")
_BODY_2 = struct.Struct("<Qqqqqq7q7qQ")
_BODY_1 = struct.Struct("<Qqqqqq6q7q")
_RESUME_1 = struct.Struct("<16s16sQqqqQI")
_BODIES = (_BODY_1, _BODY_2, _BODY, _BODY, _BODY)
_RESUMES = (_RESUME_1, _RESUME_2, _RESUME, _RESUME, _RESUME)
_CODE_COUNT = struct.Struct("<Q")
_SHIFTS = np.array([0, 2, 4, 6], np.uint8)
_FLAGS = HAS_RESUME | CODES_AHEAD | BEGINS_ANEW
_FLAGS_1 = HAS_RESUME | CODES_AHEAD
_MOST_STEPS = 64
_PART_AT = HEADER_BYTES + _CODE_COUNT.size

MARK_BYTES = HEADER_BYTES + _BODY.size + _RESUME.size
"""Size of a mark with a resume point, without its steps and codes."""


def encode_mark(mark: Mark) -> bytes:
    """The mark as one record, with all codes that are not `detached`. Raises ValueError where a field does not fit."""
    flags, tail = 0, b""
    if mark.resume is not None:
        flags = HAS_RESUME | (CODES_AHEAD if mark.resume.detached else 0)
        tail = _resume_bytes(mark.resume)
    if mark.begins_anew:
        if mark.resume is None:
            raise ValueError("a mark that begins anew has a resume point")
        flags |= BEGINS_ANEW
    try:
        body = _BODY.pack(
            mark.pred_attempt,
            mark.pred_tick,
            mark.first_tick,
            mark.next_impression,
            mark.first_click,
            mark.click_cursor,
            *mark.counts.impressions,
            *mark.counts.clicks,
            mark.features,
            mark.stream_tick,
            mark.labels_from_ms,
        )
    except struct.error as error:
        raise ValueError(f"{mark} does not fit a mark: {error}") from error
    version = VERSION_OF[Kind.MARK]
    header = RecordHeader(Kind.MARK, flags, mark.partition, mark.records, mark.attempt, mark.last_tick, version)
    return seal(header, body + tail)


def detach_codes(mark: Mark, max_bytes: int) -> tuple[Mark, list[bytes]]:
    """Move the codes of a mark that would be larger than `max_bytes` into records of their own ahead of it.

    Returns the mark to encode, `records` counted up, and those records in order; a mark that fits is returned
    as is.
    """
    resume = mark.resume
    if resume is None or MARK_BYTES + _STEP.size * len(resume.steps) + packed_size(len(resume.codes)) <= max_bytes:
        return mark, []
    step = 8 * (max_bytes - _PART_AT) // CODE_BITS
    if step <= 0:
        raise ValueError(f"no codes fit into records of {max_bytes} bytes")
    parts: list[bytes] = []
    for begin in range(0, len(resume.codes), step):
        sequence = mark.records + len(parts)
        version = VERSION_OF[Kind.CODES]
        header = RecordHeader(Kind.CODES, 0, mark.partition, sequence, mark.attempt, mark.last_tick, version)
        codes = resume.codes[begin : begin + step]
        parts.append(seal(header, _CODE_COUNT.pack(len(codes)) + _pack(codes)))
    bare = replace(resume, codes=np.zeros(0, np.uint8), detached=len(resume.codes))
    return replace(mark, records=mark.records + len(parts), resume=bare), parts


def attach_codes(mark: Mark, parts: list[NDArray[np.uint8]], where: Where = NOWHERE) -> Mark:
    """Undo `detach_codes`, with the parts that `decode_codes` returned, in order. `records` still counts them.

    Raises DamagedRecord where there are more or fewer codes than the mark names.
    """
    expected = mark.resume.detached if mark.resume is not None else 0
    found = sum(map(len, parts))
    if found != expected:
        raise DamagedRecord(f"the mark names {expected} codes ahead of it, there are {found}", where)
    if mark.resume is None or not parts:
        return mark
    return replace(mark, resume=replace(mark.resume, codes=np.concatenate(parts), detached=0))


def decode_mark(record: LogRecord) -> Mark:
    """The mark that a record of kind `MARK` holds. Raises DamagedRecord.

    Codes that lie ahead of the mark are only counted, in `resume.detached`.
    """
    header, body, where = record.header, record.body, record.where
    has_resume = bool(header.flags & HAS_RESUME)
    known = _FLAGS if header.version > 1 else _FLAGS_1
    if header.flags & ~known or (header.flags and not has_resume):
        raise DamagedRecord(f"a mark with unknown flags {header.flags}", where)
    fixed = _BODIES[header.version - 1]
    if len(body) < fixed.size if has_resume else len(body) != fixed.size:
        raise DamagedRecord(f"a mark of {record.size_bytes} bytes", where)
    found = fixed.unpack_from(body)
    clicks_at = 12 if header.version == 1 else 13
    impressions, clicks = found[6:clicks_at], found[clicks_at : clicks_at + 7]
    rest = (0, header.tick, 0)
    features, stream_tick, labels_from_ms = found[clicks_at + 7 :] + rest[len(found) - clicks_at - 7 :]
    mark = Mark(
        partition=header.partition,
        attempt=header.attempt,
        first_tick=found[2],
        last_tick=header.tick,
        next_impression=found[3],
        first_click=found[4],
        click_cursor=found[5],
        records=header.sequence,
        pred_attempt=found[0],
        pred_tick=found[1],
        counts=TickCounts(ImpressionCounts(*impressions), ClickCounts(*clicks)),
        resume=_decode_resume(record, fixed.size) if has_resume else None,
        features=features,
        begins_anew=bool(header.flags & BEGINS_ANEW),
        stream_tick=stream_tick,
        labels_from_ms=labels_from_ms,
        rules=header.version,
    )
    _check_order(mark, min(*found[3:6], *impressions, *clicks, stream_tick + 1, labels_from_ms), where)
    return mark


def decode_codes(record: LogRecord) -> NDArray[np.uint8]:
    """The codes u8[k] of a record of kind `CODES`. Raises DamagedRecord."""
    body = record.body
    if len(body) < _CODE_COUNT.size:
        raise DamagedRecord(f"a record of codes of {record.size_bytes} bytes", record.where)
    count, is_old = _CODE_COUNT.unpack_from(body)[0], record.header.version < AHEAD_RULES
    return _unpack(body[_CODE_COUNT.size :], count, record.where, is_old=is_old)


def packed_size(codes: int) -> int:
    """How many bytes so many codes take."""
    return (CODE_BITS * codes + 7) // 8


def _check_order(mark: Mark, least: int, where: Where) -> None:
    if not 0 <= mark.first_tick <= mark.last_tick or mark.pred_tick < -1:
        ticks = f"{mark.first_tick}..{mark.last_tick}"
        raise DamagedRecord(f"a mark of ticks {ticks} after {mark.pred_tick}", where)
    if mark.stream_tick > mark.last_tick:
        raise DamagedRecord(f"a mark of tick {mark.last_tick} with stream time up to tick {mark.stream_tick}", where)
    if least < 0 or mark.first_click > mark.click_cursor:
        raise DamagedRecord("a mark whose positions or counts are out of order", where)
    codes = 0 if mark.resume is None else len(mark.resume.codes) + mark.resume.detached
    if codes > mark.click_cursor - mark.first_click:
        raise DamagedRecord(f"a mark with {codes} codes for fewer clicks", where)


def _resume_bytes(resume: ResumePoint) -> bytes:
    if len(resume.impression_topic_id) != 16 or len(resume.click_topic_id) != 16:
        raise ValueError("a topic id has 16 bytes")
    if resume.rules != RULES:
        raise ValueError(f"a resume point of the rules {resume.rules} is not written any more")
    if len(resume.steps) > _MOST_STEPS:
        raise ValueError(f"{len(resume.steps)} steps; a resume point has at most {_MOST_STEPS}")
    if resume.detached and len(resume.codes):
        raise ValueError("codes lie in the mark or ahead of it, not both")
    try:
        packed = _RESUME.pack(
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
            len(resume.steps),
        )
        steps = b"".join(_STEP.pack(*step) for step in resume.steps)
    except struct.error as error:
        raise ValueError(f"{resume} does not fit a resume point: {error}") from error
    return packed + steps + _pack(resume.codes)


def _decode_resume(record: LogRecord, at: int) -> ResumePoint:
    """The resume point that begins at `at` of a mark's body."""
    header, body, where = record.header, record.body, record.where
    fixed = _RESUMES[header.version - 1]
    steps_at = at + fixed.size
    if len(body) < steps_at:
        raise DamagedRecord(f"a mark of {record.size_bytes} bytes", where)
    found = list(fixed.unpack_from(body, at))
    inputs = (found.pop(3), found.pop(3)) if header.version > 1 else (0, 0)
    usual_time = found.pop(6) if header.version > LOG_TIME_RULES else found[5]
    ahead = bool(header.flags & CODES_AHEAD)
    count = found[8] if header.version > 1 else 0
    codes_at = steps_at + _STEP.size * count
    if count > _MOST_STEPS or len(body) < codes_at:
        raise DamagedRecord(f"{count} steps in a mark of {record.size_bytes} bytes", where)
    return ResumePoint(
        impression_topic_id=found[0],
        click_topic_id=found[1],
        partitions=found[7],
        join_fingerprint=found[2],
        impression_log_time=found[3],
        dedupe_from=found[4],
        click_log_time=found[5],
        codes=_unpack(body[codes_at:], 0 if ahead else found[6], where, is_old=header.version < AHEAD_RULES),
        detached=found[6] if ahead else 0,
        steps=tuple(_STEP.iter_unpack(body[steps_at:codes_at])),
        rules=header.version,
        impressions_fingerprint=inputs[0],
        clicks_fingerprint=inputs[1],
        click_usual_time=usual_time,
    )


def _pack(codes: NDArray[np.uint8]) -> bytes:
    if len(codes) and int(codes.max()) >= 1 << CODE_BITS:
        raise ValueError(f"a click code has {CODE_BITS} bits")
    return np.packbits(np.unpackbits(codes[:, None], axis=1)[:, -CODE_BITS:]).tobytes()


def _unpack(code_bytes: memoryview, count: int, where: Where, *, is_old: bool) -> NDArray[np.uint8]:
    """is_old: the codes have two bits, as in version 3, and every click is ahead."""
    packed = np.frombuffer(code_bytes, np.uint8)
    if len(packed) != ((count + 3) // 4 if is_old else packed_size(count)):
        raise DamagedRecord(f"{count} codes in {len(packed)} bytes", where)
    if is_old:
        found = ((packed[:, None] >> _SHIFTS) & np.uint8(3)).reshape(-1)
        codes, rest = found[:count] | np.uint8(AHEAD), found[count:]
    else:
        bits = np.unpackbits(packed)
        codes = np.packbits(bits[: CODE_BITS * count].reshape(-1, CODE_BITS), axis=1).reshape(-1) >> (8 - CODE_BITS)
        rest = bits[CODE_BITS * count :]
    if rest.any():
        raise DamagedRecord("codes after the last click", where)
    return codes
