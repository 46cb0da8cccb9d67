"""The bounds on the rows of a model: which new keys get a row, and which features are left out of their examples.

The learner goes through the examples in the order of the log, and through the features of each in their order. A key
that has a row keeps it. A key that has none gets one, if its field has fewer rows than the bound of its record allows
(`core.log.field_bound`), and if there are fewer than `max_rows` rows; else its feature is left out of this example, and
the example is learned without it. A row counts from the first example that names its key, whatever becomes of that
example. It counts for the field that the key has in that record.

So who gets a row follows from the examples, their order and the bounds in their records, as the fold does: not from how
examples are cut into records, nor from the order of a record's dictionary. The rows are in every checkpoint, also those
whose columns are still 0, and so are the counts of the fields: a learner that begins with a checkpoint decides as one
that never stopped. Where there was no bound yet, a row counts once it has changed, and for no field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.log.subset import DROPPED, without_keys
from stream_learner.core.machine.entries import I64, U8, U16, entry
from stream_learner.core.model.table.table import WeightTable

_UNNAMED = 0
_KNOWN = 1
_NEW = 2
_NO_ROOM = 3
_FIELD_FULL = 4
_ENDLESS = 1 << 62


@entry
def _decide(indices: U16, state: U8, room: int, counted: U8, field_room: I64, held_back: I64) -> int:
    """Give unknown keys a row while there is room, in the order in which the features `indices` name them.

    `state` u8[k] is `_KNOWN` or `_UNNAMED` for each key; unknown keys that are named become `_NEW`, `_FIELD_FULL` or
    `_NO_ROOM`. `counted` u8[k]: the field of each key; a row takes one from `room` and one from the `field_room` of its
    field, and a feature that is left out because its field is full adds one to `held_back` there. Returns how many
    features are left out for want of `room`.
    """
    no_room = 0
    for i in range(len(indices)):
        key = indices[i]
        if state[key] == _UNNAMED:
            if field_room[counted[key]] <= 0:
                state[key] = _FIELD_FULL
            elif room <= 0:
                state[key] = _NO_ROOM
            else:
                state[key] = _NEW
                room -= 1
                field_room[counted[key]] -= 1
        if state[key] == _FIELD_FULL:
            held_back[counted[key]] += 1
        no_room += state[key] == _NO_ROOM
    return no_room


class RowBound:
    """The bound of one table. `held_back` counts the features that it left out, in all examples so far."""

    def __init__(self, max_rows: int) -> None:
        """max_rows: at least 1."""
        if max_rows < 1:
            raise ValueError(f"max_rows must be 1 or more, not {max_rows}")
        self.max_rows = max_rows
        self.held_back = 0


class FieldRows:
    """The rows of each field, counted from the first record on that brought a bound on them.

    Fields are known by the hash of their name (u64). rows: how many rows each has got. held_back: the features that
    were left out because their field had its rows, in all examples so far. most_rows: the bound of the newest record.
    """

    def __init__(self) -> None:
        self.rows: Counter[int] = Counter()
        self.held_back: Counter[int] = Counter()
        self.most_rows = 0

    def state(self) -> dict[str, Any]:
        """All of it in JSON's types; `restored` takes it."""
        return {
            "most_rows": self.most_rows,
            "rows": {f"{name:016x}": count for name, count in sorted(self.rows.items())},
            "held_back": {f"{name:016x}": count for name, count in sorted(self.held_back.items())},
        }

    @classmethod
    def restored(cls, state: Mapping[str, Any]) -> FieldRows:
        """The counts of a `state`."""
        found = cls()
        found.most_rows = int(state["most_rows"])
        found.rows.update({int(name, 16): int(count) for name, count in state["rows"].items()})
        found.held_back.update({int(name, 16): int(count) for name, count in state["held_back"].items()})
        return found

    def room(self, record: ExampleRecord) -> NDArray[np.int64]:
        """How many rows each field of a record's bound may still get, by its number there; 0 has no bound."""
        if record.bound is None:
            return np.array([_ENDLESS])
        most_rows = min(record.bound.most_rows, _ENDLESS)
        return np.array([_ENDLESS, *(most_rows - self.rows[name] for name in record.bound.hashes)])

    def note(self, record: ExampleRecord, given: NDArray[np.int64], held_back: NDArray[np.int64]) -> None:
        """Count the rows that were given, and the features left out, by the numbers of a record's bound."""
        for number in np.flatnonzero(given[1:] | held_back[1:]).tolist():
            assert record.bound is not None
            name = record.bound.hashes[number]
            self.rows[name] += int(given[number + 1])
            if held_back[number + 1]:
                self.held_back[name] += int(held_back[number + 1])


def without_strangers(
    record: ExampleRecord, table: WeightTable, bound: RowBound | None, fields: FieldRows | None
) -> ExampleRecord:
    """The record without the features that get no row; the record itself if all of them have or get one.

    fields: needed for a record with a bound on the rows of fields.
    """
    room = _ENDLESS if bound is None else bound.max_rows - table.count
    if record.bound is None and len(record.keys) <= room:
        return record
    keys = np.ascontiguousarray(record.keys, np.uint64)
    state = table.known(keys).view(np.uint8)
    unknown = len(keys) - int(np.count_nonzero(state))
    if not unknown or (record.bound is None and unknown <= room):
        return record
    counted = np.zeros(len(keys), np.uint8) if record.bound is None else np.array(record.counted, np.uint8)
    field_room = (fields or FieldRows()).room(record)
    before, held_back = field_room.copy(), np.zeros(len(field_room), np.int64)
    no_room = _decide(np.array(record.indices, np.uint16), state, room, counted, field_room, held_back)
    if fields is not None:
        fields.note(record, before - field_room, held_back)
    if bound is not None:
        bound.held_back += no_room
    if not no_room and not held_back.any():
        return record
    kept = (state == _KNOWN) | (state == _NEW)
    place = np.where(kept, np.cumsum(kept) - 1, DROPPED).astype(np.int32)
    return without_keys(record, place)


def claim(record: ExampleRecord, table: WeightTable, rows: int, tick: int) -> None:
    """Count the rows of a folded record that are still 0; `rows` is the address of their addresses."""
    count = len(record.keys)
    if not table.has_untouched(rows, count):
        return
    named = np.zeros(count, np.bool_)
    named[record.indices] = True
    table.claim(rows, count, named, tick)
