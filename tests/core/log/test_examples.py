"""Records of the training log: layout against a plain-Python writer, round trips, limits, damage refused."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.errors import DamagedRecord, ForeignRecord, NewerVersion, RecordError, Where
from stream_learner.core.log.examples import (
    ExampleBatch,
    ExampleRecord,
    Mark,
    ResumePoint,
    Scratch,
    TickCounts,
    decode,
    encode_examples,
    encode_mark,
    largest_record_bytes,
    open_record,
    to_batch,
)
from stream_learner.core.log.mark_codec import attach_codes, decode_codes, detach_codes
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts

Row = dict[int, float]


def make_batch(
    rows: list[Row],
    labels: list[float] | None = None,
    weights: list[float] | None = None,
    times: list[int] | None = None,
) -> ExampleBatch:
    """Columns of the given rows; labels 0, weights 1, times 1000, 1001, ... unless given."""
    n = len(rows)
    return ExampleBatch(
        np.array(times if times is not None else [1000 + i for i in range(n)], np.int64),
        np.array([7919 * i + 1 for i in range(n)], np.uint64),
        np.array(labels if labels is not None else [0.0] * n, np.float64),
        np.array(weights if weights is not None else [1.0] * n, np.float64),
        np.cumsum([0] + [len(row) for row in rows]).astype(np.int64),
        np.array([key for row in rows for key in row], np.uint64),
        np.array([value for row in rows for value in row.values()], np.float64),
    )


def header_bytes(kind: int, flags: int, partition: int, sequence: int, attempt: int, tick: int, body: bytes) -> bytes:
    """Header and body, written from the documented layout."""
    head = struct.pack("<4sHBBIIQq", b"SLTL", 2 if kind == 2 else 1, kind, flags, partition, sequence, attempt, tick)
    return head + struct.pack("<II", zlib.crc32(head), zlib.crc32(body)) + body


def is_weighted(batch: ExampleBatch) -> bool:
    """Whether any weight is not 1."""
    return any(weight != 1.0 for weight in batch.weight.tolist())


def is_soft(batch: ExampleBatch) -> bool:
    """Whether any label is neither 0 nor 1."""
    return any(label not in (0.0, 1.0) for label in batch.label.tolist())


def plain_record(
    partition: int, tick: int, attempt: int, sequence: int, batch: ExampleBatch, weighted: bool, soft: bool
) -> bytes:
    """What the record of these examples must be, written value by value from the documented layout."""
    distinct: dict[int, int] = {}
    indices = [distinct.setdefault(int(key), len(distinct)) for key in batch.keys]
    odd = [(place, value) for place, value in enumerate(batch.values.tolist()) if value != 1.0]
    first = int(batch.log_time_ms[0])
    body = struct.pack("<IIIIq", len(batch), len(distinct), len(indices), len(odd), first)
    body += b"".join(struct.pack("<Q", key) for key in distinct)
    body += b"".join(struct.pack("<Q", i) for i in batch.id_hash.tolist())
    body += b"".join(struct.pack("<d", value) for _, value in odd)
    body += b"".join(struct.pack("<d", x) for x in batch.weight.tolist()) if weighted else b""
    body += b"".join(struct.pack("<d", x) for x in batch.label.tolist()) if soft else b""
    body += b"".join(struct.pack("<I", time - first) for time in batch.log_time_ms.tolist())
    body += b"".join(struct.pack("<I", place) for place, _ in odd)
    body += b"".join(struct.pack("<H", index) for index in indices)
    body += b"".join(struct.pack("<H", length) for length in np.diff(batch.row_start).tolist())
    body += b"" if soft else bytes(int(x) for x in batch.label.tolist())
    return header_bytes(1, weighted + 2 * soft, partition, sequence, attempt, tick, body)


def same(one: ExampleBatch, other: ExampleBatch) -> bool:
    """Equal to the bit, column by column."""
    names = ("log_time_ms", "id_hash", "label", "weight", "row_start", "keys", "values")
    return all(getattr(one, name).tobytes() == getattr(other, name).tobytes() for name in names)


def slice_rows(batch: ExampleBatch, begin: int, end: int) -> ExampleBatch:
    """The rows `begin..end-1`."""
    first, last = batch.row_start[begin], batch.row_start[end]
    return ExampleBatch(
        batch.log_time_ms[begin:end],
        batch.id_hash[begin:end],
        batch.label[begin:end],
        batch.weight[begin:end],
        batch.row_start[begin : end + 1] - first,
        batch.keys[first:last],
        batch.values[first:last],
    )


def decoded(value: bytes) -> ExampleRecord:
    """A record of examples."""
    record = decode(value)
    assert isinstance(record, ExampleRecord)
    return record


KEYS = st.one_of(st.integers(1, 30), st.integers(1, 2**64 - 1))
VALUES = st.one_of(st.just(1.0), st.floats(allow_nan=True, allow_infinity=True))
LABELS = st.sampled_from([0.0, 1.0])
SOFT_LABELS = st.floats(0, 1).map(abs)  # never -0.0, which a hard label does not keep


@st.composite
def batches(draw: st.DrawFn) -> ExampleBatch:
    """Batches of 1 to 40 examples, some soft, some weighted, some with values other than 1."""
    values = draw(st.sampled_from([st.just(1.0), VALUES]))
    rows = draw(st.lists(st.dictionaries(KEYS, values, max_size=12), min_size=1, max_size=40))
    n = len(rows)
    labels = draw(st.lists(draw(st.sampled_from([LABELS, SOFT_LABELS])), min_size=n, max_size=n))
    weights = draw(st.lists(draw(st.sampled_from([st.just(1.0), st.floats(0, 9)])), min_size=n, max_size=n))
    steps = draw(st.lists(st.integers(0, 3_000_000_000), min_size=n, max_size=n))
    return make_batch(rows, labels, weights, np.cumsum(steps).tolist())


SHARED = Scratch()


@settings(max_examples=150, deadline=None)
@given(batches(), st.sampled_from([400, 700, 900_000]))
def test_every_record_is_what_the_layout_says_and_together_they_hold_the_batch(
    batch: ExampleBatch, max_bytes: int
) -> None:
    """Split anywhere, each record equals the plain writer's bytes for its rows, and decodes to them."""
    weighted, soft = is_weighted(batch), is_soft(batch)
    row = 0
    for sequence, value in enumerate(encode_examples(3, 77, 2**64 - 1, batch, max_bytes, scratch=SHARED)):
        record = decoded(value)
        part = slice_rows(batch, row, row + len(record))
        assert value == plain_record(3, 77, 2**64 - 1, sequence, part, weighted, soft)
        assert same(to_batch(record), part)
        assert len(value) <= max_bytes
        row += len(record)
    assert row == len(batch)


