"""Records of `<model>.snapshots`: their keys, their bytes, and the records of a publication of one shard.

Checkpoints have the same records, whose rows carry the optimizer's state columns instead of a weight.

Keys (ASCII): `model` (shard 0 only; `head` in checkpoints), `version`, `delta/<slot>/<part>`, `page/<prefix>` with the
bits of the prefix as characters 0 and 1. A null value deletes its key. Values are little-endian; offsets in bytes:

     0  4s   magic b"SLsn"
     4  u16  format version, 1
     6  u8   kind: 1 model, 2 version, 3 delta, 4 page, 5 head of a checkpoint
     7  u8   ncols: 0 for weights, else the number of state columns
     8  u32  CRC-32 (zlib) of all other bytes: 0 to 7, then 12 to the end
    12  u32  count: rows; of a version its pages; of a model or head the bytes of its body
    16  u16  shard
    18  u16  shards
    20  u32  delta: part.  version: records of this publication in this shard, itself and tombstones not counted
    24  u32  delta: parts. version: slots of the ring
    28  u32  page: bits of the prefix
    32  u64  sequence: number of the publication in this shard, from 1, below 2^62
    40  u64  attempt: differs whenever a publication is tried again
    48  i64  version: the tick up to which the model is folded
    56  u64  page: first key of the prefix. version: digest of the learner's state at the version
    64       body

Body of a delta or page: keys u64[count], rising; then weights f32[count], or, with ncols > 0, touched i64[count] and
columns f64[count, ncols]. A delta holds zero rows too, a page does not.
Body of a version: first keys of the pages' prefixes u64[count], rising; publication that wrote each page last
u64[count]; records held by each slot of the ring u32[ring], 2^20 at most together; bits of each prefix u8[count].
Body of a model or head: a JSON object (UTF-8).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import Any, NamedTuple

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_learner.core.errors import NOWHERE, DamagedRecord, ForeignRecord, NewerVersion, Where
from stream_learner.core.machine.checksum import crc32
from stream_learner.core.snapshots.pages import PagePlan, PageState, Prefix, is_partition, shard_prefix
from stream_learner.core.snapshots.rows import AnyRows, Rows, StateRows, WeightRows, row_bytes

MAGIC = b"SLsn"
FORMAT_VERSION = 1
HEADER_BYTES = 64
MODEL_KEY = b"model"
HEAD_KEY = b"head"
VERSION_KEY = b"version"
MODEL_SHARD = 0
MODEL_FIELDS = ("name", "tick_ms", "features", "optimizer", "inputs", "metrics")
PUBLISHED_SLICES = 12
"""The latest slices of the progressive metrics are in the model record, so that models can be compared."""
MAX_SEQUENCE = (1 << 62) - 1
"""No publisher gets that far, and sums of sequence numbers stay within 64 bits."""
MAX_DELTA_RECORDS = 1 << 20
"""In the ring of one shard, where readers list them all: 1 TiB of changed rows in records of the default size."""

_HEADER = struct.Struct("<4sHBBIIHHIIIQQqQ")
_CRC_AT = 8


class Kind(IntEnum):
    """The kinds of records."""

    MODEL = 1
    VERSION = 2
    DELTA = 3
    PAGE = 4
    HEAD = 5


class Stamp(NamedTuple):
    """The fields that all records of a publication in a shard share."""

    shard: int
    shards: int
    sequence: int
    attempt: int
    version: int


@dataclass(frozen=True, slots=True)
class ModelRecord:
    """The record with what a scorer must know of the model. `content` is of `model_record`, with "digest" (16 hex
    digits), "format", "shards".
    """

    stamp: Stamp
    content: dict[str, Any]


@dataclass(frozen=True, slots=True)
class VersionRecord:
    """The last record of a publication in a shard. `records` counts those before it, tombstones not included."""

    stamp: Stamp
    digest: int
    records: int
    state: PageState


@dataclass(frozen=True, slots=True)
class DeltaRecord:
    """Part `part` of `parts` of the rows changed by a publication."""

    stamp: Stamp
    part: int
    parts: int
    rows: AnyRows


@dataclass(frozen=True, slots=True)
class PageRecord:
    """All rows whose keys have the prefix, as of the version, but for weights of 0."""

    stamp: Stamp
    prefix: Prefix
    rows: AnyRows


@dataclass(frozen=True, slots=True)
class HeadRecord:
    """All that a checkpoint holds beside rows: positions, scalars, and what else the learner puts there."""

    stamp: Stamp
    content: dict[str, Any]


Record = ModelRecord | VersionRecord | DeltaRecord | PageRecord | HeadRecord


class Inputs(NamedTuple):
    """The model's input topics, as the model record names them.

    impressions, clicks: topics. ignored_fields: paths in an impression that are no features. window_ms: of the join.
    """

    impressions: str
    clicks: str
    ignored_fields: list[str]
    window_ms: int


def model_record(
    *,
    name: str,
    tick_ms: int,
    features: Mapping[str, Any],
    kind: Mapping[str, Any],
    log: str,
    inputs: Inputs,
    metrics: Mapping[str, Any],
    slices: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """The content of a model record; `encode_model` adds the digest, the format and the number of shards.

    features: the feature spec. kind: `Learner.kind`. log: the topic of the training log. metrics, slices: the
    figures of `Progress`, of which the latest `PUBLISHED_SLICES` slices are kept.
    """
    return {
        "name": name,
        "tick_ms": tick_ms,
        "features": features,
        **kind,
        "log": log,
        "inputs": inputs._asdict(),
        "metrics": metrics,
        "slices": slices[-PUBLISHED_SLICES:],
    }


def delta_key(slot: int, part: int) -> bytes:
    """Kafka key of a part of the delta in a slot of the ring."""
    return b"delta/%d/%d" % (slot, part)


def page_key(prefix: Prefix) -> bytes:
    """Kafka key of a page."""
    return b"page/" + prefix.text.encode()


def encode_model(stamp: Stamp, digest: int, content: Mapping[str, Any]) -> bytes:
    """The model record. Raises ValueError if one of `MODEL_FIELDS` is missing."""
    missing = [name for name in MODEL_FIELDS if name not in content]
    if missing:
        raise ValueError(f"a model record needs {', '.join(missing)}")
    own = {"format": FORMAT_VERSION, "shards": stamp.shards, "digest": f"{digest:016x}"}
    body = orjson.dumps({**content, **own}, option=orjson.OPT_SORT_KEYS)
    return _sealed(stamp, Kind.MODEL, count=len(body), body=body)


def encode_head(stamp: Stamp, content: Mapping[str, Any]) -> bytes:
    """The head of a checkpoint. Raises ValueError for values that change on their way through JSON (NaN, tuples)."""
    body = orjson.dumps(dict(content))
    if orjson.loads(body) != content:
        raise ValueError("the head of a checkpoint holds values that JSON cannot keep")
    return _sealed(stamp, Kind.HEAD, count=len(body), body=body)


def encode_version(stamp: Stamp, digest: int, records: int, state: PageState) -> bytes:
    """The version record: the pages of the shard, and the number of records that the publication has before it.

    Raises ValueError for more delta records than `MAX_DELTA_RECORDS`, which `decode` would refuse.
    """
    _check_delta_records(state.slot_parts)
    prefixes = [prefix for prefix, _ in state.pages]
    body = b"".join(
        (
            np.array([prefix.bits for prefix in prefixes], "<u8").tobytes(),
            np.array([last for _, last in state.pages], "<u8").tobytes(),
            state.slot_parts.astype("<u4").tobytes(),
            bytes(prefix.nbits for prefix in prefixes),
        )
    )
    ring = len(state.slot_parts)
    return _sealed(stamp, Kind.VERSION, count=len(prefixes), part=records, parts=ring, word=digest, body=body)


def encode_delta(stamp: Stamp, part: int, parts: int, rows: AnyRows) -> bytes:
    """One part of a delta."""
    return _sealed(stamp, Kind.DELTA, ncols=rows.ncols, count=len(rows), part=part, parts=parts, body=_body(rows))


def encode_page(stamp: Stamp, prefix: Prefix, rows: AnyRows) -> bytes:
    """One page; `rows` has neither zero rows nor keys without the prefix."""
    return _sealed(
        stamp,
        Kind.PAGE,
        ncols=rows.ncols,
        count=len(rows),
        nbits=prefix.nbits,
        word=prefix.bits,
        body=_body(rows),
    )


def publication(
    plan: PagePlan[Rows], stamp: Stamp, digest: int, content: Mapping[str, Any] | None
) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values of one publication in one shard, in the order to send them; None deletes.

    `content` is that of the model record, for shard 0 only. Raises ValueError if the stamp is not that of the plan.
    """
    if stamp.sequence != plan.sequence or (content is not None) != (stamp.shard == MODEL_SHARD):
        raise ValueError(f"publication {plan.sequence} of shard {stamp.shard} with stamp {stamp}")
    if content is not None:
        yield MODEL_KEY, encode_model(stamp, digest, content)
    for part, rows in enumerate(plan.parts):
        yield delta_key(plan.slot, part), encode_delta(stamp, part, len(plan.parts), rows)
    for slot, part in plan.retired:
        yield delta_key(slot, part), None
    for prefix in plan.removed:
        yield page_key(prefix), None
    for prefix, page_rows in plan.pages:
        yield page_key(prefix), encode_page(stamp, prefix, page_rows)
    records = len(plan.parts) + len(plan.pages) + (content is not None)
    yield VERSION_KEY, encode_version(stamp, digest, records, plan.state)


