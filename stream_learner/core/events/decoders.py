"""Impressions and clicks: from the bytes of Kafka records to columns.

A batch is records back to back (`data`), their `bounds` i64[n+1], and their Kafka timestamps i64[n] in epoch ms. A
record without a value is an empty slice. No record is dropped, reordered, or raises: every one has a status.

A `Form` says what the bytes of a topic's records are, and makes the decoder that gives their columns: `JSON`, here, or
one of `schema_forms`. Impressions and clicks are made from those columns, whatever the form.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Protocol, get_args

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.fast import layout as lay
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.events.fast.scanner import count_inside, decode_events, set_columns
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.field_numbers import FieldNumbers
from stream_learner.core.events.kinds import TimeUnit
from stream_learner.core.events.plan import Plan, Role
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.events.reference import PlainRow, parse_event, read_event, words_of
from stream_learner.core.machine.hashing import xxh64
from stream_learner.core.machine.memory import buffer_address

__all__ = ["ClickDecoder", "Clicks", "EventSpec", "ImpressionDecoder", "Impressions", "Reason", "TimeUnit"]

Batch = tuple[bytes | NDArray[np.uint8], NDArray[np.int64]]
"""Bytes of n records back to back, and their bounds i64[n+1]."""
AsJson = Callable[[bytes], bytes]
"""Makes of a record the JSON that it stands for. Raises Refused where it stands for none."""

_FIRST_GUESS = 48
EVENT_PADDING = bytes(lay.PADDING)
"""What must follow an event where kernels read it; its content does not matter."""
_REFUSED = PlainRow(number=0.0)


def _no_numbers() -> NDArray[np.uint8]:
    return np.zeros(0, np.uint8)


@dataclass(slots=True)
class Impressions:
    """Impressions of n records, in their order. A record that cannot be used has zeros and an empty row.

    status u8[n] (`Reason`, 0 = OK), time_ms i64[n] >= 0, id_hash u64[n] (never 0), weight f64[n] (finite, >= 0,
    1 where none is given), row_start i64[n+1], keys u64[m] (distinct within a row, never 0), values f64[m]
    (finite, never 0), counted u8[m]: the number under which each feature counts; u8[0] if nobody counts. values may be
    f64[0] where every value is 1, if the decoder leaves ones out. as_json: the events as JSON, where the records had
    another form, an empty slice for a record that has none; None where the records are the JSON.
    """

    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    id_hash: NDArray[np.uint64]
    weight: NDArray[np.float64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]
    counted: NDArray[np.uint8] = field(default_factory=_no_numbers)
    as_json: Batch | None = None

    def __len__(self) -> int:
        return len(self.status)


@dataclass(slots=True)
class Clicks:
    """Clicks of n records, in their order. A record that cannot be used has zeros.

    status u8[n] (`Reason`, 0 = OK), time_ms i64[n] >= 0, id_hash u64[n] (never 0), value f64[n] in [0, 1],
    1 where none is given.
    """

    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    id_hash: NDArray[np.uint64]
    value: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.status)


@dataclass(frozen=True)
class EventSpec:
    """The paths of id, time, weight and value in an event: names as in `feature_spec`, so `user.id` is `id` in `user`.

    id: its field holds a string, or an integer within [-2^63, 2^64), which is the same id as its decimal text.
    time: None means the timestamp of the Kafka record. A time field may be at most `max_skew_ms` ahead of that
    timestamp; this is not checked if the record has none, that is a negative one. time_unit: `events.reference` has
    the rules. weight: its field holds a finite number from 0 to `max_weight`. value: its field holds a number in
    [0, 1]. A weight or value that is absent or null is 1. max_event_bytes: larger records are refused unread.
    format: the form of the records; here it only tells specifications apart. Raises ValueError for contradicting
    settings.
    """

    id: str = "id"
    time: str | None = None
    time_unit: TimeUnit = "ms"
    weight: str | None = None
    value: str | None = None
    max_event_bytes: int = 1 << 20
    max_skew_ms: int = 60_000
    max_weight: float = math.inf
    format: str = "json"

    def __post_init__(self) -> None:
        if self.time_unit not in get_args(TimeUnit):
            raise ValueError(f"time_unit must be one of {', '.join(get_args(TimeUnit))}, not {self.time_unit!r}")
        if self.max_event_bytes < 1:
            raise ValueError(f"max_event_bytes must be 1 or more, not {self.max_event_bytes}")
        if self.max_skew_ms < 0:
            raise ValueError(f"max_skew_ms must be 0 or more, not {self.max_skew_ms}")
        if not self.max_weight > 0:
            raise ValueError(f"max_weight must be more than 0, not {self.max_weight}")
        paths = self.paths()
        for i, path in enumerate(paths):
            for other in (*paths[:i], *paths[i + 1 :]):
                if path == other or path.startswith(other + "."):
                    raise ValueError(f"id, time, weight and value need fields of their own: {path!r} and {other!r}")

    @cached_property
    def fingerprint(self) -> int:
        """u64 that differs between two specifications if they read some event differently, or only one refuses it.

        It does not differ for a setting without effect, such as the unit if there is no time field.
        """
        text = json.dumps(self._meaning(), sort_keys=True, separators=(",", ":"))
        return xxh64(f"events 1: {text}".encode())

    def differences(self, other: EventSpec) -> list[str]:
        """The settings by which the other specification reads or refuses events differently; empty if there are none.

        >>> EventSpec(time="t", max_weight=9.0).differences(EventSpec(time="t", time_unit="s"))
        ['time_unit']
        """
        mine, theirs = self._meaning(), other._meaning()
        return [name for name in self.__dataclass_fields__ if mine.get(name) != theirs.get(name)]

    def _meaning(self) -> dict[str, Any]:
        """The settings that have an effect, in one form for equal meanings, JSON-able."""
        found = {"id": self.id, "value": self.value, "max_event_bytes": self.max_event_bytes}
        if self.time is not None:
            found |= {"time": self.time, "time_unit": self.time_unit, "max_skew_ms": self.max_skew_ms}
        if self.weight is not None:
            found |= {"weight": self.weight, "max_weight": repr(float(self.max_weight))}
        if self.format != "json":
            found["format"] = self.format
        return found

    def paths(self, features: FeatureSpec | None = None) -> tuple[str, ...]:
        """The paths that are set; without that of the time, if these features have a kind for times for it.

        The fields of the others are never features.
        """
        timed = features is not None and self.time is not None and features.of(self.time).is_time
        wanted = (self.id, None if timed else self.time, self.weight, self.value)
        return tuple(path for path in wanted if path is not None)

    def impression_plan(self, features: FeatureSpec, numbers: FieldNumbers | None = None) -> Plan:
        """The plan to decode an impression; numbers: as of `Plan`.

        Raises ValueError if the features use its id, time, weight or value.
        """
        return self._plan(self.weight, Role.WEIGHT, features, self.max_weight, numbers)

    def click_plan(self) -> Plan:
        """The plan by which a click is decoded."""
        return self._plan(self.value, Role.VALUE, None, 1.0)

    def _plan(
        self,
        number: str | None,
        role: Role,
        features: FeatureSpec | None,
        max_number: float,
        numbers: FieldNumbers | None = None,
    ) -> Plan:
        wanted = {Role.ID: self.id, Role.TIME: self.time, role: number}
        return Plan(
            roles={path: role for role, path in wanted.items() if path is not None},
            features=features,
            ignore=self.paths(features),
            time_unit=self.time_unit,
            max_skew_ms=self.max_skew_ms,
            max_event_bytes=self.max_event_bytes,
            max_number=max_number,
            numbers=numbers,
        )


@dataclass(slots=True)
class Columns:
    """Columns of n events: status u8[n], time_ms i64[n], id_hash u64[n], number f64[n] (weight or value),
    row_start i64[n+1], keys u64[m], values f64[m] or f64[0], counted u8[m] or u8[0], as_json (as of `Impressions`).
    """

    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    id_hash: NDArray[np.uint64]
    number: NDArray[np.float64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]
    counted: NDArray[np.uint8]
    as_json: Batch | None = None


class RecordDecoder(Protocol):
    """The port for decoders: from the bytes of a batch to columns. One serves one thread at a time.

    The bytes stay the caller's and are not kept; the columns are the caller's own.
    """

    def decode(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], times_ms: NDArray[np.int64] | None = None
    ) -> Columns:
        """Columns of the n records data[bounds[i]:bounds[i+1]] with Kafka timestamps i64[n]; None if no time is wanted.

        Raises ValueError if the bounds do not fit the data, or the timestamps the bounds; `SchemaAwaited` where records
        cannot be read yet, and then nothing was decoded.
        """

    def words(self, raw: bytes, reason: Reason) -> str:
        """Why a record could not be used, in words for a person."""


class Form(Protocol):
    """The form of a topic's records."""

    def decoder(self, plan: Plan, ones_left_out: bool = False) -> RecordDecoder:
        """A decoder of records of this form. ones_left_out: as of `BatchDecoder`."""

    def as_json(self, plan: Plan) -> AsJson:
        """What makes of a record of this form the JSON that it stands for. plan: says which field is the time."""


