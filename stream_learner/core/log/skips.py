"""The record with which an operator says that a damaged record of the training log is passed over.

A skip lies behind the record that it names, and has an effect only where rule R would stop at that record
(`rule_r.py`). It is bound to the bytes it was written for: a copy of it in another log, or in a topic that was made
anew, does nothing.

Body of a skip, version 3, little-endian, after the header of `log.header`. In the header sequence and attempt are 0 and
the tick is -1:

    offset  type   field
        40  i64    offset of the record that is passed over
        48  i64    when it was said, ms since 1970
        56  u32    CRC-32 of all bytes of that record
        60  u16    bytes of who said it
        62  u16    bytes of the reason
        64  u8[]   who said it, UTF-8
         …  u8[]   the reason, UTF-8
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from stream_learner.core.errors import DamagedRecord
from stream_learner.core.log.header import VERSION_OF, Kind, LogRecord, RecordHeader, seal
from stream_learner.core.log.marks import GENESIS
from stream_learner.core.machine.checksum import crc32

_BODY = struct.Struct("<qqIHH")
MOST_TEXT_BYTES = 4_096


@dataclass(frozen=True, slots=True)
class Skip:
    """Says that the record at `offset` of `partition`, with these bytes, is passed over.

    checksum: `checksum_of` its value. at_ms: when it was said. who, why: by whom, and the reason.
    """

    partition: int
    offset: int
    checksum: int
    at_ms: int
    who: str
    why: str


def checksum_of(value: bytes | None) -> int:
    """CRC-32 of all bytes of a record's value."""
    return crc32(value or b"")


def encode_skip(skip: Skip) -> bytes:
    """The skip as one record. Raises ValueError where a field does not fit."""
    who, why = skip.who.encode(), skip.why.encode()
    if max(len(who), len(why)) > MOST_TEXT_BYTES:
        raise ValueError(f"a text of more than {MOST_TEXT_BYTES} bytes")
    if skip.offset < 0:
        raise ValueError(f"offset {skip.offset}")
    header = RecordHeader(Kind.SKIP, 0, skip.partition, 0, GENESIS.attempt, GENESIS.last_tick, VERSION_OF[Kind.SKIP])
    return seal(header, _BODY.pack(skip.offset, skip.at_ms, skip.checksum, len(who), len(why)) + who + why)


def decode_skip(record: LogRecord) -> Skip:
    """The skip that a record of kind `SKIP` holds. Raises DamagedRecord."""
    body = record.body
    if len(body) < _BODY.size:
        raise DamagedRecord(f"a skip of {record.size_bytes} bytes", record.where)
    offset, at_ms, checksum, who_bytes, why_bytes = _BODY.unpack_from(body)
    texts = bytes(body[_BODY.size :])
    if offset < 0 or len(texts) != who_bytes + why_bytes:
        raise DamagedRecord("a skip that contradicts itself", record.where)
    try:
        who, why = texts[:who_bytes].decode(), texts[who_bytes:].decode()
    except UnicodeDecodeError as error:
        raise DamagedRecord("a skip whose texts are not UTF-8", record.where) from error
    return Skip(record.header.partition, offset, checksum, at_ms, who, why)
