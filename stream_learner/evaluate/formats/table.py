"""Tables whose columns have types, such as Parquet's, as examples with the same features as the joiner makes of JSON.

| a column of | becomes, for each of its values |
|---|---|
| numbers | the category of its size, or what else the specification says, as `core.events.features` has it |
| texts | key `XXH64("N=text")`, value 1; whole numbers of a categorical column likewise |

`N` is the name of the column, as `feature_keys` writes it.

A row may have several values of a column, or none; a row without one gets the missing indicator, if that is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.fast import layout as ctx
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.events.fast.finish import emit, finish_row, start_row
from stream_learner.core.events.fast.layout import FIELD_WATCH
from stream_learner.core.events.fast.strings import category_key
from stream_learner.core.events.feature_keys import SIZE_SHIFT, size_text
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.field_numbers import NOT_COUNTED
from stream_learner.core.events.plan import Plan
from stream_learner.core.machine.arithmetic import log1p
from stream_learner.core.machine.entries import F64, I64, U64, entry
from stream_learner.core.machine.hashing import hash_texts
from stream_learner.core.machine.kernels import kernel
from stream_learner.core.machine.memory import address_of, load_f64, load_i64, load_u64, store_i64
from stream_learner.evaluate.formats import kernel_state as lay
from stream_learner.evaluate.formats.base import Parsed
from stream_learner.evaluate.formats.kernel_parser import KernelParser
from stream_learner.evaluate.formats.kernel_state import State, has_room, keep, note_fault

_PADDING = np.zeros(ctx.PADDING, np.uint8)
_WORDS = 7
_NO_KEY = np.uint64(0)
_BAD_LABEL, _BAD_WEIGHT, _INFINITE, _TOO_LONG, _TOO_MANY = -1, -2, -3, -4, -5


class Features(NamedTuple):
    """The features of one column, table row after table row.

    place: the column's number from 1, for faults. row: the offset of the field in `FieldMemory`. row_start i64[n+1].
    keys u64[k] (0: the text is too long) and values f64[k]; either may be one for all.
    """

    place: int
    row: int
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]


@entry
def _log_of(values: F64) -> None:
    for i in range(len(values)):
        magnitude = log1p(abs(values[i]))
        values[i] = -magnitude if values[i] < 0.0 else magnitude


@entry
def _text_keys(context: int, row: int, data: int, bounds: I64, keys: U64) -> None:
    """Hash each text data + [bounds[i], bounds[i+1]) to its key. 64 bytes on both sides of the texts can be read.

    Of a text that is too long only the beginning is hashed; the caller replaces its key.
    """
    most = load_i64(context + ctx.CTX_MAX_VALUE_BYTES)
    for i in range(len(keys)):
        length = min(bounds[i + 1] - bounds[i], most)
        keys[i] = category_key(context, row, data + bounds[i], length, True)


@kernel
def _row(context: int, state: State, at: int) -> tuple[int, int]:
    """Read one table row: (number of the column it was read to, KEPT or a fault)."""
    table, count = state.columns, state.column_count
    start_row(context)
    for column in range(count):
        words = table + 8 * _WORDS * column
        place, starts, keys, values = load_i64(words), load_i64(words + 16), load_i64(words + 24), load_i64(words + 40)
        slot = load_i64(load_i64(words + 8) + FIELD_WATCH)
        for i in range(load_i64(starts + 8 * at), load_i64(starts + 8 * at + 8)):
            key = load_u64(keys + load_i64(words + 32) * i)
            value = load_f64(values + load_i64(words + 48) * i)
            if key == _NO_KEY:
                return place, _TOO_LONG
            if not np.isfinite(value):
                return place, _INFINITE
            if value == 0.0:
                store_i64(context + ctx.CTX_ZEROS, 1)
            if not emit(context, slot, NOT_COUNTED, key, value):
                return place, _TOO_MANY
    return 1, lay.KEPT if finish_row(context) else _TOO_MANY


@entry
def table_rows(context: int, state: State) -> int:
    """Read table rows until all are read, or room is short. Returns which: DONE or NO_ROOM."""
    labels, weights = state.labels_in, state.weights_in
    for at in range(state.at, state.end):
        state.at = at
        if not has_room(context, state):
            return lay.NO_ROOM
        label, weight = load_f64(labels + 8 * at), load_f64(weights + 8 * at)
        place, answer = _row(context, state, at)
        if np.isinf(label):
            place, answer = 1, _BAD_LABEL
        elif not (weight >= 0.0 and np.isfinite(weight)):
            place, answer = 1, _BAD_WEIGHT
        if answer < 0:
            note_fault(state, at + place - 1, answer)
        else:
            keep(context, state, label, abs(weight), not np.isnan(label))
        state.line = state.line + 1
    return lay.DONE


class TableRows:
    """Makes examples of tables. The columns it hands out are overwritten by the next table. One thread at a time."""

    def __init__(self, features: FeatureSpec, roles: Sequence[str] = ()) -> None:
        """roles: columns that are no features. Raises ValueError if the specification uses one of them."""
        self._spec = features
        self._plan = Plan({}, features, tuple(roles))
        self._memory = FieldMemory(self._plan)
        self._offsets: dict[str, int] = {}
        self._work = KernelParser(self._memory, _expected(features))

    def takes(self, name: str) -> bool:
        """Whether the column of this name, or one below it, may give features."""
        return self._plan.of(name).below

    def numbers(
        self, place: int, name: str, numbers: NDArray[np.float64] | NDArray[np.int64], row_start: NDArray[np.int64]
    ) -> Iterator[Features]:
        """The features of a column of numbers (any of NumPy's kinds), none NaN."""
        plan = self._plan.of(name)
        if not plan.feature:
            return
        kind, row, text = plan.settings.kind, self._row(name), plan.in_keys
        keys = np.array(hash_texts([text.encode()]), np.uint64)
        values = numbers.astype(np.float64)
        if kind == "category":
            whole = np.ones(len(values), bool) if numbers.dtype.kind in "iu" else values == np.floor(values)
            distinct, index = np.unique(numbers[whole], return_inverse=True)
            keys = np.repeat(keys, len(values))
            texts = [f"{text}={int(number)}".encode() for number in distinct.tolist()]
            keys[whole] = np.array(hash_texts(texts), np.uint64)[index]
            values[whole] = 1.0
        elif kind == "auto":
            sizes = (values + 0.0).view(np.uint64) >> np.uint64(SIZE_SHIFT)
            _, first, index = np.unique(sizes, return_index=True, return_inverse=True)
            texts = [f"{text}={size_text(number)}".encode() for number in values[first].tolist()]
            keys, values = np.array(hash_texts(texts), np.uint64)[index], np.where(np.isfinite(values), 1.0, values)
        elif kind == "bucket":
            edges = plan.settings.edges
            buckets = np.array(hash_texts([f"{text}=b{i}".encode() for i in range(len(edges) + 1)]), np.uint64)
            keys, values = buckets[np.searchsorted(edges, values, "right")], np.where(np.isfinite(values), 1.0, values)
        elif kind == "log":
            _log_of(values)
        yield Features(place, row, row_start, keys, values)

    def texts(
        self,
        place: int,
        name: str,
        data: NDArray[np.uint8],
        bounds: NDArray[np.int64],
        row_start: NDArray[np.int64],
        index: NDArray[np.int64] | None = None,
    ) -> Iterator[Features]:
        """The features of a column of texts data[bounds[i]:bounds[i+1]], or of the texts that `index` i64[k] names."""
        if not self._plan.of(name).feature:
            return
        row = self._row(name)
        keys = np.empty(len(bounds) - 1, np.uint64)
        padded = np.concatenate([_PADDING, data, _PADDING])
        lengths = np.diff(bounds)
        address = address_of(padded) + len(_PADDING)
        _text_keys(self._memory.context, self._memory.get(ctx.CTX_FIELDS) + row, address, bounds, keys)
        keys[lengths > self._spec.max_value_bytes] = 0
        yield Features(place, row, row_start, keys if index is None else keys[index], np.ones(1))

    def parsed(
        self, columns: Sequence[Features], label: NDArray[np.float64], weight: NDArray[np.float64], first_row: int
    ) -> Parsed:
        """The examples of all rows, from number `first_row` on. label f64[n], NaN where there is none."""
        rows = self._memory.get(ctx.CTX_FIELDS)
        table = np.array([_words(column, rows) for column in columns], np.int64).reshape(len(columns), _WORDS)
        label, weight = np.ascontiguousarray(label, np.float64), np.ascontiguousarray(weight, np.float64)
        self._work.state.columns = address_of(table) if len(columns) else 0
        self._work.state.column_count = len(columns)
        self._work.state.labels_in = address_of(label)
        self._work.state.weights_in = address_of(weight)
        return self._work.run_rows(table_rows, len(label), first_row)

    def _row(self, name: str) -> int:
        """The offset of a column's field in `FieldMemory`, made at the first call."""
        if name not in self._offsets:
            self._offsets[name] = self._memory.add_column(name)
        return self._offsets[name]


def _words(column: Features, rows: int) -> tuple[int, ...]:
    """A column as the kernel reads it: number, address of its field, row starts, keys, their stride, values, their
    stride."""
    strides = [0 if len(array) == 1 else 8 for array in (column.keys, column.values)]
    keys, values = address_of(column.keys), address_of(column.values)
    return column.place, rows + column.row, address_of(column.row_start), keys, strides[0], values, strides[1]


def _expected(spec: FeatureSpec) -> dict[int, str]:
    return {
        _BAD_LABEL: "a finite number as label, or none",
        _BAD_WEIGHT: "a finite number of 0 or more as weight",
        _INFINITE: "a finite number in this column",
        _TOO_LONG: f"a text of at most {spec.max_value_bytes:,} bytes in this column",
        _TOO_MANY: f"at most {spec.max_features:,} features, crosses among them, with finite values",
    }
