"""Records of `<model>.checkpoints`, the topic that checkpoints are copied to: their keys and bytes.

| key                             | partition | value                                                                  |
|---------------------------------|-----------|------------------------------------------------------------------------|
| `piece/<lineage>/<key in hex>`  | its shard | a page or a part of a delta: the bytes under that key in the store     |
| `head`                          | 0         | the head of the last checkpoint whose copy is complete                 |
| `copying`                       | 0         | the head of a copy that has begun, until a later `head` completes it   |

A lineage, 16 hex digits, is a random number of one state directory: two directories never write the same key. A null
value deletes a key. The values of `head` and `copying` are records of kind head as
`core/snapshots/records.py` lays them out, in shard 0; sequence and version are those of the checkpoint, and attempt is
a random number of this one copy. Their JSON body:

    copy_format   1
    lineage       of the pieces
    identity      whose state it is, as in the store
    head          the store's head record, base64
    versions      the store's version record of every shard, base64
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

from stream_learner.core.errors import NOWHERE, DamagedRecord, NewerVersion, Where
from stream_learner.core.snapshots.records import HeadRecord, Record, Stamp, VersionRecord, decode, encode_head

COPY_FORMAT = 1
HEAD_KEY = b"head"
COPYING_KEY = b"copying"
HEAD_SHARD = 0
_PIECE = b"piece/"


@dataclass(frozen=True, slots=True)
class CopyHead:
    """A copied checkpoint without its pieces: its head and its version records.

    head, versions: the store's own records, as bytes; `versions` has one for every shard. stamp: of shard 0, where
    `attempt` is another number for each copy.
    """

    stamp: Stamp
    lineage: str
    identity: dict[str, Any]
    head: bytes
    versions: tuple[bytes, ...]

    @property
    def sequence(self) -> int:
        """Number of the checkpoint in its store."""
        return self.stamp.sequence

    @property
    def tick(self) -> int:
        """The last tick folded into the checkpoint."""
        return self.stamp.version

    def head_record(self) -> HeadRecord:
        """The store's head. Raises RecordError."""
        return _expected(HeadRecord, decode(None, self.head))

    def version_records(self) -> list[VersionRecord]:
        """The store's version record of every shard. Raises RecordError, also for records of another checkpoint."""
        records = [_expected(VersionRecord, decode(None, version)) for version in self.versions]
        stamps = [self.head_record().stamp, *(record.stamp for record in records)]
        shards = [HEAD_SHARD, *range(len(records))]
        expected = [self.stamp._replace(shard=shard, shards=len(records), attempt=0) for shard in shards]
        if stamps != expected:
            raise DamagedRecord("a copy whose parts are of different checkpoints")
        return records


def encode_copy(copy: CopyHead) -> bytes:
    """The value of `head`, or of `copying`. Raises ValueError for values that change on their way through JSON."""
    content = {
        "copy_format": COPY_FORMAT,
        "lineage": copy.lineage,
        "identity": copy.identity,
        "head": base64.b64encode(copy.head).decode(),
        "versions": [base64.b64encode(version).decode() for version in copy.versions],
    }
    return encode_head(copy.stamp, content)


def decode_copy(value: bytes, where: Where = NOWHERE) -> CopyHead:
    """The head in a value of `head` or `copying`. Raises ForeignRecord, NewerVersion, DamagedRecord."""
    record = _expected(HeadRecord, decode(None, value, where), where)
    content = record.content
    try:
        if content["copy_format"] > COPY_FORMAT:
            raise NewerVersion(f"copy format {content['copy_format']}, this program knows {COPY_FORMAT}", where)
        lineage, identity, versions = content["lineage"], content["identity"], content["versions"]
        if not (isinstance(lineage, str) and isinstance(identity, dict) and isinstance(versions, list)):
            raise TypeError("lineage, identity or versions are of another type")
        head, *rest = [base64.b64decode(text, validate=True) for text in (content["head"], *versions)]
    except NewerVersion:
        raise
    except (KeyError, TypeError, ValueError) as error:
        raise DamagedRecord(f"the head of a copy that contradicts itself: {error}", where) from error
    return CopyHead(record.stamp, lineage, identity, head, tuple(rest))


def piece_key(lineage: str, key: bytes) -> bytes:
    """Kafka key of the piece that the store of this lineage has under `key`.

    >>> piece_key("00000000000000ab", b"p\\x01")
    b'piece/00000000000000ab/7001'
    """
    return _PIECE + lineage.encode() + b"/" + key.hex().encode()


def _expected(kind: type[Any], record: Record, where: Where = NOWHERE) -> Any:
    if not isinstance(record, kind):
        raise DamagedRecord(f"a {type(record).__name__} where a {kind.__name__} should be", where)
    return record