@settings(max_examples=60, deadline=None)
@given(batches())
def test_records_of_one_event_do_not_remember_the_record_before(batch: ExampleBatch) -> None:
    """One event at a time through one scratch table gives the bytes a fresh table gives."""
    for row in range(len(batch)):
        one = slice_rows(batch, row, row + 1)
        assert encode_examples(0, 1, 5, one, scratch=SHARED) == encode_examples(0, 1, 5, one)


def test_an_empty_batch_makes_no_record() -> None:
    """A tick without examples has only its mark."""
    assert encode_examples(0, 1, 5, ExampleBatch.empty()) == []


def test_a_record_names_at_most_65536_distinct_keys() -> None:
    """The example that might need key 65,537 begins the next record, with indices from 0 again."""
    rows = [dict.fromkeys(range(1 + 1000 * i, 1001 + 1000 * i), 1.0) for i in range(70)]
    records = [decoded(value) for value in encode_examples(0, 1, 5, make_batch(rows), 10**7)]
    assert [len(record.keys) for record in records] == [65_000, 5_000]
    assert [int(record.indices.max()) for record in records] == [64_999, 4_999]


def test_log_times_further_apart_than_32_bits_begin_a_new_record() -> None:
    """A stretch of 49 days closed by the wall clock does not overflow."""
    batch = make_batch([{1: 1.0}] * 3, times=[5, 5 + 2**32 - 1, 5 + 2**32])
    records = [decoded(value) for value in encode_examples(0, 1, 5, batch)]
    assert [record.log_time_ms.tolist() for record in records] == [[5, 5 + 2**32 - 1], [5 + 2**32]]