class SchemaAwaited(Exception):
    """Records of a batch have a schema that is not known yet: the same call may succeed later. The text says why, and
    is empty where it is only being asked for.
    """


class BatchDecoder:
    """Decodes batches of events in JSON by one plan: by kernels, and by `reference` where they stop.

    One decoder serves one thread at a time. handed_over: how many events so far went through `reference`, because they
    were unusual or had unknown fields.
    """

    def __init__(self, plan: Plan, ones_left_out: bool = False) -> None:
        """ones_left_out: whether to leave out the values of batches, until one comes that is not 1."""
        self._plan = plan
        self._memory = FieldMemory(plan)
        self.context = self._memory.context
        """Address of the kernels' context."""
        self._most = plan.features.max_features + 1 if plan.features else 1
        self._with_values = not ones_left_out
        self._values_of_a_row = np.empty(self._most, np.float64)
        self._memory.set(lay.CTX_VALUES_STEP, int(self._with_values))
        self._row_length = float(_FIRST_GUESS if plan.features else 0)
        self.handed_over = 0

    def decode(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], times_ms: NDArray[np.int64] | None = None
    ) -> Columns:
        """Columns of the n events data[bounds[i]:bounds[i+1]] with Kafka timestamps i64[n]; None if no time is wanted.

        Raises ValueError if the bounds do not fit the data, or the timestamps the bounds.
        """
        bounds = np.ascontiguousarray(bounds, np.int64)
        n = len(bounds) - 1
        times = np.zeros(n, np.int64) if times_ms is None else np.ascontiguousarray(times_ms, np.int64)
        if n < 0 or bounds.ndim != 1 or times.shape != (n,):
            raise ValueError(f"bounds must be i64[n+1] and timestamps i64[n], not {bounds.shape} and {times.shape}")
        inside = events_inside(data, bounds)
        out = self._new_columns(n)
        if inside > 0:
            self._decode_at(buffer_address(data), data, bounds, times, 0, inside, out)
        if inside < n:
            start = int(bounds[inside])
            padded = np.frombuffer(bytes(data[start:]) + EVENT_PADDING, np.uint8)
            self._decode_at(buffer_address(padded) - start, data, bounds, times, inside, n, out)
        filled = int(out.row_start[n])
        out.keys, out.values, out.counted = out.keys[:filled], out.values[:filled], out.counted[:filled]
        self._row_length = filled / max(n, 1)
        return out

    def words(self, raw: bytes, reason: Reason) -> str:
        """Why a record could not be used, in words for a person: of a time, which field, and the shape of its value."""
        if reason in (Reason.BAD_TIME, Reason.NOT_A_TIME):
            try:
                read_event(self._plan, parse_event(raw, len(raw)), 0)
            except Refused as refused:
                return str(refused) if refused.reason is reason else reason.text
        return words_of(raw, reason)

    def _new_columns(self, n: int) -> Columns:
        room = int(n * self._row_length * 1.02) + self._most
        return Columns(
            np.zeros(n, np.uint8),
            np.empty(n, np.int64),
            np.empty(n, np.uint64),
            np.empty(n, np.float64),
            np.zeros(n + 1, np.int64),
            np.empty(room, np.uint64),
            np.empty(room if self._with_values else 0, np.float64),
            _no_numbers() if self._plan.numbers is None else np.empty(room, np.uint8),
        )

    def _decode_at(
        self,
        address: int,
        data: bytes | NDArray[np.uint8],
        bounds: NDArray[np.int64],
        times: NDArray[np.int64],
        first: int,
        last: int,
        out: Columns,
    ) -> None:
        """Decode events first to last - 1. address: where byte 0 of the bounds is."""
        context = self._memory.context
        places, stamps = buffer_address(bounds), buffer_address(times)
        while True:
            if self._plan.numbers is not None:
                self._memory.count_into(out.counted)
            values = out.values if self._with_values else self._values_of_a_row
            set_columns(context, first, out.time_ms, out.id_hash, out.number, out.row_start, out.keys, values)
            first = decode_events(context, address, places, stamps, first, last)
            if first == last:
                return
            stopped_by = self._memory.get(lay.CTX_STOPPED_BY)
            if stopped_by == lay.NO_ROOM:
                self._make_room(out)
                continue
            if stopped_by == lay.NO_VALUES:
                self._begin_values(out)
                continue
            raw = bytes(data[bounds[first] : bounds[first + 1]])
            self._decode_plainly(raw, int(times[first]), first, out)
            first += 1

    def _make_room(self, out: Columns) -> None:
        room = len(out.keys) + self._most
        out.keys = np.concatenate([out.keys, np.empty(room, np.uint64)])
        if self._with_values:
            out.values = np.concatenate([out.values, np.empty(room, np.float64)])
        if self._plan.numbers is not None:
            out.counted = np.concatenate([out.counted, np.empty(room, np.uint8)])

    def _begin_values(self, out: Columns) -> None:
        """Keep values from now on: this batch has one that is not 1."""
        self._with_values = True
        self._memory.set(lay.CTX_VALUES_STEP, 1)
        out.values = np.ones(len(out.keys))

    def plain_row(self, raw: bytes, time_ms: int = 0) -> PlainRow:
        """The event that the kernel stopped at last, by `reference`; its fields become known if they were unknown.

        Raises Refused.
        """
        self.handed_over += 1
        event = parse_event(raw, self._plan.max_event_bytes)
        if self._memory.get(lay.CTX_STOPPED_BY) == lay.UNKNOWN_FIELD:
            self._memory.add_fields_of(event)
        return read_event(self._plan, event, time_ms)

    def _decode_plainly(self, raw: bytes, time_ms: int, i: int, out: Columns) -> None:
        """Decode event i, at which the kernel stopped, by `reference`."""
        row = _REFUSED
        try:
            row = self.plain_row(raw, time_ms)
        except Refused as refused:
            out.status[i] = refused.reason
        filled = int(out.row_start[i])
        if len(out.keys) - filled < len(row.keys):
            self._make_room(out)
        behind = filled + len(row.keys)
        out.time_ms[i], out.id_hash[i], out.number[i] = row.time_ms, row.id_hash, row.number
        out.keys[filled:behind] = row.keys
        if not self._with_values and any(value != 1.0 for value in row.values):
            self._begin_values(out)
        if self._with_values:
            out.values[filled:behind] = row.values
        if self._plan.numbers is not None:
            out.counted[filled:behind] = [self._plan.numbers.of(origin) for origin in row.origins]
        out.row_start[i + 1] = behind


