"""JSON lines: one object a line, whose fields become features exactly as the joiner makes them.

Features, label and weight are all read by the decoder of events, so that no key differs from those of a training log.

The label is a finite number, `true`, `false`, or one of the texts "0", "1" and "-1"; if it is null or absent, there is
nothing to learn. The weight is a finite number of 0 or more; if it is null or absent, it is 1. Empty lines are skipped.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence

import numpy as np
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
_EXPECTED = {
    Reason.NOT_OBJECT: "a JSON object",
    Reason.NOT_FINITE: "features with finite values",
}


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
        good = ~bad & ~blank
        places = np.flatnonzero(bad).tolist()
        return Parsed(
            batch=_chosen(found, good, label, np.abs(weight), first_line),
            lines=first_line + np.flatnonzero(good),
            labelled=~np.isnan(label[good]),
            tags=[],
            faults=[
                self._fault(
                    data[bounds[i] : bounds[i + 1]].tobytes().rstrip(b"\r\n"),
                    first_line + i,
                    found.status[i],
                    bad_label[i],
                )
                for i in places
            ],
        )

    def _fault(self, line: bytes, number: int, status: int, bad_label: bool) -> Fault:
        """The fault of a line, with its column where that is known, else column 1."""
        reason = Reason(status)
        if reason is Reason.NOT_JSON:
            return Fault(number, _not_json_at(line), "numbers within float64" if beyond_float64(line) else "JSON")
        if reason is Reason.TOO_MANY_FEATURES:
            return Fault(number, 1, f"at most {self._spec.max_features:,} features")
        if reason is Reason.VALUE_TOO_LONG:
            return Fault(number, 1, f"names and texts of at most {self._spec.max_value_bytes:,} bytes")
        if reason is not Reason.OK:
            return Fault(number, 1, _EXPECTED[reason])
        field = self._label if bad_label else self._weight
        return Fault(number, field.place_in(line), field.expected)


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


def _chosen(
    found: Columns, good: NDArray[np.bool_], label: NDArray[np.float64], weight: NDArray[np.float64], first_line: int
) -> ExampleBatch:
    row_len = np.diff(found.row_start)
    row_start = np.zeros(int(good.sum()) + 1, np.int64)
    np.cumsum(row_len[good], out=row_start[1:])
    whole = bool(row_start[-1] == len(found.keys))
    taken = slice(None) if whole else np.repeat(good, row_len)
    return ExampleBatch(
        log_time_ms=np.zeros(len(row_start) - 1, np.int64),
        id_hash=(first_line + np.flatnonzero(good)).astype(np.uint64),
        label=label[good],
        weight=weight[good],
        row_start=row_start,
        keys=found.keys[taken],
        values=found.values[taken],
    )


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
