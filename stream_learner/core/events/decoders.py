"""Impressions and clicks: from the bytes of Kafka records to columns.

In: records back to back (`data`), their `bounds` i64[n+1], their Kafka timestamps i64[n] in epoch ms.
A record without a value is an empty slice. Out: columns, with a `Reason` for every record that cannot be used; the
fingerprint of what decides them.
This file must never drop, reorder or raise for a record.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.engine import BatchDecoder
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.plan import Plan, Role
from stream_learner.core.events.reasons import Reason
from stream_learner.core.machine.hashing import xxh64

__all__ = ["ClickDecoder", "Clicks", "EventSpec", "ImpressionDecoder", "Impressions", "Reason", "TimeUnit"]

TimeUnit = Literal["ms", "s", "us", "iso", "auto"]


@dataclass(slots=True)
class Impressions:
    """Impressions of n records, in their order. A bad record has zeros and an empty row.

    status u8[n] (`Reason`, 0 = OK), time_ms i64[n] >= 0, id_hash u64[n] (never 0), weight f64[n] (finite, >= 0,
    1 where none is given), row_start i64[n+1], keys u64[m] (distinct within a row, never 0), values f64[m]
    (finite, never 0).
    """

    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    id_hash: NDArray[np.uint64]
    weight: NDArray[np.float64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]

    def __len__(self) -> int:
        return len(self.status)


@dataclass(slots=True)
class Clicks:
    """Clicks of n records, in their order. A bad record has zeros.

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
    """Where an event keeps what every event has. Paths are names as in `feature_spec`: `user.id` is `id` in `user`.

    id: a string, or an integer within [-2^63, 2^64), which is the same id as its decimal text.
    time: None takes the Kafka record's timestamp. A time field may be at most `max_skew_ms` ahead of that
    timestamp (not checked where the record has none, a negative one). time_unit: rules in `events.reference`.
    weight: of an impression, a finite number from 0 to `max_weight`; value: of a click, a number in [0, 1]; where the
    field is absent or null, 1. max_event_bytes: larger records are refused unread.
    Raises ValueError for contradicting settings.
    """

    id: str = "id"
    time: str | None = None
    time_unit: TimeUnit = "ms"
    weight: str | None = None
    value: str | None = None
    max_event_bytes: int = 1 << 20
    max_skew_ms: int = 60_000
    max_weight: float = math.inf

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
        """u64 that differs where two specifications read another id, time, weight or value from some event, or refuse
        another. It does not where they differ in what has no use, such as the unit of a time that is not there."""
        text = json.dumps(self._meaning(), sort_keys=True, separators=(",", ":"))
        return xxh64(f"events 1: {text}".encode())

    def differences(self, other: EventSpec) -> list[str]:
        """The settings by which the other reads events otherwise, or refuses others; empty if none.

        >>> EventSpec(time="t", max_weight=9.0).differences(EventSpec(time="t", time_unit="s"))
        ['time_unit']
        """
        mine, theirs = self._meaning(), other._meaning()
        return [name for name in self.__dataclass_fields__ if mine.get(name) != theirs.get(name)]

    def _meaning(self) -> dict[str, Any]:
        """The settings that have a use, with one form for what is the same, JSON-able."""
        found = {"id": self.id, "value": self.value, "max_event_bytes": self.max_event_bytes}
        if self.time is not None:
            found |= {"time": self.time, "time_unit": self.time_unit, "max_skew_ms": self.max_skew_ms}
        if self.weight is not None:
            found |= {"weight": self.weight, "max_weight": repr(float(self.max_weight))}
        return found

    def paths(self) -> tuple[str, ...]:
        """The paths that are set; none of them is ever a feature."""
        return tuple(path for path in (self.id, self.time, self.weight, self.value) if path is not None)

    def _plan(self, number: str | None, role: Role, features: FeatureSpec | None) -> Plan:
        wanted = {Role.ID: self.id, Role.TIME: self.time, role: number}
        return Plan(
            roles={path: role for role, path in wanted.items() if path is not None},
            features=features,
            ignore=self.paths(),
            time_unit=self.time_unit,
            max_skew_ms=self.max_skew_ms,
            max_event_bytes=self.max_event_bytes,
            max_number=self.max_weight if role is Role.WEIGHT else 1.0,
        )


class ImpressionDecoder:
    """Decodes impressions by one event and feature specification. One decoder serves one thread at a time.

    Raises ValueError if the feature specification uses the event's id, time, weight or value.
    """

    def __init__(self, event_spec: EventSpec, feature_spec: FeatureSpec) -> None:
        self.events, self.features = event_spec, feature_spec
        self._decoder = BatchDecoder(event_spec._plan(event_spec.weight, Role.WEIGHT, feature_spec))

    def decode(self, data: bytes, bounds: NDArray[np.int64], record_times_ms: NDArray[np.int64]) -> Impressions:
        """The impressions of the records data[bounds[i]:bounds[i+1]], i < n. The arrays are the caller's own.

        Raises ValueError if the bounds do not rise from 0 or more to len(data) or less, or lengths differ.
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
        )


class ClickDecoder:
    """Decodes clicks by one event specification. One decoder serves one thread at a time."""

    def __init__(self, event_spec: EventSpec) -> None:
        self.events = event_spec
        self._decoder = BatchDecoder(event_spec._plan(event_spec.value, Role.VALUE, None))

    def decode(self, data: bytes, bounds: NDArray[np.int64], record_times_ms: NDArray[np.int64]) -> Clicks:
        """The clicks of the records data[bounds[i]:bounds[i+1]], i < n. The arrays are the caller's own.

        Raises ValueError if the bounds do not rise from 0 or more to len(data) or less, or lengths differ.
        """
        columns = self._decoder.decode(data, bounds, record_times_ms)
        return Clicks(columns.status, columns.time_ms, columns.id_hash, columns.number)
