"""Records of the training log written value by value from the documented layout, and random batches and marks."""

from __future__ import annotations

import struct
import zlib

import numpy as np
from hypothesis import strategies as st

from stream_learner.core.log.examples import ExampleBatch, ExampleRecord, decode
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, ResumePoint, TickCounts

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


def header_bytes(
    kind: int, flags: int, partition: int, sequence: int, attempt: int, tick: int, body: bytes, version: int = 0
) -> bytes:
    """Header and body, written from the documented layout; version: 0 for that of most records of the kind."""
    version = version or {2: 5, 3: 4}.get(kind, 1)
    head = struct.pack("<4sHBBIIQq", b"SLTL", version, kind, flags, partition, sequence, attempt, tick)
    return head + struct.pack("<II", zlib.crc32(head), zlib.crc32(body)) + body


def is_weighted(batch: ExampleBatch) -> bool:
    """Whether any weight is not 1."""
    return any(weight != 1.0 for weight in batch.weight.tolist())


def is_soft(batch: ExampleBatch) -> bool:
    """Whether any label is neither 0 nor 1."""
    return any(label not in (0.0, 1.0) for label in batch.label.tolist())


def plain_record(
    partition: int,
    tick: int,
    attempt: int,
    sequence: int,
    batch: ExampleBatch,
    weighted: bool,
    soft: bool,
    bound: tuple[int, tuple[int, ...]] | None = None,
) -> bytes:
    """The expected record of these examples, written value by value from the documented layout.

    bound: the most rows of a field, and the hashes of the fields' names.
    """
    distinct: dict[int, int] = {}
    indices = [distinct.setdefault(int(key), len(distinct)) for key in batch.keys]
    odd = [(place, value) for place, value in enumerate(batch.values.tolist()) if value != 1.0]
    first = int(batch.log_time_ms[0])
    body = struct.pack("<IIIIq", len(batch), len(distinct), len(indices), len(odd), first)
    body += b"" if bound is None else struct.pack("<QQ", bound[0], len(bound[1]))
    body += b"".join(struct.pack("<Q", key) for key in distinct)
    body += b"".join(struct.pack("<Q", i) for i in batch.id_hash.tolist())
    body += b"".join(struct.pack("<d", value) for _, value in odd)
    body += b"".join(struct.pack("<d", x) for x in batch.weight.tolist()) if weighted else b""
    body += b"".join(struct.pack("<d", x) for x in batch.label.tolist()) if soft else b""
    body += b"" if bound is None else b"".join(struct.pack("<Q", name) for name in bound[1])
    body += b"".join(struct.pack("<I", time - first) for time in batch.log_time_ms.tolist())
    body += b"".join(struct.pack("<I", place) for place, _ in odd)
    body += b"".join(struct.pack("<H", index) for index in indices)
    body += b"".join(struct.pack("<H", length) for length in np.diff(batch.row_start).tolist())
    body += b"" if soft else bytes(int(x) for x in batch.label.tolist())
    if bound is None:
        return header_bytes(1, weighted + 2 * soft, partition, sequence, attempt, tick, body)
    keys = batch.keys.tolist()
    body += bytes(int(batch.counted[keys.index(key)]) for key in distinct)
    return header_bytes(1, weighted + 2 * soft, partition, sequence, attempt, tick, body, version=4)


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
        batch.counted[first:last],
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


COUNTS = st.integers(0, 2**63 - 1)
U64 = st.integers(0, 2**64 - 1)


@st.composite
def marks(draw: st.DrawFn) -> Mark:
    """Marks with any numbers that are in order, some with a resume point."""
    first_tick, more = draw(st.integers(0, 2**62)), draw(st.integers(0, 2**62 - 1))
    codes = draw(st.lists(st.integers(0, 7), max_size=50))
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
        click_usual_time=draw(COUNTS),
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
        stream_tick=draw(st.integers(-1, first_tick + more)),
        labels_from_ms=draw(COUNTS),
    )


def plain_mark(mark: Mark) -> bytes:
    """The expected mark, written from the documented layout, with its codes inside."""
    i, c = mark.counts.impressions, mark.counts.clicks
    body = struct.pack("<Qq", mark.pred_attempt, mark.pred_tick)
    body += struct.pack("<4q", mark.first_tick, mark.next_impression, mark.first_click, mark.click_cursor)
    body += struct.pack("<7q", i.read, i.examples, i.positives, i.duplicates, i.sampled_out, i.dead, i.late)
    body += struct.pack("<7q", c.read, c.matched, c.duplicates, c.orphans, c.late, c.dead, c.waiting)
    body += struct.pack("<Qqq", mark.features, mark.stream_tick, mark.labels_from_ms)
    r = mark.resume
    if r is not None:
        body += r.impression_topic_id + r.click_topic_id
        body += struct.pack("<QQQ", r.join_fingerprint, r.impressions_fingerprint, r.clicks_fingerprint)
        body += struct.pack("<4q", r.impression_log_time, r.dedupe_from, r.click_log_time, r.click_usual_time)
        body += struct.pack("<QII", len(r.codes), r.partitions, len(r.steps))
        body += b"".join(struct.pack("<qq", *step) for step in r.steps)
        bits = "".join(f"{code:03b}" for code in r.codes)
        body += bytes(int(bits[at : at + 8].ljust(8, "0"), 2) for at in range(0, len(bits), 8))
    flags = (1 if r is not None else 0) + (4 if mark.begins_anew else 0)
    return header_bytes(2, flags, mark.partition, mark.records, mark.attempt, mark.last_tick, body)