def test_an_example_may_have_65535_features_and_no_more() -> None:
    """The largest example fits; one more feature is refused before anything is written."""
    row = dict.fromkeys(range(1, 65536), 2.0)
    (value,) = encode_examples(0, 1, 5, make_batch([row], [0.5], [2.0]), largest_record_bytes(65_535))
    assert len(value) == largest_record_bytes(65_535)
    assert same(to_batch(decoded(value)), make_batch([row], [0.5], [2.0]))
    with pytest.raises(ValueError, match="65535 features"):
        encode_examples(0, 1, 5, make_batch([{**row, 65_536: 1.0}]), 10**7)


def test_an_example_larger_than_a_record_is_refused() -> None:
    """A record is never larger than the broker takes, so an example that would make it so is an error."""
    with pytest.raises(ValueError, match="a record has 200"):
        encode_examples(0, 1, 5, make_batch([dict.fromkeys(range(1, 50), 1.0)]), 200)


@pytest.mark.parametrize(
    "break_it",
    [
        lambda b: setattr(b, "label", b.label[:1]),
        lambda b: setattr(b, "values", b.values[:1]),
        lambda b: setattr(b, "row_start", b.row_start + 1),
        lambda b: setattr(b, "row_start", b.row_start - 1),
        lambda b: setattr(b, "row_start", np.array([0, 2, 1], np.int64)),
        lambda b: setattr(b, "log_time_ms", b.log_time_ms[::-1].copy()),
    ],
)
def test_columns_that_do_not_belong_together_are_refused(break_it: Callable[[ExampleBatch], None]) -> None:
    """The kernel trusts the columns, so the encoder looks first."""
    batch = make_batch([{1: 1.0}, {2: 1.0}])
    break_it(batch)
    with pytest.raises(ValueError):
        encode_examples(0, 1, 5, batch)


def test_decoding_is_a_view() -> None:
    """The arrays of features lie in the record's own bytes, aligned, and cannot be written."""
    (value,) = encode_examples(0, 1, 5, make_batch([{1: 1.0, 2: 3.0}, {2: 1.0}]))
    record = decoded(value)
    whole = np.frombuffer(value, np.uint8)
    for array in (
        record.keys,
        record.indices,
        record.row_len,
        record.positions,
        record.values,
        record.id_hash,
    ):
        assert np.shares_memory(array, whole)
        assert array.flags.aligned
        assert not array.flags.writeable


COUNTS = st.integers(0, 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)


@st.composite
def marks(draw: st.DrawFn) -> Mark:
    """Marks with any numbers that are in order, some with a resume point."""
    first_tick, more = draw(st.integers(0, 2**62)), draw(st.integers(0, 2**62))
    codes = draw(st.lists(st.integers(0, 3), max_size=50))
    first_click = draw(st.integers(0, 2**62))
    log_times = st.integers(-(2**63), 2**63 - 1)
    resume = ResumePoint(
        draw(st.binary(min_size=16, max_size=16)),
        draw(st.binary(min_size=16, max_size=16)),
        draw(st.integers(0, 2**32 - 1)),
        draw(st.integers(0, 2**64 - 1)),
        draw(log_times),
        draw(COUNTS),
        draw(log_times),
        np.array(codes, np.uint8),
        steps=tuple(draw(st.lists(st.tuples(log_times, COUNTS), max_size=10))),
        impressions_fingerprint=draw(U64),
        clicks_fingerprint=draw(U64),
    )
    point = draw(st.sampled_from([None, resume]))
    return Mark(
        partition=draw(st.integers(0, 2**32 - 1)),
        attempt=draw(st.integers(1, 2**64 - 1)),
        first_tick=first_tick,
        last_tick=first_tick + more,
        next_impression=draw(COUNTS),
        first_click=first_click,
        click_cursor=first_click + len(codes) + draw(st.integers(0, 9)),
        records=draw(st.integers(0, 2**31)),
        pred_attempt=draw(st.integers(0, 2**64 - 1)),
        pred_tick=first_tick - 1,
        counts=TickCounts(
            ImpressionCounts(*draw(st.lists(COUNTS, min_size=7, max_size=7))),
            ClickCounts(*draw(st.lists(COUNTS, min_size=7, max_size=7))),
        ),
        resume=point,
        features=draw(U64),
        begins_anew=point is not None and draw(st.booleans()),
    )


