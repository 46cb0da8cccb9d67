"""The examples of one partition and tick: as columns, and as records of the training log.

The fold trusts every index of a record. So this file never hands out a record that it has not checked whole.

Body of a record of examples, little-endian, after the header of `log.header`. Each array is aligned to its
elements, so that decoding is a view:

    offset  type       field
        40  u32        n, examples, at least 1
        44  u32        k, distinct keys
        48  u32        m, features of all examples
        52  u32        v, features whose value is not 1
        56  i64        log time of the first example, ms
        64  u64[k]     keys, in order of first occurrence, never 0
            u64[n]     id hashes
            f64[v]     values that are not 1
            f64[n]     importance weights, with flag 1; else all are 1
            f64[n]     labels, with flag 2; else they come last
            u32[n]     log times, ms after the first, never decreasing
            u32[v]     places of those values among the m features, rising
            u16[m]     features: index of the key; the examples one after the other
            u16[n]     features of each example
            u8[n]      labels, 0 or 1, without flag 2

Version 4 says which field each key is of, and how many rows a field may have; the keys begin at 80:

        64  u64        the most rows of a field, at least 1
        72  u64        f, fields, 1 to 255
            u64[f]     hashes of their names, after the labels that are f64
            u8[k]      number of the field of each key, 1 to f; 0 for a key that counts under no field; comes last

The keys of a record are distinct, and so are the indices within an example. The writer sees to both; no reader checks
it.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.errors import NOWHERE, DamagedRecord, Where
from stream_learner.core.log.dictionary import Scratch, number_keys
from stream_learner.core.log.field_bound import MOST_NUMBERS, FieldBound, number_keys_of
from stream_learner.core.log.header import COUNTED, HEADER_BYTES, Kind, LogRecord, RecordHeader, open_record, seal
from stream_learner.core.log.marks import Mark, decode_codes, decode_mark
from stream_learner.core.log.skips import Skip, decode_skip
from stream_learner.core.machine.entries import ReadOnly, entry

MAX_BYTES = 900_000
"""Default of the largest record: below the 1 MB that brokers and clients take by default."""
MAX_FEATURES = 65_535
"""The most features that one example may have."""

_WEIGHTED = 1
_SOFT = 2
_SIZES = struct.Struct("<IIIIq")
_ARRAYS_AT = HEADER_BYTES + _SIZES.size
_BOUND = struct.Struct("<QQ")
_MAX_DELTA = (1 << 32) - 1
_MAX_MS = (1 << 63) - 1


def _no_numbers() -> NDArray[np.uint8]:
    return np.zeros(0, np.uint8)


@dataclass(slots=True)
class ExampleBatch:
    """Examples of one partition and tick, in order.

    log_time_ms i64[n] (never decreasing), id_hash u64[n], label f64[n] in [0, 1], weight f64[n],
    row_start i64[n+1], keys u64[m] (distinct within a row, never 0), values f64[m], or f64[0] where all are 1 (never in
    a batch that was read). counted u8[m]: the number of the field under which each feature counts; u8[0] if nobody
    counts.
    """

    log_time_ms: NDArray[np.int64]
    id_hash: NDArray[np.uint64]
    label: NDArray[np.float64]
    weight: NDArray[np.float64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]
    counted: NDArray[np.uint8] = field(default_factory=_no_numbers)

    def __len__(self) -> int:
        return len(self.id_hash)

    @staticmethod
    def empty() -> ExampleBatch:
        """No examples, as of an empty tick."""
        return ExampleBatch(
            np.zeros(0, np.int64),
            np.zeros(0, np.uint64),
            np.zeros(0, np.float64),
            np.zeros(0, np.float64),
            np.zeros(1, np.int64),
            np.zeros(0, np.uint64),
            np.zeros(0, np.float64),
        )


@dataclass(slots=True)
class ExampleRecord:
    """One record of examples of the training log, as the learner folds it.

    partition, tick, attempt, sequence (place among the attempt's records for the tick).
    log_time_ms i64[n], id_hash u64[n], label f64[n], weight f64[n].
    keys u64[k]: the distinct feature keys, in order of first occurrence, never 0.
    row_len u16[n]; indices u16[m] into `keys`, rows one after the other, every one below k.
    positions u32[v], rising: the places in `indices` whose value is not 1; values f64[v]: what it is there.
    bound: the bound on the rows of each field, None where the record has none. counted u8[k]: the number of the field
    under which each key counts, 0 for none, u8[0] without a bound.
    id_hash, keys, row_len, indices, positions, values and counted are read-only views into the record's bytes.
    """

    partition: int
    tick: int
    attempt: int
    sequence: int
    log_time_ms: NDArray[np.int64]
    id_hash: NDArray[np.uint64]
    label: NDArray[np.float64]
    weight: NDArray[np.float64]
    keys: NDArray[np.uint64]
    indices: NDArray[np.uint16]
    row_len: NDArray[np.uint16]
    positions: NDArray[np.uint32]
    values: NDArray[np.float64]
    bound: FieldBound | None = None
    counted: NDArray[np.uint8] = field(default_factory=_no_numbers)

    def __len__(self) -> int:
        return len(self.id_hash)


def encode_examples(
    partition: int,
    tick: int,
    attempt: int,
    batch: ExampleBatch,
    max_bytes: int = MAX_BYTES,
    *,
    scratch: Scratch | None = None,
    bound: FieldBound | None = None,
) -> list[bytes]:
    """The records of a tick's examples, in order, none larger than `max_bytes`. An empty batch has none.

    A record ends where the next example might not fit: into the bytes, into 65,536 distinct keys, or into the 32 bits
    of milliseconds since its first example. `scratch` saves memory from call to call, one thread at a time. `bound`
    goes into every record, with the numbers of the batch; without one they are left out.
    Raises ValueError where a single example does not fit, or has more than `MAX_FEATURES` features.
    """
    if len(batch) == 0:
        return []
    scratch = Scratch() if scratch is None else scratch
    columns = _Columns(batch, bound)
    records: list[bytes] = []
    row = 0
    while row < len(batch):
        header = RecordHeader(
            Kind.EXAMPLES, columns.flags, partition, len(records), attempt, tick, 1 if bound is None else COUNTED
        )
        row, record = _encode_some(header, columns, row, max_bytes, scratch)
        records.append(record)
    return records


def largest_record_bytes(features: int, *, counted: bool = False) -> int:
    """Size of a record of one example with so many features, at worst: soft label, weight, no value 1.

    counted: with a bound on the rows of each field.
    """
    more = _BOUND.size + 8 * MOST_NUMBERS + features if counted else 0
    return _ARRAYS_AT + 30 + 22 * features + more


def decode(value: bytes, *, where: Where = NOWHERE) -> ExampleRecord | Mark | NDArray[np.uint8] | Skip:
    """The content of a record: examples, a mark, click codes (u8[k]) that lie ahead of their mark, or a skip.

    Raises ForeignRecord, NewerVersion, DamagedRecord. A `memoryview` or `bytearray` must be copied to bytes
    first.
    """
    return decode_record(open_record(value, where))


def decode_record(record: LogRecord) -> ExampleRecord | Mark | NDArray[np.uint8] | Skip:
    """The content of an opened record, as `decode` returns it. Raises DamagedRecord."""
    if record.header.kind is Kind.SKIP:
        return decode_skip(record)
    if record.header.kind is Kind.EXAMPLES:
        return decode_examples(record)
    if record.header.kind is Kind.MARK:
        return decode_mark(record)
    return decode_codes(record)


def decode_examples(record: LogRecord) -> ExampleRecord:
    """The examples of a record of kind `EXAMPLES`, once checksum, lengths and every index have been checked.

    Raises DamagedRecord.
    """
    header, body, where = record.header, record.body, record.where
    if len(body) < _SIZES.size or header.flags & ~(_WEIGHTED | _SOFT):
        raise DamagedRecord(f"a record of examples of {record.size_bytes} bytes with flags {header.flags}", where)
    n, k, m, v, first_ms = _SIZES.unpack_from(body)
    most_rows, fields = _bound_sizes(record) if header.version == COUNTED else (0, 0)
    sizes = _array_sizes(header.flags, n, k, m, v, fields)
    at = _SIZES.size + (_BOUND.size if fields else 0)
    if at + sum(sizes) != len(body) or n == 0:
        raise DamagedRecord(f"{record.size_bytes} bytes for {n} examples, {k} keys, {m} features, {v} values", where)
    views = []
    for size, empty in zip(sizes, _EMPTY, strict=True):
        views.append(np.frombuffer(body, empty.dtype, size // empty.itemsize, at) if size else empty)
        at += size
    keys, id_hash, values, weight, soft, hashes, delta, positions, indices, row_len, hard, counted = views
    wrong = _verify(keys, delta, positions, indices, row_len, hard)
    if not wrong and first_ms > _MAX_MS - int(delta[-1]):
        wrong = _BEYOND
    if not wrong and len(counted) and counted.max() > fields:
        wrong = _NO_FIELD
    if wrong:
        raise DamagedRecord(_WRONG[wrong], where)
    return ExampleRecord(
        partition=header.partition,
        tick=header.tick,
        attempt=header.attempt,
        sequence=header.sequence,
        log_time_ms=first_ms + delta.astype(np.int64),
        id_hash=id_hash,
        label=soft if header.flags & _SOFT else hard.astype(np.float64),
        weight=weight if header.flags & _WEIGHTED else np.ones(n),
        keys=keys,
        indices=indices,
        row_len=row_len,
        positions=positions,
        values=values,
        bound=FieldBound(most_rows, tuple(hashes.tolist())) if fields else None,
        counted=counted,
    )


def _bound_sizes(record: LogRecord) -> tuple[int, int]:
    """The most rows of a field, and how many fields there are. Raises DamagedRecord."""
    if len(record.body) < _SIZES.size + _BOUND.size:
        raise DamagedRecord(f"a record of examples of {record.size_bytes} bytes", record.where)
    most_rows, fields = _BOUND.unpack_from(record.body, _SIZES.size)
    if not (most_rows >= 1 and 1 <= fields <= MOST_NUMBERS):
        raise DamagedRecord(f"at most {most_rows} rows for each of {fields} fields", record.where)
    return most_rows, fields


def to_batch(record: ExampleRecord) -> ExampleBatch:
    """The examples of a record as columns again, bit for bit as they were encoded."""
    row_start = np.zeros(len(record) + 1, np.int64)
    np.cumsum(record.row_len, out=row_start[1:])
    values = np.ones(len(record.indices))
    values[record.positions] = record.values
    return ExampleBatch(
        record.log_time_ms,
        record.id_hash,
        record.label,
        record.weight,
        row_start,
        record.keys[record.indices],
        values,
        record.counted if record.bound is None else record.counted[record.indices],
    )


_DTYPES = ("<u8", "<u8", "<f8", "<f8", "<f8", "<u8", "<u4", "<u4", "<u2", "<u2", "u1", "u1")
_EMPTY: tuple[NDArray[Any], ...] = tuple(np.frombuffer(b"", dtype) for dtype in _DTYPES)
"""The arrays without elements, made once: most records lack some arrays, and a view of none takes a quarter of a µs."""


def _array_sizes(flags: int, n: int, k: int, m: int, v: int, f: int = 0) -> tuple[int, ...]:
    """Bytes of the arrays of a record, in order; f: how many fields are counted."""
    weighted, soft = bool(flags & _WEIGHTED), bool(flags & _SOFT)
    last = n * (not soft), k * (f > 0)
    return 8 * k, 8 * n, 8 * v, 8 * n * weighted, 8 * n * soft, 8 * f, 4 * n, 4 * v, 2 * m, 2 * n, *last


class _Columns:
    """A batch that has been checked, with what all its records share: flags, narrower columns, the bound on fields."""

    def __init__(self, batch: ExampleBatch, bound: FieldBound | None) -> None:
        _check_batch(batch)
        self.batch = batch
        self.bound = bound
        self.bound_bytes = b""
        self.hashes = np.zeros(0, np.uint64)
        if bound is not None:
            _check_numbers(batch, bound)
            self.bound_bytes = _BOUND.pack(bound.most_rows, len(bound.hashes))
            self.hashes = np.array(bound.hashes, np.uint64)
        self.row_len = np.diff(batch.row_start).astype(np.uint16)
        weighted = bool((batch.weight != 1.0).any())
        soft = not bool(((batch.label == 0.0) | (batch.label == 1.0)).all())
        self.flags = (_WEIGHTED if weighted else 0) | (_SOFT if soft else 0)
        self.row_bytes = sum(_array_sizes(self.flags, 1, 0, 0, 0))
        self.arrays_at = _ARRAYS_AT + len(self.bound_bytes) + 8 * len(self.hashes)


def _check_batch(batch: ExampleBatch) -> None:
    """Raise ValueError where the columns do not fit together: the kernel trusts them."""
    n, m = len(batch), len(batch.keys)
    rows = {len(batch.log_time_ms), len(batch.label), len(batch.weight), len(batch.row_start) - 1}
    if rows != {n} or len(batch.values) not in (0, m):
        raise ValueError("the columns of a batch differ in length")
    row_len = np.diff(batch.row_start)
    least, most = int(row_len.min()), int(row_len.max())
    if least < 0 or most > MAX_FEATURES:
        raise ValueError(f"an example has 0 to {MAX_FEATURES} features, not {least}..{most}")
    if batch.row_start[0] < 0 or batch.row_start[-1] > m:
        raise ValueError("rows outside the features of the batch")
    if bool((np.diff(batch.log_time_ms) < 0).any()):
        raise ValueError("the log times of a batch never decrease")


def _check_numbers(batch: ExampleBatch, bound: FieldBound) -> None:
    """Raise ValueError for a bound that no reader takes, or numbers that do not go with it."""
    fields = len(bound.hashes)
    if not (1 <= bound.most_rows < 1 << 64 and 1 <= fields <= MOST_NUMBERS):
        raise ValueError(f"at most {bound.most_rows} rows for each of {fields} fields")
    if len(batch.counted) != len(batch.keys) or int(batch.counted.max(initial=0)) > fields:
        raise ValueError(f"each feature needs the number of a field, at most {fields}")


def _encode_some(
    header: RecordHeader, columns: _Columns, row: int, max_bytes: int, scratch: Scratch
) -> tuple[int, bytes]:
    """Encode one record from example `row` on. Returns the example after it, and the record."""
    batch = columns.batch
    latest = min(int(batch.log_time_ms[row]) + _MAX_DELTA, _MAX_MS)
    end = int(np.searchsorted(batch.log_time_ms, latest, side="right"))
    features = int(batch.row_start[end] - batch.row_start[row])
    room = min(features, max(max_bytes // 2, MAX_FEATURES))
    if len(scratch.indices) < room:
        scratch.reserve(room)
    slots = min(scratch.slots, 1 << (4 * features + 256).bit_length())
    end, k, m, v, used, slots, stamp = number_keys(
        scratch.table,
        slots,
        scratch.next_stamp(),
        batch.row_start,
        row,
        end,
        batch.keys,
        batch.values,
        columns.row_bytes,
        8 if columns.bound is None else 9,
        max_bytes - columns.arrays_at,
        scratch.keys,
        scratch.indices,
        scratch.positions,
        scratch.values,
    )
    scratch.slots, scratch.stamp = slots, stamp + 1
    if columns.arrays_at + used > max_bytes:
        size = columns.arrays_at + used
        raise ValueError(f"an example of {m} features takes {size} bytes; a record has {max_bytes}")
    return end, seal(header, *_body(columns, row, end, k, m, v, scratch))


def _body(columns: _Columns, row: int, end: int, k: int, m: int, v: int, scratch: Scratch) -> list[bytes | memoryview]:
    """The parts of the body of a record with the examples `row..end-1`, whose features lie in `scratch`."""
    batch = columns.batch
    first_ms = int(batch.log_time_ms[row])
    rows = slice(row, end)
    parts: list[NDArray[np.generic]] = [scratch.keys[:k], batch.id_hash[rows], scratch.values[:v]]
    if columns.flags & _WEIGHTED:
        parts.append(batch.weight[rows])
    if columns.flags & _SOFT:
        parts.append(batch.label[rows])
    parts += [columns.hashes, (batch.log_time_ms[rows] - first_ms).astype(np.uint32)]
    parts += [scratch.positions[:v], scratch.indices[:m], columns.row_len[rows]]
    if not columns.flags & _SOFT:
        parts.append(batch.label[rows].astype(np.uint8))
    if columns.bound is not None:
        counted = np.empty(k, np.uint8)
        number_keys_of(scratch.indices, m, batch.counted, int(batch.row_start[row]), counted)
        parts.append(counted)
    sizes = _SIZES.pack(end - row, k, m, v, first_ms)
    return [sizes, columns.bound_bytes, *(np.ascontiguousarray(part).data for part in parts)]


_WRONG = (
    "",
    "the lengths of the examples do not add up to the features",
    "a feature that names no key",
    "a value that belongs to no feature, or out of order",
    "a key that is 0",
    "log times that go back",
    "a label that is neither 0 nor 1",
    "log times beyond 64 bits",
    "a key of a field that there is not",
)
_BEYOND = 7
_NO_FIELD = 8


@entry
def _verify(
    keys: ReadOnly[np.uint64],
    delta: ReadOnly[np.uint32],
    positions: ReadOnly[np.uint32],
    indices: ReadOnly[np.uint16],
    row_len: ReadOnly[np.uint16],
    hard: ReadOnly[np.uint8],
) -> int:
    """Check what the fold trusts. Returns 0, or the index in `_WRONG` of the message that says what is wrong."""
    total = np.int64(0)
    for i in range(len(row_len)):
        total += row_len[i]
    if total != len(indices):
        return 1
    top = np.uint16(0)
    for i in range(len(indices)):
        top = max(top, indices[i])
    if len(indices) > 0 and top >= len(keys):
        return 2
    before = np.int64(-1)
    for i in range(len(positions)):
        if positions[i] <= before:
            return 3
        before = np.int64(positions[i])
    if before >= len(indices):
        return 3
    zeros = 0
    for i in range(len(keys)):
        zeros += keys[i] == 0
    if zeros:
        return 4
    backward = delta[0] != 0
    for i in range(1, len(delta)):
        backward |= delta[i] < delta[i - 1]
    if backward:
        return 5
    strange = False
    for i in range(len(hard)):
        strange |= hard[i] > 1
    return 6 if strange else 0
