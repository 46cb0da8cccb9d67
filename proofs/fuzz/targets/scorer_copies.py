"""Copies of a version that a scorer keeps: what is read back is written again as it was, or refused by a known error.

Most damaged copies get a right checksum, so that they are not all refused there.
"""

from __future__ import annotations

import io
import struct
import zlib
from collections.abc import Sequence
from random import Random

from proofs.fuzz.guard import Side
from proofs.fuzz.mutate import mutated, shuffled
from proofs.fuzz.target import Target, Wrong
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots.replica_copy import Copy, WholeVersion, encode_copy, read_copy

_HEADER_BYTES = 16
_RECORD = struct.Struct("<HHI")
_CRC_BYTES = 4


class ScorerCopies(Target):
    """Whole files."""

    name = "scorer-copies"

    def make(self, rng: Random) -> bytes:
        data = rng.choice(self.corpus)
        if rng.random() < 0.2:
            return mutated(rng, data, self.corpus)
        body = data[:-_CRC_BYTES]
        if rng.random() < 0.4:
            head, records = _records(body)
            body = head + b"".join(
                shuffled(rng, records) if rng.random() < 0.5 else rng.choices(records, k=len(records))
            )
        if rng.random() < 0.8:
            body = mutated(rng, body, [other[:-_CRC_BYTES] for other in self.corpus])
        return body + zlib.crc32(body).to_bytes(_CRC_BYTES, "little")

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(data) for data in inputs)

    def _check(self, data: bytes) -> bool:
        try:
            copy = read_copy(io.BytesIO(data), len(data))
        except RecordError:
            return False
        if zlib.crc32(data[:-_CRC_BYTES]).to_bytes(_CRC_BYTES, "little") != data[-_CRC_BYTES:]:
            raise Wrong("a copy whose checksum is wrong was read")
        written = b"".join(encode_copy(_whole(copy), copy.published_ms))
        again = read_copy(io.BytesIO(written), len(written))
        if _shown(again) != _shown(copy):
            raise Wrong(f"a copy written again is {str(_shown(again))[:200]}, not {str(_shown(copy))[:200]}")
        return True


def _records(body: bytes) -> tuple[bytes, list[bytes]]:
    """The header of a true copy, and its records."""
    at, records = _HEADER_BYTES, []
    while at < len(body):
        _, key_bytes, value_bytes = _RECORD.unpack_from(body, at)
        end = at + _RECORD.size + key_bytes + value_bytes
        records.append(body[at:end])
        at = end
    return body[:_HEADER_BYTES], records


def _whole(copy: Copy) -> WholeVersion:
    served = copy.replica.served
    if served is None:
        raise Wrong("a copy without a version was read")
    return WholeVersion(served, copy.replica.shards, *copy.replica.all_rows())


def _shown(copy: Copy) -> tuple[object, ...]:
    """Version, digest and weights."""
    served, (keys, weights) = copy.replica.served, copy.replica.all_rows()
    assert served is not None
    return served.version, served.digest, copy.published_ms, keys.tobytes(), weights.tobytes()
