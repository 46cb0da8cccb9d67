"""Events to predictions in one kernel: against the defining decoder, and the table asked for each row.

The first byte of an input chooses the features. The memory of the predictor and the events in their buffer lie beside
memory that may not be touched; in half of the batches misleading bytes follow the last event.
"""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Sequence
from random import Random

import numpy as np

from proofs.fuzz.guard import GuardedBuffer, Side, fenced_arrays
from proofs.fuzz.json_text import event_text
from proofs.fuzz.target import Target, Wrong
from proofs.fuzz.targets.events import FEATURES, MISLEADING, Row, plainly
from stream_learner.core.events.fast import fields as decode_fields
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.plan import Plan
from stream_learner.core.events.reasons import Refused
from stream_learner.core.snapshots import predictor as predictors
from stream_learner.core.snapshots.predictor import EventPredictor
from stream_learner.core.snapshots.table import Change, ReplicaTable

IGNORED = ("id", "t")
_KEPT_FOR = 30
_WEIGHTS = np.random.default_rng(1).integers(1, 2**64, 5_000, dtype=np.uint64)
"""Keys that fill the table, so that searches meet other rows."""


class _Predictor:
    """The predictor of one specification at one side, kept for some batches, so that it meets known and new fields."""

    def __init__(self, plan: Plan, spec: FeatureSpec, side: Side) -> None:
        self.plan, self._spec, self._side = plan, spec, side
        self._buffer = GuardedBuffer(side)
        self._left = 0

    def check(self, raws: Sequence[bytes], rows: Sequence[Row], behind: bytes) -> None:
        """Raise Wrong unless all ways of asking give the predictions of the rows, to the bit."""
        with fenced_arrays(self._side, predictors, decode_fields):
            if self._left == 0:
                self._table = ReplicaTable(lambda: None)
                self._predictor = EventPredictor(self._table, self._spec, IGNORED)
                self._left = _KEPT_FOR
            self._left -= 1
            self._learn(rows)
            wanted = [self._wanted(row) for row in rows]
            bounds = np.zeros(len(raws) + 1, np.int64)
            np.cumsum([len(raw) for raw in raws], out=bounds[1:])
            given = self._buffer.put(*raws, behind)
            for found in (self._predictor.predict_json(given, bounds), self._predictor.predict_many(list(raws))):
                got = zip(found.status.tolist(), found.p_click.view(np.int64).tolist(), strict=True)
                _compare(raws, list(got), wanted)
            _compare(raws, [self._alone(raw) for raw in raws], wanted)

    def _learn(self, rows: Sequence[Row]) -> None:
        """Give some keys of the rows weights, under a new version."""
        keys = np.unique(np.concatenate([_WEIGHTS, np.array([k for row in rows for k in row[4]], np.uint64)]))
        keys = keys[keys % np.uint64(4) != 0]
        weights = ((keys % np.uint64(2_001)).astype(np.float32) - 1_000) / 500
        self._table.apply([Change(None, keys, weights)], self._table.version + 1)

    def _wanted(self, row: Row) -> tuple[int, int]:
        """The status and the bits of the prediction of a row."""
        status, keys, values = row[0], row[4], row[5]
        if status:
            return status, _bits(np.nan)
        arrays = np.array(keys, np.uint64), np.array(values, np.float64), np.array([0, len(keys)])
        return 0, _bits(self._table.predict(*arrays)[0][0])

    def _alone(self, raw: bytes) -> tuple[int, int]:
        try:
            p_click, version, _ = self._predictor.predict(raw)
        except Refused as refused:
            return int(refused.reason), _bits(np.nan)
        if version != self._table.version:
            raise Wrong(f"{raw[:300]!r} is of version {version}, not {self._table.version}")
        return 0, _bits(p_click)


class Predictions(Target):
    """Events, as programs and requests give them to a scorer."""

    name = "predictions"
    batch_inputs = 400

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._raws = [data[1:] for data in corpus] or [b"{}"]
        self._by_side: dict[Side, list[_Predictor]] = {"end": [], "begin": []}
        for features in FEATURES:
            spec = FeatureSpec.from_dict(features)
            for side, found in self._by_side.items():
                found.append(_Predictor(Plan({}, spec, IGNORED), spec, side))

    def make(self, rng: Random) -> bytes:
        return bytes((rng.choice((0, rng.randrange(len(FEATURES)))),)) + event_text(rng, self._raws)

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        groups: dict[int, list[bytes]] = defaultdict(list)
        for data in filter(None, inputs):
            groups[data[0] % len(FEATURES)].append(data[1:])
        accepted = 0
        for number, raws in groups.items():
            predictor = self._by_side[side][number]
            rows = [plainly(predictor.plan, raw, 0) for raw in raws]
            mark = zlib.crc32(raws[0])
            predictor.check(raws, rows, MISLEADING[mark % len(MISLEADING)] if mark & 64 else b"")
            accepted += sum(row[0] == 0 for row in rows)
        return accepted


def _bits(p_click: float) -> int:
    return int(np.float64(p_click).view(np.int64))


def _compare(raws: Sequence[bytes], got: Sequence[tuple[int, int]], wanted: Sequence[tuple[int, int]]) -> None:
    for raw, found, right in zip(raws, got, wanted, strict=True):
        if found != right:
            raise Wrong(f"{raw[:300]!r} gives {found}, not {right}")
