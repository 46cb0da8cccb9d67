"""Batches for decoding tests, and the columns that `reference` gives for them.

This file must never run a kernel of decoding: it says what kernels should give.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.core.events.decoders import BatchDecoder, Columns
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Refused
from stream_learner.core.events.reference import parse_event, read_event
from stream_learner.core.events.schema_forms import SchemaForm
from stream_learner.core.events.schemas import Schema

Event = tuple[int, int, int, float, list[int], list[float], list[int]]
"""status, time_ms, id_hash, number, keys, values, the numbers under which these features count"""


def batch(raws: list[bytes]) -> tuple[bytes, NDArray[np.int64]]:
    """Events back to back, and their bounds."""
    bounds = np.zeros(len(raws) + 1, np.int64)
    np.cumsum([len(raw) for raw in raws], out=bounds[1:])
    return b"".join(raws), bounds


def plainly(plan: Plan, raw: bytes, time_ms: int) -> Event:
    """The result of the defining decoder for one event."""
    try:
        row = read_event(plan, parse_event(raw, plan.max_event_bytes), time_ms)
    except Refused as refused:
        return int(refused.reason), 0, 0, 0.0, [], [], []
    counted = [] if plan.numbers is None else [plan.numbers.of(origin) for origin in row.origins]
    return 0, row.time_ms, row.id_hash, row.number, row.keys, row.values, counted


def events(columns: Columns) -> list[Event]:
    """Columns as one tuple per event; values that were left out are 1."""
    values = columns.values if len(columns.values) else np.ones(len(columns.keys))
    return [
        (
            int(columns.status[i]),
            int(columns.time_ms[i]),
            int(columns.id_hash[i]),
            float(columns.number[i]),
            columns.keys[columns.row_start[i] : columns.row_start[i + 1]].tolist(),
            values[columns.row_start[i] : columns.row_start[i + 1]].tolist(),
            columns.counted[columns.row_start[i] : columns.row_start[i + 1]].tolist(),
        )
        for i in range(len(columns.status))
    ]


def check(decoder: BatchDecoder, plan: Plan, raws: list[bytes], times: list[int]) -> int:
    """Assert that a batch decodes as the plain path decodes each event; returns how many were accepted."""
    data, bounds = batch(raws)
    got = events(decoder.decode(data, bounds, np.array(times, np.int64)))
    for raw, time_ms, event in zip(raws, times, got, strict=True):
        assert event == plainly(plan, raw, time_ms), raw
    return sum(event[0] == 0 for event in got)


class ByDefinition(SchemaForm):
    """A form whose schemas have no program: every record goes the slow way."""

    def program(self, schema: Schema, changes: list[tuple[str, str]]) -> NDArray[np.uint8] | None:
        """None."""
        return None


def without_logical(schema: Any) -> Any:
    """An Avro schema by which values of logical types are written as those of the type below."""
    if isinstance(schema, list):
        return [without_logical(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    return {key: without_logical(inner) for key, inner in schema.items() if key != "logicalType"}
