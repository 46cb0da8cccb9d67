"""Impressions and clicks, through the decoders of the joiner: machine code against the plain path and a slow oracle.

The first two bytes of an input choose the specification and the record's time. The oracle shares no kernel with the
fast path, except hashing and the logarithm.

In half of the batches the memory ends with the last record, as for a joiner. In the other half other bytes follow: the
kernel itself then reads records at the edge, where it may look at `PADDING` bytes behind them, which are as misleading
as possible, and no further.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np
from numpy.typing import NDArray

from proofs.fuzz.guard import GuardedBuffer, Side, fenced_arrays
from proofs.fuzz.json_text import event_text
from proofs.fuzz.target import Target, Wrong
from stream_learner.core.events import decoders
from stream_learner.core.events.decoders import BatchDecoder, Columns, EventSpec
from stream_learner.core.events.fast import fields
from stream_learner.core.events.fast.layout import PADDING
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.field_numbers import FieldNumbers
from stream_learner.core.events.plan import Plan, Role
from tests.core.events.decode_help import plainly
from tests.oracles import feature_rows

NOW_MS = 1_700_000_000_000
TIMES_MS = (NOW_MS, -1, 0, 1_000, 253_402_300_799_999, 253_402_300_800_000, 2**62, -(2**63))
FEATURES: tuple[dict[str, Any], ...] = (
    {"key_rule": 3},
    {"categorical": ["a", "n", "f.x"], "crosses": [["a", "b"], ["b", "c", "user.kind"]]},
    {
        "exclude": ["skipped", "user.secret"],
        "fields": {
            "log": {"kind": "log"},
            "bucket": {"kind": "bucket", "edges": [-1.5, 0.0, 10.0, 1e6], "missing": "indicator"},
            "a": {"kind": "auto", "missing": "indicator"},
            "a=b": {"kind": "bucket", "edges": [0.5], "missing": "indicator"},
            "e": {"kind": "ignore"},
        },
        "crosses": [["bucket", "a"]],
        "bias": False,
        "key_rule": 2,
    },
    {"include": ["user", "d.e", "f", "a", "a=b"], "categorical": ["user.x", "a=b"], "key_rule": 2},
    {"max_features": 3, "max_value_bytes": 20, "crosses": [["a", "b"]]},
    {"fields": {"a": {"kind": "category"}, "b": {"kind": "number"}}, "max_value_bytes": 40, "key_rule": 3},
    {
        "fields": {
            "a": {"kind": "hour_of_week", "zone": "America/St_Johns", "missing": "indicator"},
            "user.t": {"kind": "hour", "zone": "Europe/Berlin", "time_unit": "us"},
            "n": {"kind": "weekday", "time_unit": "s"},
        },
        "crosses": [["a", "b"], ["n", "a"]],
        "key_rule": 3,
    },
)
EVENTS = (
    EventSpec(),
    EventSpec(time="t", time_unit="auto", weight="w", value="v"),
    EventSpec(id="user.id", time="t", time_unit="iso", weight="user.w", value="user.v"),
    EventSpec(time="t", time_unit="s", weight="w", value="v", max_event_bytes=200, max_skew_ms=0, max_weight=9.5),
    EventSpec(id="user.id", time="user.t", time_unit="us"),
    EventSpec(id="a", time="d.e.t", time_unit="ms", value="d.e.v", weight="d.e.w"),
)
MISLEADING = (b"}" * PADDING, b" " * PADDING, b'"' * PADDING, b"0123456789.e-5}]" * 4, b"\\" * PADDING, bytes(PADDING))

Row = tuple[int, int, int, float, list[int], list[float], list[int]]
"""The columns of an event; the last of them are the numbers under which its features count."""


_KEPT_FOR = 60
"""How many batches a decoder is kept for. It gets to know fields, among them many wrong ones."""


class _Decoder:
    """The decoder of one specification at one side, kept for some batches, so that it meets known and new fields."""

    def __init__(self, plan: Plan, side: Side) -> None:
        self.plan, self._side = plan, side
        self._buffer = GuardedBuffer(side)
        self._left = 0
        self._ones_left_out = False

    def decode(self, raws: Sequence[bytes], times: NDArray[np.int64], behind: bytes) -> Columns:
        """Columns of the records, with these bytes behind them."""
        bounds = np.zeros(len(raws) + 1, np.int64)
        np.cumsum([len(raw) for raw in raws], out=bounds[1:])
        with fenced_arrays(self._side, decoders, fields):
            if self._left == 0:
                self._decoder = BatchDecoder(self.plan, self._ones_left_out)
                self._ones_left_out = not self._ones_left_out
                self._left = _KEPT_FOR
            self._left -= 1
            return self._decoder.decode(self._buffer.put(*raws, behind), bounds, times)


class _Events(Target):
    """The common part of impressions and clicks."""

    batch_inputs = 800
    role = Role.WEIGHT

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._raws = [data[2:] for data in corpus] or [b"{}"]
        self.plans = self.make_plans()
        self._sides = {(number, side): _Decoder(plan, side) for number, plan in enumerate(self.plans)
                       for side in ("end", "begin")}  # type: ignore[misc]  # fmt: skip

    def make_plans(self) -> list[Plan]:
        """One for every specification."""
        raise NotImplementedError

    def make(self, rng: Random) -> bytes:
        """Make an input; half of them for the first specification, which most events satisfy."""
        number = rng.choice((0, rng.randrange(len(self.plans))))
        return bytes((number, rng.choice((0, 0, 0, 0, 1, rng.randrange(8))))) + event_text(rng, self._raws)

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        groups: dict[int, list[bytes]] = defaultdict(list)
        for data in inputs:
            if len(data) >= 2:
                groups[data[0] % len(self.plans)].append(data)
        return sum(self._check_group(number, group, side) for number, group in groups.items())

    def _check_group(self, number: int, group: list[bytes], side: Side) -> int:
        plan, decoder = self.plans[number], self._sides[number, side]
        raws = [data[2:] for data in group]
        times = np.array([TIMES_MS[data[1] % len(TIMES_MS)] for data in group], np.int64)
        wanted = [plainly(plan, raw, time_ms) for raw, time_ms in zip(raws, times.tolist(), strict=True)]
        mark = zlib.crc32(raws[0])
        behind = MISLEADING[mark % len(MISLEADING)] if mark & 64 else b""
        got = rows(decoder.decode(raws, times, behind))
        for raw, found, right in zip(raws, got, wanted, strict=True):
            if found != right:
                raise Wrong(f"specification {number}: {raw[:300]!r} is {found}, not {right}")
        for raw, row in zip(raws, wanted, strict=True):
            if row[0] == 0 and zlib.crc32(raw) % 8 == 0:
                check_features(plan, raw, row)
        return sum(row[0] == 0 for row in wanted)


def _counting(event: EventSpec, features: FeatureSpec) -> Plan:
    """A plan that counts features by field, where the specification names fields."""
    try:
        numbers = FieldNumbers(features)
    except ValueError:
        numbers = None
    return event.impression_plan(features, numbers)


class Impressions(_Events):
    """Impressions: every event specification with every feature specification that fits it."""

    name = "impressions"

    def make_plans(self) -> list[Plan]:
        found = []
        for event in EVENTS:
            for features in FEATURES:
                try:
                    found.append(_counting(event, FeatureSpec.from_dict(features)))
                except ValueError:
                    continue
        return found


class Clicks(_Events):
    """Clicks: no features."""

    name = "clicks"

    def make_plans(self) -> list[Plan]:
        return [event.click_plan() for event in EVENTS]


def rows(columns: Columns) -> list[Row]:
    """Columns as a tuple for each event; values that were left out are 1."""
    starts = columns.row_start.tolist()
    values = columns.values if len(columns.values) else np.ones(len(columns.keys))
    features = [column.tolist() for column in (columns.keys, values, columns.counted)]
    fixed = zip(
        columns.status.tolist(),
        columns.time_ms.tolist(),
        columns.id_hash.tolist(),
        columns.number.tolist(),
        strict=True,
    )
    return [(*four, *(column[starts[i] : starts[i + 1]] for column in features)) for i, four in enumerate(fixed)]  # type: ignore[misc]


def check_features(plan: Plan, raw: bytes, row: Row) -> None:
    """Raise Wrong unless Python's JSON reader and the slow oracle give these features."""
    try:
        event = feature_rows.parse(raw)
    except RecursionError:
        return
    except ValueError as error:
        raise Wrong(f"{raw[:300]!r} was accepted; it is no JSON: {error}") from None
    if plan.features is None:
        return
    keys, values = feature_rows.row(event, plan.features.to_dict(), tuple(plan.ignore))
    if (keys, values) != (row[4], row[5]):
        raise Wrong(f"{raw[:300]!r} gives {row[4:6]}, by the oracle {keys, values}")