def plain_mark(mark: Mark) -> bytes:
    """What the mark must be, written from the documented layout; codes inside."""
    i, c = mark.counts.impressions, mark.counts.clicks
    body = struct.pack("<Qq", mark.pred_attempt, mark.pred_tick)
    body += struct.pack("<4q", mark.first_tick, mark.next_impression, mark.first_click, mark.click_cursor)
    body += struct.pack("<7q", i.read, i.examples, i.positives, i.duplicates, i.sampled_out, i.dead, i.late)
    body += struct.pack("<7q", c.read, c.matched, c.duplicates, c.orphans, c.late, c.dead, c.waiting)
    body += struct.pack("<Q", mark.features)
    r = mark.resume
    if r is not None:
        body += r.impression_topic_id + r.click_topic_id
        body += struct.pack("<QQQ", r.join_fingerprint, r.impressions_fingerprint, r.clicks_fingerprint)
        body += struct.pack("<qqq", r.impression_log_time, r.dedupe_from, r.click_log_time)
        body += struct.pack("<QII", len(r.codes), r.partitions, len(r.steps))
        body += b"".join(struct.pack("<qq", *step) for step in r.steps)
        bits = sum(int(code) << 2 * place for place, code in enumerate(r.codes))
        body += bits.to_bytes((len(r.codes) + 3) // 4, "little")
    flags = (1 if r is not None else 0) + (4 if mark.begins_anew else 0)
    return header_bytes(2, flags, mark.partition, mark.records, mark.attempt, mark.last_tick, body)


@settings(max_examples=200, deadline=None)
@given(marks())
def test_a_mark_is_what_the_layout_says_and_decodes_to_itself(mark: Mark) -> None:
    """Every field, the counts and the packed codes survive."""
    value = encode_mark(mark)
    assert value == plain_mark(mark)
    assert decode(value) == mark


@settings(max_examples=100, deadline=None)
@given(marks(), st.integers(470, 510))
def test_codes_too_many_for_a_mark_lie_ahead_of_it_and_come_back(mark: Mark, max_bytes: int) -> None:
    """No record is larger than it may be, and putting the parts back gives the resume point again."""
    bare, parts = detach_codes(mark, max_bytes)
    assert bare.records == mark.records + len(parts)
    assert all(len(part) <= max_bytes for part in parts)
    assert [open_record(part).header.sequence for part in parts] == list(range(mark.records, bare.records))
    value = encode_mark(bare)
    assert len(value) <= max_bytes
    found = decode(value)
    assert found == bare
    assert isinstance(found, Mark)
    whole = attach_codes(found, [decode_codes(open_record(part)) for part in parts])
    assert replace(whole, records=mark.records) == mark


def test_missing_codes_are_noticed() -> None:
    """A mark whose codes ahead are fewer than it names is damaged."""
    codes = np.tile(np.arange(4, dtype=np.uint8), 300)
    resume = ResumePoint(b"i" * 16, b"c" * 16, 4, 9, -1, 0, -1, codes)
    mark, parts = detach_codes(Mark(0, 1, 0, 0, 0, 0, 1200, 0, 0, -1, resume=resume), 300)
    assert len(parts) > 1
    with pytest.raises(DamagedRecord, match="1200 codes"):
        attach_codes(mark, [decode_codes(open_record(part)) for part in parts[1:]])


def test_what_does_not_fit_a_mark_is_an_error_of_the_writer() -> None:
    """Numbers beyond their fields, codes beyond two bits and short topic ids are refused."""
    mark = Mark(0, 1, 0, 0, 0, 0, 9, 0, 0, -1)
    resume = ResumePoint(b"i" * 16, b"c" * 16, 4, 9, -1, 0, -1, np.array([4], np.uint8))
    for wrong in (
        replace(mark, attempt=2**64),
        replace(mark, features=2**64),
        replace(mark, begins_anew=True),
        replace(mark, next_impression=2**63),
        replace(mark, partition=-1),
        replace(mark, resume=resume),
        replace(mark, resume=replace(resume, codes=np.zeros(0, np.uint8), click_topic_id=b"short")),
        replace(mark, resume=replace(resume, codes=np.zeros(0, np.uint8), partitions=2**32)),
        replace(mark, resume=replace(resume, codes=np.zeros(1, np.uint8), detached=1)),
    ):
        with pytest.raises(ValueError):
            encode_mark(wrong)


def sample_records() -> list[bytes]:
    """One record of every shape."""
    plain = make_batch([{1: 1.0, 2: 1.0}, {2: 1.0}, {}])
    rich = make_batch([{1: 0.5, 2: 1.0}, {3: -2.0}], [0.25, 1.0], [1.0, 3.0])
    codes = np.tile(np.arange(4, dtype=np.uint8), 20)
    resume = ResumePoint(b"i" * 16, b"c" * 16, 4, 9, -1, 0, -1, codes)
    mark = Mark(0, 7, 0, 3, 5, 6, 99, 1, 0, -1, resume=resume)
    bare, parts = detach_codes(mark, 280)
    return [
        *encode_examples(0, 3, 7, plain),
        *encode_examples(0, 3, 7, rich),
        encode_mark(replace(mark, resume=None)),
        encode_mark(mark),
        encode_mark(bare),
        *parts,
    ]


SAMPLES = sample_records()


@pytest.mark.parametrize("value", SAMPLES)
def test_every_flipped_bit_and_every_missing_or_added_byte_is_noticed(value: bytes) -> None:
    """No single change of a record passes; it is foreign, newer or damaged, and the error says where."""
    where = Where(41, 2, "ctr.examples")
    changed = [value[:length] for length in range(len(value))] + [value + b"\0", b"\0" + value]
    for bit in range(8 * len(value)):
        flipped = bytearray(value)
        flipped[bit // 8] ^= 1 << bit % 8
        changed.append(bytes(flipped))
    for wrong in changed:
        with pytest.raises(RecordError, match=r"topic ctr\.examples, partition 2, offset 41: ") as caught:
            decode(wrong, where=where)
        assert caught.value.offset == 41


@settings(max_examples=300, deadline=None)
@given(st.sampled_from(SAMPLES), st.data())
def test_bytes_that_pass_the_checksums_but_make_no_sense_are_refused_or_harmless(
    value: bytes, data: st.DataObject
) -> None:
    """Any body under valid checksums either decodes to a record whose every index holds, or is damaged."""
    body = bytearray(value[40:])
    for _ in range(data.draw(st.integers(1, 4))):
        place = data.draw(st.integers(0, len(body) - 1))
        body[place] = data.draw(st.sampled_from([0, 1, 2, 255, body[place] ^ 128]))
    if data.draw(st.booleans()):
        body = body[: data.draw(st.integers(0, len(body)))]
    header = open_record(value).header
    flags = data.draw(st.one_of(st.just(header.flags), st.integers(0, 255)))
    wrong = header_bytes(
        header.kind, flags, header.partition, header.sequence, header.attempt, header.tick, bytes(body)
    )
    try:
        found = decode(wrong)
    except DamagedRecord:
        return
    if isinstance(found, ExampleRecord):
        assert int(found.row_len.sum()) == len(found.indices)
        assert not len(found.indices) or int(found.indices.max()) < len(found.keys)
        assert not len(found.positions) or int(found.positions.max()) < len(found.indices)
        assert (found.keys != 0).all()
        to_batch(found)


@settings(max_examples=300, deadline=None)
@given(st.one_of(st.binary(max_size=120), st.binary(max_size=120).map(lambda tail: b"SLTL\1\0" + tail)))
def test_random_bytes_are_never_taken_for_a_record(value: bytes) -> None:
    """Foreign, or damaged where they begin like one of ours; never a crash."""
    with pytest.raises(DamagedRecord if value[:6] == b"SLTL\1\0" else (ForeignRecord, NewerVersion, DamagedRecord)):
        decode(value)


def reseal(value: bytes, at: int, field: bytes) -> bytes:
    """The record with `field` written at byte `at`, under fresh checksums."""
    changed = bytearray(value)
    changed[at : at + len(field)] = field
    changed[36:40] = struct.pack("<I", zlib.crc32(changed[40:]))
    changed[32:36] = struct.pack("<I", zlib.crc32(changed[:32]))
    return bytes(changed)


# A record of the examples {1: 1, 2: 5} and {2: 1}: keys at 64, ids 80, values 96, log times 104, places 112,
# features 116, lengths 122, labels 126.
TWO = encode_examples(0, 3, 7, make_batch([{1: 1.0, 2: 5.0}, {2: 1.0}]))[0]


@pytest.mark.parametrize(
    ("at", "field", "says"),
    [
        (122, struct.pack("<H", 3), "do not add up"),
        (116, struct.pack("<H", 2), "names no key"),
        (112, struct.pack("<I", 3), "belongs to no feature"),
        (72, struct.pack("<Q", 0), "a key that is 0"),
        (104, struct.pack("<II", 1, 0), "go back"),
        (104, struct.pack("<I", 1), "go back"),
        (127, b"\2", "neither 0 nor 1"),
        (40, struct.pack("<I", 3), "bytes for 3 examples"),
        (44, struct.pack("<I", 2**32 - 1), "4294967295 keys"),
        (7, b"\4", "flags 4"),
        (6, b"\4", "unknown kind"),
    ],
)
def test_a_record_that_contradicts_itself_is_damaged(at: int, field: bytes, says: str) -> None:
    """What the fold trusts is checked, whatever the checksums say."""
    assert len(TWO) == 128
    with pytest.raises(DamagedRecord, match=says):
        decode(reseal(TWO, at, field))


@pytest.mark.parametrize(
    ("at", "field", "says"),
    [
        (56, struct.pack("<q", 4), "ticks 4..3"),
        (48, struct.pack("<q", -2), "after -2"),
        (64, struct.pack("<q", -1), "out of order"),
        (96, struct.pack("<q", -1), "out of order"),
        (72, struct.pack("<q", 100), "out of order"),
        (72, struct.pack("<q", 90), "80 codes for fewer clicks"),
        (288, struct.pack("<Q", 81), "81 codes in 20 bytes"),
        (288, struct.pack("<Q", 79), "codes after the last click"),
        (300, struct.pack("<I", 65), "65 steps"),
        (7, b"\2", "unknown flags"),
        (7, b"\4", "unknown flags"),
        (7, b"\0", "a mark of 324 bytes"),
    ],
)
def test_a_mark_that_contradicts_itself_is_damaged(at: int, field: bytes, says: str) -> None:
    """Positions, counts, ticks and codes must make sense together."""
    with pytest.raises(DamagedRecord, match=says):
        decode(reseal(SAMPLES[3], at, field))


def test_a_newer_version_is_named_even_if_nothing_else_can_be_read() -> None:
    """Magic and version lie at the same place for ever; the rest may change."""
    with pytest.raises(NewerVersion, match="version 3; this program knows up to 2"):
        decode(b"SLTL\3\0" + b"anything")


def test_places_of_values_must_rise() -> None:
    """Two values for one feature, or in the wrong order, are damage."""
    (value,) = encode_examples(0, 3, 7, make_batch([{1: 4.0, 2: 5.0}]))
    for places in ((0, 0), (1, 0)):
        with pytest.raises(DamagedRecord, match="out of order"):
            decode(reseal(value, 64 + 16 + 8 + 16 + 4, struct.pack("<II", *places)))
