"""JSON lines: one object a line, whose fields become features exactly as the joiner makes them.

Rows of CSV and Parquet become such objects too (`ObjectRows`), so that there is one rule of features.

Features, label and weight are all read by the decoder of events, so that no key differs from those of a training log.

The label is a finite number, `true`, `false`, or one of the texts "0", "1" and "-1"; if it is null or absent, there is
nothing to learn. The weight is a finite number of 0 or more; if it is null or absent, it is 1. Empty lines are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import orjson
from numpy.typing import NDArray

from stream_learner.core.events.decoders import BatchDecoder, Columns
from stream_learner.core.events.feature_spec import FeatureSpec, FieldSpec
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Reason
from stream_learner.core.events.reference import beyond_float64
from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.machine.hashing import hash_texts
from stream_learner.evaluate.formats.base import Fault, Parsed

_LABEL_TEXTS = {"true": 1.0, "false": 0.0, "1": 1.0, "0": 0.0, "-1": -1.0}


class JsonLines:
    """Parses JSON lines. The columns it hands out are the caller's own. One thread at a time."""

    def __init__(
        self,
        *,
        label: str | None = "label",
        weight: str | None = None,
        features: FeatureSpec | None = None,
        ignore: Sequence[str] = (),
    ) -> None:
        """label, weight: names of fields, joined with `.` inside objects. ignore: fields that are no features, such as
        an event's id and time. label None: nothing to learn, only to predict.

        Raises ValueError if the specification uses one of them, or label and weight are the same.
        """
        if label is not None and label == weight:
            raise ValueError(f"field {label!r} cannot be label and weight")
        self._spec = FeatureSpec() if features is None else features
        roles = tuple(name for name in (label, weight) if name is not None)
        self._features = BatchDecoder(Plan({}, self._spec, (*roles, *ignore)))
        self._label = _NumberField(label, "a finite number as label, or true or false", _LABEL_TEXTS)
        self._weight = _NumberField(weight, "a finite number of 0 or more as weight", {})

    def parse(self, text: bytes | memoryview, first_line: int) -> Parsed:
        """The examples of whole lines, the first of which has number `first_line`."""
        data = np.frombuffer(text, np.uint8) if len(text) else np.zeros(0, np.uint8)
        bounds, blank = _line_bounds(data)
        found = self._features.decode(data, bounds)
        label, bad_label = self._label.read(data, bounds, np.nan)
        weight, bad_weight = self._weight.read(data, bounds, 1.0)
        bad_weight |= weight < 0.0
        bad = ((found.status != Reason.OK) | bad_label | bad_weight) & ~blank
        faults = [
            self._fault(data[bounds[i] : bounds[i + 1]].tobytes().rstrip(b"\r\n"), first_line + i, *why)
            for i, *why in zip(np.flatnonzero(bad).tolist(), found.status[bad], bad_label[bad], strict=True)
        ]
        lines = first_line + np.arange(len(blank))
        return kept_rows(found, ~bad & ~blank, lines, label, weight, faults)

    def _fault(self, line: bytes, number: int, status: int, bad_label: bool) -> Fault:
        """The fault of a line, with its column where that is known, else column 1."""
        reason = Reason(status)
        if reason is Reason.NOT_JSON:
            return Fault(number, _not_json_at(line), "numbers within float64" if beyond_float64(line) else "JSON")
        if reason is not Reason.OK:
            return Fault(number, 1, expected_of(reason, self._spec))
        field = self._label if bad_label else self._weight
        return Fault(number, field.place_in(line), field.expected)


def expected_of(reason: Reason, spec: FeatureSpec) -> str:
    """What JSON that was refused for this reason should be."""
    return {
        Reason.NOT_OBJECT: "a JSON object",
        Reason.NOT_FINITE: "features with finite values",
        Reason.TOO_MANY_FEATURES: f"at most {spec.max_features:,} features",
        Reason.NOT_A_TIME: "a time in each field of kind hour, weekday or hour_of_week",
        Reason.VALUE_TOO_LONG: f"names and texts of at most {spec.max_value_bytes:,} bytes",
    }[reason]


def kept_rows(
    found: Columns,
    good: NDArray[np.bool_],
    lines: NDArray[np.int64],
    label: NDArray[np.float64],
    weight: NDArray[np.float64],
    faults: list[Fault],
) -> Parsed:
    """The rows of decoded objects that are `good` bool[n], with their lines i64[n], labels and weights f64[n]."""
    row_len = np.diff(found.row_start)
    row_start = np.zeros(int(good.sum()) + 1, np.int64)
    np.cumsum(row_len[good], out=row_start[1:])
    taken = slice(None) if row_start[-1] == len(found.keys) else np.repeat(good, row_len)
    batch = ExampleBatch(
        log_time_ms=np.zeros(len(row_start) - 1, np.int64),
        id_hash=lines[good].astype(np.uint64),
        label=label[good],
        weight=np.abs(weight[good]),
        row_start=row_start,
        keys=found.keys[taken],
        values=found.values[taken],
    )
    return Parsed(batch, lines[good], ~np.isnan(batch.label), [], faults)


