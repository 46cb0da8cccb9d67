"""The 40 bytes with which every record of the training log begins, and its two checksums.

Layout, little-endian. Magic and version stay where they are in every later version:

    offset  type  field
         0  4s    magic, b"SLTL"
         4  u16   version: 1; of marks 5, of codes 4, or less in old logs (see `RULES` in `marks.py`); of skips 3;
                  of examples that say which field each key is of 4
         6  u8    kind: 1 examples, 2 mark, 3 codes of a resume point, 4 skip
         7  u8    flags, by kind
         8  u32   partition
        12  u32   sequence: place among the attempt's records for the tick; in a mark their number
        16  u64   attempt
        24  i64   tick; in a mark the last one it covers
        32  u32   CRC-32 (zlib) of bytes 0..31
        36  u32   CRC-32 of bytes 40 to the end
        40        body

The header has a checksum of its own because rule R has to know whose record it is before it knows whether anybody
reads the body. So `open_record` checks the header only. `LogRecord.body`, the only way to the body, checks the rest.
"""

from __future__ import annotations

import struct
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from stream_learner.core.errors import NOWHERE, DamagedHeader, DamagedRecord, ForeignRecord, NewerVersion, Where
from stream_learner.core.machine.checksum import crc32

MAGIC = b"SLTL"
VERSION = 5
HEADER_BYTES = 40

_FIELDS = struct.Struct("<4sHBBIIQq")
_CHECKSUMS = struct.Struct("<II")
_KNOWN_VERSION = struct.Struct("<4sH")
_MAX_U64 = (1 << 64) - 1


class Kind(IntEnum):
    """The kind of a record, by its content."""

    EXAMPLES = 1
    MARK = 2
    CODES = 3
    SKIP = 4


VERSION_OF: Final = MappingProxyType({Kind.EXAMPLES: 1, Kind.MARK: 5, Kind.CODES: 4, Kind.SKIP: 3})
"""The version in which each kind is written; examples with a bound on the rows of each field in `COUNTED` instead."""
COUNTED: Final = 4
_READ: Final = MappingProxyType(
    {Kind.EXAMPLES: (1, COUNTED), Kind.MARK: (1, 2, 3, 4, 5), Kind.CODES: (1, 4), Kind.SKIP: (3,)}
)
"""The versions in which each kind is read."""
_KINDS: Final = MappingProxyType({int(kind): kind for kind in Kind})


class RecordHeader(NamedTuple):
    """The fields of a header, once checked."""

    kind: Kind
    flags: int
    partition: int
    sequence: int
    attempt: int
    tick: int
    version: int = 1


def seal(header: RecordHeader, *body: bytes | bytearray | memoryview) -> bytes:
    """Header, checksums and body, whose parts follow one another, as one record.

    Raises ValueError where a field does not fit its type.
    """
    if not 0 <= header.attempt <= _MAX_U64:
        raise ValueError(f"attempt {header.attempt} is not an unsigned 64-bit number")
    try:
        fields = _FIELDS.pack(
            MAGIC,
            header.version,
            header.kind,
            header.flags,
            header.partition,
            header.sequence,
            header.attempt,
            header.tick,
        )
    except struct.error as error:
        raise ValueError(f"{header} does not fit the record's header: {error}") from error
    checksum = 0
    for part in body:
        checksum = crc32(part, checksum)
    return b"".join((fields, _CHECKSUMS.pack(crc32(fields), checksum), *body))


class LogRecord:
    """An opened record: its header has been checked, its body is checked when it is first asked for.

    where: where the record lies, for errors about it.
    """

    __slots__ = ("_body", "_value", "header", "where")

    def __init__(self, header: RecordHeader, value: bytes, where: Where) -> None:
        """Use `open_record`."""
        self.header = header
        self.where = where
        self._value = value
        self._body: memoryview | None = None

    @property
    def size_bytes(self) -> int:
        """Bytes of the whole record."""
        return len(self._value)

    @property
    def value(self) -> bytes:
        """All bytes of the record."""
        return self._value

    @property
    def body(self) -> memoryview:
        """The bytes after the header, as they were sealed. Raises DamagedRecord."""
        return self.check_body() if self._body is None else self._body

    def check_body(self) -> memoryview:
        """Compare the body with its checksum and return it. Raises DamagedRecord."""
        body = memoryview(self._value)[HEADER_BYTES:]
        if _CHECKSUMS.unpack_from(self._value, 32)[1] != crc32(body):
            raise DamagedRecord("the body's checksum does not match", self.where)
        self._body = body
        return body


def open_record(value: bytes, where: Where = NOWHERE) -> LogRecord:
    """Read the header and check it. The body is not looked at yet.

    Raises ForeignRecord (empty, too short, other magic), NewerVersion, DamagedHeader (cut short, wrong checksum),
    DamagedRecord (unknown kind).
    """
    if not value:
        raise ForeignRecord("an empty value; the training log holds none", where)
    if len(value) < _KNOWN_VERSION.size or value[:4] != MAGIC:
        raise ForeignRecord("not a record of the training log", where)
    version = _KNOWN_VERSION.unpack_from(value)[1]
    if version > VERSION:
        raise NewerVersion(f"version {version}; this program knows up to {VERSION}", where)
    if version < 1 or len(value) < HEADER_BYTES:
        raise DamagedHeader(f"no whole header: version {version}, {len(value)} bytes", where)
    if _CHECKSUMS.unpack_from(value, 32)[0] != crc32(value[:32]):
        raise DamagedHeader("the header's checksum does not match", where)
    _, _, kind, flags, partition, sequence, attempt, tick = _FIELDS.unpack_from(value)
    known = _KINDS.get(kind)
    if known is None or version < _READ[known][0]:
        raise DamagedRecord(f"unknown kind of record {kind}", where)
    if version not in _READ[known]:
        raise NewerVersion(f"version {version} of {known.name.lower()}; this program knows {_READ[known][-1]}", where)
    return LogRecord(RecordHeader(known, flags, partition, sequence, attempt, tick, version), value, where)