def decode(key: bytes | None, value: bytes, where: Where = NOWHERE) -> Record:
    """The record with these bytes.

    Arrays are read-only views into `value`. Raises ForeignRecord, NewerVersion, or DamagedRecord: also for a record
    under another's key, and for contents that contradict each other.
    """
    header = _opened(value, where)
    stamp = Stamp(header.shard, header.shards, header.sequence, header.attempt, header.version)
    try:
        record = _DECODERS[Kind(header.kind)](header, stamp, memoryview(value)[HEADER_BYTES:])
    except (ValueError, KeyError, OverflowError) as error:
        raise DamagedRecord(f"a snapshot record that contradicts itself: {error}", where) from error
    if key is not None and not _belongs(key, record):
        raise DamagedRecord(f"a {Kind(header.kind).name.lower()} record under the key {key[:80]!r}", where)
    return record


def stamp_of(value: bytes) -> Stamp:
    """The stamp of a record of any kind. Raises what `decode` raises, but does not look at the body."""
    header = _opened(value, NOWHERE)
    return Stamp(header.shard, header.shards, header.sequence, header.attempt, header.version)


class _Header(NamedTuple):
    magic: bytes
    format: int
    kind: int
    ncols: int
    crc: int
    size: int
    shard: int
    shards: int
    part: int
    parts: int
    nbits: int
    sequence: int
    attempt: int
    version: int
    word: int