def events_inside(data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> int:
    """How many of the events data[bounds[i]:bounds[i+1]] kernels may read in place: behind them is enough of the data.

    Raises ValueError if the bounds i64[n+1] do not rise from 0 or more to len(data) or less.
    """
    inside = int(count_inside(buffer_address(bounds), len(bounds) - 1, len(data)))
    if inside < 0:
        raise ValueError(f"bounds must rise from 0 or more to at most the {len(data)} bytes of data")
    return inside


class JsonForm:
    """Records that are the JSON of an event, and nothing else."""

    def decoder(self, plan: Plan, ones_left_out: bool = False) -> RecordDecoder:
        """A decoder of such records."""
        return BatchDecoder(plan, ones_left_out)

    def as_json(self, plan: Plan) -> AsJson:
        """What gives such a record as it is."""
        return bytes


JSON = JsonForm()


class ImpressionDecoder:
    """Decodes impressions by one event and feature specification. One decoder serves one thread at a time.

    Raises ValueError if the feature specification uses the event's id, time, weight or value.
    """

    def __init__(
        self,
        event_spec: EventSpec,
        feature_spec: FeatureSpec,
        numbers: FieldNumbers | None = None,
        ones_left_out: bool = False,
        form: Form = JSON,
    ) -> None:
        """numbers: by which the fields of features are numbered; None if nobody counts them. ones_left_out: whether to
        leave out the values of batches, until one comes that is not 1. form: of the records."""
        self.events, self.features = event_spec, feature_spec
        self._decoder = form.decoder(event_spec.impression_plan(feature_spec, numbers), ones_left_out)
        self.words = self._decoder.words

    def decode(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], record_times_ms: NDArray[np.int64]
    ) -> Impressions:
        """The impressions of the records data[bounds[i]:bounds[i+1]], i < n. The arrays are the caller's own.

        Raises ValueError if the bounds do not rise from 0 or more to len(data) or less, or lengths differ; and
        SchemaAwaited, as `RecordDecoder` does.
        """
        columns = self._decoder.decode(data, bounds, record_times_ms)
        return Impressions(
            columns.status,
            columns.time_ms,
            columns.id_hash,
            columns.number,
            columns.row_start,
            columns.keys,
            columns.values,
            columns.counted,
            columns.as_json,
        )


class ClickDecoder:
    """Decodes clicks by one event specification. One decoder serves one thread at a time."""

    def __init__(self, event_spec: EventSpec, form: Form = JSON) -> None:
        self.events = event_spec
        self._decoder = form.decoder(event_spec.click_plan())
        self.words = self._decoder.words

    def decode(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], record_times_ms: NDArray[np.int64]
    ) -> Clicks:
        """The clicks of the records data[bounds[i]:bounds[i+1]], i < n. The arrays are the caller's own.

        Raises what `ImpressionDecoder.decode` raises.
        """
        columns = self._decoder.decode(data, bounds, record_times_ms)
        return Clicks(columns.status, columns.time_ms, columns.id_hash, columns.number)
