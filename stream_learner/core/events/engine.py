"""Batches of raw events to columns, by the fast path where it can and by the plain path where it must.

In: records back to back with their bounds. Out: one column per property of an event, and sparse rows of features.
This file must never raise for what a record holds: every record has a status.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.fast import layout as lay
from stream_learner.core.events.fast.fields import FieldMemory
from stream_learner.core.events.fast.scanner import count_inside, decode_events
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.plan import Plan, Role
from stream_learner.core.events.reasons import Refused
from stream_learner.core.events.reference import PlainRow, parse_event, read_event
from stream_learner.core.machine.memory import buffer_address

_FIRST_GUESS = 48
_PADDING = bytes(lay.PADDING)
_REFUSED = PlainRow(number=0.0)


@dataclass(slots=True)
class Columns:
    """status u8[n], time_ms i64[n], id_hash u64[n], number f64[n] (weight or value), row_start i64[n+1],
    keys u64[m], values f64[m]."""

    status: NDArray[np.uint8]
    time_ms: NDArray[np.int64]
    id_hash: NDArray[np.uint64]
    number: NDArray[np.float64]
    row_start: NDArray[np.int64]
    keys: NDArray[np.uint64]
    values: NDArray[np.float64]


class BatchDecoder:
    """Decodes batches of events by one plan. Not to be used by two threads at once.

    handed_over: how many events so far went through orjson, because they were unusual or had new fields.
    """

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._memory = FieldMemory(plan)
        self._most = plan.features.max_features + 1 if plan.features else 1
        self._row_length = float(_FIRST_GUESS if plan.features else 0)
        self.handed_over = 0

    def decode(
        self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64], times_ms: NDArray[np.int64] | None = None
    ) -> Columns:
        """Columns of the n events data[bounds[i]:bounds[i+1]] with Kafka timestamps i64[n] (None: not needed).

        Raises ValueError if the bounds do not fit the data, or the timestamps the bounds.
        """
        bounds = np.ascontiguousarray(bounds, np.int64)
        n = len(bounds) - 1
        times = np.zeros(n, np.int64) if times_ms is None else np.ascontiguousarray(times_ms, np.int64)
        if n < 0 or bounds.ndim != 1 or times.shape != (n,):
            raise ValueError(f"bounds must be i64[n+1] and timestamps i64[n], not {bounds.shape} and {times.shape}")
        inside = count_inside(buffer_address(bounds), n, len(data))
        if inside < 0:
            raise ValueError(f"bounds must rise from 0 or more to at most the {len(data)} bytes of data")
        out = self._new_columns(n)
        if inside > 0:
            self._decode_at(buffer_address(data), data, bounds, times, 0, inside, out)
        if inside < n:
            start = int(bounds[inside])
            padded = np.frombuffer(bytes(data[start:]) + _PADDING, np.uint8)
            self._decode_at(buffer_address(padded) - start, data, bounds, times, inside, n, out)
        filled = int(out.row_start[n])
        out.keys, out.values = out.keys[:filled], out.values[:filled]
        self._row_length = filled / max(n, 1)
        return out

    def _new_columns(self, n: int) -> Columns:
        room = int(n * self._row_length * 1.02) + self._most
        return Columns(
            np.zeros(n, np.uint8),
            np.empty(n, np.int64),
            np.empty(n, np.uint64),
            np.empty(n, np.float64),
            np.zeros(n + 1, np.int64),
            np.empty(room, np.uint64),
            np.empty(room, np.float64),
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
        """Events first to last - 1, whose bytes, counted by their bounds, lie from `address` on."""
        context = self._memory.context
        places, stamps = buffer_address(bounds), buffer_address(times)
        while True:
            arrays = (out.time_ms, out.id_hash, out.number, out.row_start, out.keys, out.values)
            first = decode_events(context, address, places, stamps, first, last, *arrays)
            if first == last:
                return
            if self._memory.get(lay.CTX_ANSWER) == lay.NO_ROOM:
                self._make_room(out)
                continue
            raw = bytes(data[bounds[first] : bounds[first + 1]])
            self._decode_plainly(raw, int(times[first]), first, out)
            first += 1

    def _make_room(self, out: Columns) -> None:
        room = len(out.keys) + self._most
        out.keys = np.concatenate([out.keys, np.empty(room, np.uint64)])
        out.values = np.concatenate([out.values, np.empty(room, np.float64)])

    def _decode_plainly(self, raw: bytes, time_ms: int, i: int, out: Columns) -> None:
        """Event i through orjson, and its fields into the kernel's memory if that did not know them."""
        self.handed_over += 1
        row = _REFUSED
        try:
            event = parse_event(raw, self._plan.max_event_bytes)
            if self._memory.get(lay.CTX_ANSWER) == lay.UNKNOWN_FIELD:
                self._memory.learn(event)
            row = read_event(self._plan, event, time_ms)
        except Refused as refused:
            out.status[i] = refused.reason
        filled = int(out.row_start[i])
        if len(out.keys) - filled < len(row.keys):
            self._make_room(out)
        behind = filled + len(row.keys)
        out.time_ms[i], out.id_hash[i], out.number[i] = row.time_ms, row.id_hash, row.number
        out.keys[filled:behind] = row.keys
        out.values[filled:behind] = row.values
        out.row_start[i + 1] = behind


def warm() -> None:
    """Compile every kernel of decoding, with the types they are called with."""
    raw = b'{"id":"a","n":1.5}'
    bounds = np.array([0, len(raw)])
    bounds.flags.writeable = False
    decoder = BatchDecoder(Plan(roles={"id": Role.ID}, features=FeatureSpec(), ignore=("id",)))
    for _ in range(2):
        decoder.decode(raw, bounds, np.zeros(1, np.int64))