def _sealed(
    stamp: Stamp,
    kind: Kind,
    *,
    count: int,
    body: bytes,
    ncols: int = 0,
    part: int = 0,
    parts: int = 0,
    nbits: int = 0,
    word: int = 0,
) -> bytes:
    shard, shards, sequence, attempt, version = stamp
    record = bytearray(
        _HEADER.pack(
            MAGIC, FORMAT_VERSION, kind, ncols, 0, count, shard, shards, part, parts, nbits, sequence, attempt,
            version, word,
        )
    )  # fmt: skip
    record += body
    struct.pack_into("<I", record, _CRC_AT, _checksum(record))
    return bytes(record)


def _checksum(record: bytes | bytearray) -> int:
    view = memoryview(record)
    return crc32(view[_CRC_AT + 4 :], crc32(view[:_CRC_AT]))


def _opened(value: bytes, where: Where) -> _Header:
    if value[:4] != MAGIC:
        raise ForeignRecord("not a snapshot record of stream-learner", where)
    if len(value) >= 6 and int.from_bytes(value[4:6], "little") > FORMAT_VERSION:
        found = int.from_bytes(value[4:6], "little")
        raise NewerVersion(f"snapshot format {found}, this program knows {FORMAT_VERSION}", where)
    if len(value) < HEADER_BYTES:
        raise DamagedRecord(f"a snapshot record of {len(value)} bytes", where)
    header = _Header(*_HEADER.unpack_from(value))
    if header.format != FORMAT_VERSION or _checksum(value) != header.crc:
        raise DamagedRecord("a snapshot record whose checksum is wrong", where)
    if header.sequence > MAX_SEQUENCE:
        raise DamagedRecord(f"a snapshot record of publication {header.sequence}, more than there can be", where)
    return header


def _body(rows: AnyRows) -> bytes:
    keys = rows.keys.astype("<u8", copy=False).tobytes()
    if isinstance(rows, WeightRows):
        return keys + rows.weights.astype("<f4", copy=False).tobytes()
    columns = np.ascontiguousarray(rows.columns, "<f8")
    return b"".join((keys, rows.touched.astype("<i8", copy=False).tobytes(), columns.tobytes()))


