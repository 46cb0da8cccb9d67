"""The keys of a checkpoint's pieces, and what a checkpoint writes under each.

    shard     "p" <sequence u64> "d" <part u32>              a part of the delta
    shard     "p" <sequence u64> "p" <prefix u64> <bits u8>  a page
    shard     "version"                                      version record: which of these count
    default   "head"                                         head record
    default   "identity"                                     whose state this is, JSON

Numbers in keys are big-endian, so the keys of a column family are in the order in which they were written. The
package's docstring says what pages, deltas and sequences are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import NamedTuple

from stream_learner.core.snapshots.pages import PagePlan, PageState, Prefix
from stream_learner.core.snapshots.records import (
    HEADER_BYTES,
    DeltaRecord,
    PageRecord,
    Stamp,
    encode_delta,
    encode_page,
)
from stream_learner.core.snapshots.rows import StateRows, row_bytes

PIECE_BYTES = 1 << 20
HEAD, VERSION, IDENTITY = b"head", b"version", b"identity"
PIECES, PIECES_END = b"p", b"q"


class Piece(NamedTuple):
    """A value that a checkpoint writes: its shard, its key, about how many bytes it has, and what encodes it."""

    shard: int
    key: bytes
    size_bytes: int
    encode: Callable[[], bytes]


class StoredPiece(NamedTuple):
    """A piece that a committed checkpoint consists of: the sequence it was written with, its shard, key and kind."""

    sequence: int
    shard: int
    key: bytes
    kind: type[DeltaRecord | PageRecord]

    @property
    def order(self) -> tuple[int, int, bytes]:
        """Sorts pieces by the time they were written."""
        return self[:3]


def u64(number: int) -> bytes:
    """A number as it stands in keys."""
    return number.to_bytes(8, "big")


def _delta_key(sequence: int, part: int) -> bytes:
    return PIECES + u64(sequence) + b"d" + part.to_bytes(4, "big")


def page_key(sequence: int, prefix: Prefix) -> bytes:
    return PIECES + u64(sequence) + b"p" + u64(prefix.bits) + bytes([prefix.nbits])


def key_of(record: DeltaRecord | PageRecord) -> bytes:
    """The key of the piece that holds a record."""
    if isinstance(record, PageRecord):
        return page_key(record.stamp.sequence, record.prefix)
    return _delta_key(record.stamp.sequence, record.part)


def pieces_of(state: PageState) -> set[bytes]:
    """Keys of the pages and deltas that a state is made of."""
    pages = {page_key(sequence, prefix) for prefix, sequence in state.pages if sequence}
    return pages.union(key for _, key in delta_keys(state))


def delta_keys(state: PageState) -> Iterator[tuple[int, bytes]]:
    """Sequence and key of every part of a delta that a state needs, in the order of writing."""
    ring = len(state.slot_parts)
    for sequence in range(max(1, state.sequence - ring + 1), state.sequence + 1):
        for part in range(int(state.slot_parts[sequence % ring])):
            yield sequence, _delta_key(sequence, part)


def plan_pieces(plan: PagePlan[StateRows], stamp: Stamp) -> Iterator[Piece]:
    """The pieces that a checkpoint writes to a shard before its head."""
    sequence, parts = plan.sequence, len(plan.parts)
    for part, rows in enumerate(plan.parts):
        make = partial(encode_delta, stamp, part, parts, rows)
        yield Piece(stamp.shard, _delta_key(sequence, part), _value_bytes(rows), make)
    for prefix, rows in plan.pages:
        make = partial(encode_page, stamp, prefix, rows)
        yield Piece(stamp.shard, page_key(sequence, prefix), _value_bytes(rows), make)


def _value_bytes(rows: StateRows) -> int:
    return HEADER_BYTES + len(rows) * row_bytes(rows.ncols)