class ObjectRows:
    """Makes examples of rows of a table that were written as JSON objects, and whose labels and weights are known."""

    def __init__(self, spec: FeatureSpec, roles: Sequence[str]) -> None:
        """roles: columns that are no features. Raises ValueError if the specification uses one of them."""
        self.plan = Plan({}, spec, tuple(roles))
        self._spec = spec
        self._decoder = BatchDecoder(self.plan)

    def parsed(
        self,
        objects: Sequence[bytes],
        lines: Sequence[int],
        label: Sequence[float] | NDArray[np.float64],
        weight: Sequence[float] | NDArray[np.float64],
        faults: Sequence[Fault],
        column_of: Callable[[int, str], int],
    ) -> Parsed:
        """The examples of n rows in the order of their lines.

        faults: those of other rows. column_of: the column of a fault, from a line and the name of a field.
        """
        found = self._decoder.decode(b"".join(objects), np.cumsum([0, *map(len, objects)]))
        bad = list(faults)
        for row in np.flatnonzero(found.status).tolist():
            expected = expected_of(Reason(found.status[row]), self._spec)
            name = self._refused(objects[row])
            bad.append(Fault(lines[row], 1 if name is None else column_of(lines[row], name), expected))
        columns = np.array(lines, np.int64), np.array(label, np.float64), np.array(weight, np.float64)
        return kept_rows(found, found.status == Reason.OK, *columns, sorted(bad))

    def _refused(self, line: bytes) -> str | None:
        """The first field of an object that is refused alone, None if it is all of them together."""
        for name, value in orjson.loads(line).items():
            alone = orjson.dumps({name: value})
            if self._decoder.decode(alone, np.array([0, len(alone)])).status[0]:
                return str(name)
        return None


class _NumberField:
    """One field of the lines as a number, read by the decoder of events as if it were the only feature.

    A value of 0 gives no feature; so does an absent field, but that has the missing indicator. At most one feature is
    allowed, so that a list of two numbers is refused.
    """

    def __init__(self, name: str | None, expected: str, texts: Mapping[str, float]) -> None:
        """texts: what counts as a number besides numbers. A name of None is a field that no line has."""
        self.expected = expected
        self._name = name
        if name is None:
            return
        number = FieldSpec("number", missing="indicator")
        spec = FeatureSpec(include=(name,), fields={name: number}, bias=False, max_features=1)
        self._decoder = BatchDecoder(Plan({}, spec))
        field = spec.in_keys(name)
        written = [field, f"{field}:missing", *(f"{field}={text}" for text in texts)]
        self._number, self._missing, *keys = hash_texts([text.encode() for text in written])
        self._texts = dict(zip(keys, texts.values(), strict=True))

    def read(
        self, data: NDArray[np.uint8], bounds: NDArray[np.int64], default: float
    ) -> tuple[NDArray[np.float64], NDArray[np.bool_]]:
        """The numbers f64[n], `default` where the field is absent; and bool[n]: the field holds something else."""
        n = len(bounds) - 1
        if self._name is None:
            return np.full(n, default), np.zeros(n, bool)
        found = self._decoder.decode(data, bounds)
        numbers = np.zeros(n)
        bad = found.status != Reason.OK
        rows = np.flatnonzero(np.diff(found.row_start))
        numeric = found.keys == self._number
        numbers[rows] = np.where(numeric, found.values, default)
        known = numeric | (found.keys == self._missing)
        for key, number in self._texts.items():
            same = found.keys == key
            numbers[rows[same]] = number
            known |= same
        bad[rows[~known]] = True
        return numbers, bad

    def place_in(self, line: bytes) -> int:
        """The column, from 1, where the field's last name seems to stand; 1 where it is not found."""
        last = (self._name or "").rsplit(".", 1)[-1]
        return line.find(json.dumps(last, ensure_ascii=False).encode()) + 1 or 1


def _line_bounds(data: NDArray[np.uint8]) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
    """The begin of each line and the end of the last, i64[n+1]; and bool[n]: the line is empty but for its end."""
    ends = np.flatnonzero(data == 0x0A) + 1
    if len(data) and (not len(ends) or ends[-1] < len(data)):
        ends = np.append(ends, len(data))
    bounds = np.concatenate([np.zeros(1, np.int64), ends.astype(np.int64)])
    size = np.diff(bounds)
    first, last = data[bounds[:-1]], data[bounds[1:] - 1]
    blank = (size == 1) & (first == 0x0A) | (size == 2) & (first == 0x0D) & (last == 0x0A)
    return bounds, blank


def _not_json_at(line: bytes) -> int:
    """The byte of a line, from 1, where it stops being JSON."""
    try:
        text = line.decode()
        json.loads(text)
    except UnicodeDecodeError as error:
        return error.start + 1
    except json.JSONDecodeError as error:
        return len(text[: error.pos].encode()) + 1
    except RecursionError:
        return 1
    return 1