def _rows(header: _Header, body: memoryview, prefix: Prefix) -> AnyRows:
    """The rows of a delta or page, all of whose keys have the prefix."""
    count, ncols = header.size, header.ncols
    if len(body) != count * row_bytes(ncols):
        raise ValueError(f"{len(body)} bytes for {count} rows")
    keys = np.frombuffer(body, "<u8", count)
    if count and (not (keys[1:] > keys[:-1]).all() or keys[0] < prefix.bits or keys[-1] > prefix.last):
        raise ValueError("keys out of order or out of range")
    if not ncols:
        return WeightRows(keys, np.frombuffer(body, "<f4", count, 8 * count))
    touched = np.frombuffer(body, "<i8", count, 8 * count)
    columns = np.frombuffer(body, "<f8", count * ncols, 16 * count).reshape(count, ncols)
    return StateRows(keys, columns, touched)


def _decode_json(header: _Header, stamp: Stamp, body: memoryview) -> dict[str, Any]:
    content = orjson.loads(body)
    if len(body) != header.size or not isinstance(content, dict) or stamp.shard != MODEL_SHARD:
        raise ValueError("not one JSON object in shard 0")
    return content


def _decode_head(header: _Header, stamp: Stamp, body: memoryview) -> Record:
    return HeadRecord(stamp, _decode_json(header, stamp, body))


def _decode_model(header: _Header, stamp: Stamp, body: memoryview) -> Record:
    content = _decode_json(header, stamp, body)
    missing = [name for name in (*MODEL_FIELDS, "digest", "format", "shards") if name not in content]
    if missing:
        raise ValueError(f"a model record without {', '.join(missing)}")
    return ModelRecord(stamp, content)


def _decode_version(header: _Header, stamp: Stamp, body: memoryview) -> Record:
    count, ring = header.size, header.parts
    if len(body) != 17 * count + 4 * ring:
        raise ValueError(f"{len(body)} bytes for {count} pages and {ring} slots")
    firsts = np.frombuffer(body, "<u8", count).tolist()
    written = np.frombuffer(body, "<u8", count, 8 * count).tolist()
    slot_parts = np.frombuffer(body, "<u4", ring, 16 * count).astype(np.int64)
    _check_delta_records(slot_parts)
    nbits = bytes(body[16 * count + 4 * ring :])
    prefixes = [Prefix(*page) for page in zip(firsts, nbits, strict=True)]
    if not is_partition(shard_prefix(stamp.shard, stamp.shards), prefixes):
        raise ValueError("pages that do not cover the shard exactly")
    if not all(1 <= sequence <= stamp.sequence for sequence in written):
        raise ValueError("a page of a later publication")
    state = PageState(stamp.sequence, tuple(zip(prefixes, written, strict=True)), slot_parts)
    return VersionRecord(stamp, header.word, header.part, state)


def _check_delta_records(slot_parts: NDArray[np.int64]) -> None:
    records = int(slot_parts.sum())
    if records > MAX_DELTA_RECORDS:
        raise ValueError(f"{records:,} delta records in a ring, more than {MAX_DELTA_RECORDS:,}")


def _decode_delta(header: _Header, stamp: Stamp, body: memoryview) -> Record:
    if not 0 <= header.part < header.parts:
        raise ValueError(f"part {header.part} of {header.parts}")
    rows = _rows(header, body, shard_prefix(stamp.shard, stamp.shards))
    return DeltaRecord(stamp, header.part, header.parts, rows)


def _decode_page(header: _Header, stamp: Stamp, body: memoryview) -> Record:
    prefix, shard = Prefix(header.word, header.nbits), shard_prefix(stamp.shard, stamp.shards)
    if not shard.nbits <= prefix.nbits <= 64 or prefix.bits & (prefix.last ^ prefix.bits):
        raise ValueError("an impossible prefix")
    if prefix.bits < shard.bits or prefix.last > shard.last:
        raise ValueError("a page of another shard")
    return PageRecord(stamp, prefix, _rows(header, body, prefix))


_DECODERS = {
    Kind.MODEL: _decode_model,
    Kind.VERSION: _decode_version,
    Kind.DELTA: _decode_delta,
    Kind.PAGE: _decode_page,
    Kind.HEAD: _decode_head,
}


def _belongs(key: bytes, record: Record) -> bool:
    if isinstance(record, ModelRecord):
        return key == MODEL_KEY
    if isinstance(record, VersionRecord):
        return key == VERSION_KEY
    if isinstance(record, HeadRecord):
        return key == HEAD_KEY
    if isinstance(record, PageRecord):
        return key == page_key(record.prefix)
    head, _, part = key.rpartition(b"/")
    return part == b"%d" % record.part and head.startswith(b"delta/") and head[6:].isdigit()
