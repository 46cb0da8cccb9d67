"""One model as a scorer follows it: its replica, and how events become its features.

In: events, hashed features, a pin. Out: predictions of one version; whether the model is complete and fresh.
This file must never know of aliases, nor lock where it predicts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_learner.core.control import Pin
from stream_learner.core.feature_spec import FeatureSpec
from stream_learner.core.features import EncodedRows, Event, FeatureEncoder
from stream_learner.core.reasons import Reason
from stream_learner.core.replica import Replica
from stream_learner.edges.kafka import KafkaSettings
from stream_learner.edges.telemetry import Logger
from stream_learner.errors import NewerFormat, NotReady, StreamLearnerError
from stream_learner.roles.snapshot_reader import SnapshotReader


class BadEvent(ValueError):
    """An event that cannot be scored; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"the event cannot be scored: {reason.text}")
        self.reason = reason


class Prediction(NamedTuple):
    """A click probability, the version (a tick) that it is of, and the model."""

    p_click: float
    version: int
    model: str


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of n events, all of one version of one model.

    p_click f64[n], NaN where the event cannot be scored; status u8[n], a `Reason`, 0 for OK. freshness_ms: age of that
    version when they were made, from the end of its tick by the wall clock; None where it is not known.
    """

    p_click: NDArray[np.float64]
    status: NDArray[np.uint8]
    version: int
    model: str
    freshness_ms: float | None = None

    def __len__(self) -> int:
        return len(self.p_click)


@dataclass(frozen=True, slots=True)
class _Encoding:
    """How events become features for the version served."""

    features: dict[str, Any]
    inputs: dict[str, Any]
    spec: FeatureSpec
    ignored: tuple[str, ...]
    tick_ms: int


class ModelReplica:
    """Follows one model. Thread-safe."""

    def __init__(
        self,
        settings: KafkaSettings,
        model: str,
        topic: str,
        log: Logger,
        *,
        max_staleness_ms: int | None,
        on_version: Callable[[ModelReplica, int], None] = lambda replica, version: None,
    ) -> None:
        """on_version: called in the reader's thread with every version, once it is served.

        Raises TopicMissing, BrokerUnreachable, NotAuthorised.
        """
        self.model = model
        self._max_staleness_ms = max_staleness_ms
        self._on_version = on_version
        self._encoding: _Encoding | None = None
        self._local = threading.local()
        self._excused_at_s = self._began_s = time.monotonic()
        self.loaded_s: float | None = None
        """How long the first version took, None before it."""
        self.pinned: Pin | None = None
        """The pin of the control topic that it obeys."""
        self._reader = SnapshotReader(settings, topic, log, self._note)
        self._replica = self._reader.replica

    def start(self) -> ModelReplica:
        """Begin to follow."""
        self._reader.start()
        return self

    def stop(self) -> None:
        """Stop following; predictions go on being made with the last version."""
        self._reader.stop()

    def pin(self, version: int | None) -> None:
        """Serve no version after this one; None holds the one served now, or the first that will be."""
        self._reader.pin(version)

    def unpin(self) -> None:
        """Serve the last version again, and those to come."""
        self._reader.unpin()

    def excuse(self) -> None:
        """Nothing new is expected up to now: count staleness from here."""
        self._excused_at_s = time.monotonic()

    @property
    def replica(self) -> Replica:
        """The weights."""
        return self._replica

    @property
    def failure(self) -> StreamLearnerError | None:
        """What ended the following, None while it goes on."""
        return self._reader.failure

    @property
    def why_not_ready(self) -> str:
        """What is missing before the model is complete and fresh, "" if nothing."""
        reader = self._reader
        if reader.stopped:
            return "the scorer was closed"
        if reader.failure is not None:
            return str(reader.failure)
        if not self._replica.ready or self._encoding is None:
            return self._replica.why_not_ready or "the model record is not read yet"
        since_ms = (time.monotonic() - reader.applied_at_s) * 1000
        quiet_ms = (time.monotonic() - max(reader.applied_at_s, self._excused_at_s)) * 1000
        if self._max_staleness_ms is not None and quiet_ms > self._max_staleness_ms:
            return f"the last version was applied {since_ms / 1000:.0f} s ago"
        return ""

    @property
    def freshness_ms(self) -> float | None:
        """Age of the version served: the wall clock minus the end of its tick; None before the first."""
        encoding, version = self._encoding, self._replica.version
        return None if encoding is None or version < 0 else _age_ms(version, encoding)

    def predict(self, event: Event) -> Prediction:
        """One event. Raises BadEvent, NotReady before the first version."""
        rows = self._encoder().encode_one(event)
        if rows.status[0]:
            raise BadEvent(Reason(int(rows.status[0])))
        p_click, version = self._replica.predict(rows.keys, rows.values, rows.row_start)
        return Prediction(float(p_click[0]), version, self.model)

    def predict_many(self, events: Sequence[Event]) -> Predictions:
        """Many events. Raises NotReady before the first version."""
        return self._predict_rows(self._encoder().encode(events))

    def predict_json(self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> Predictions:
        """Many events back to back, as `Scorer.predict_json`."""
        return self._predict_rows(self._encoder().encode_json(data, bounds))

    def _predict_rows(self, rows: EncodedRows) -> Predictions:
        p_click, version = self._replica.predict(rows.keys, rows.values, rows.row_start)
        p_click[rows.status != 0] = np.nan
        return Predictions(p_click, rows.status, version, self.model, _age_ms(version, self._known_encoding()))

    def predict_hashed(self, keys: ArrayLike, values: ArrayLike, row_start: ArrayLike) -> Predictions:
        """Hashed features, as `Scorer.predict_hashed`."""
        encoding = self._known_encoding()
        p_click, version = self._replica.predict(
            np.asarray(keys, np.uint64), np.asarray(values, np.float64), np.asarray(row_start, np.int64)
        )
        status = np.zeros(len(p_click), np.uint8)
        return Predictions(p_click, status, version, self.model, _age_ms(version, encoding))

    def _encoder(self) -> FeatureEncoder:
        """This thread's encoder for the version served."""
        encoding = self._known_encoding()
        if getattr(self._local, "encoding", None) is not encoding:
            self._local.encoder = FeatureEncoder(encoding.spec, encoding.ignored)
            self._local.encoding = encoding
        encoder: FeatureEncoder = self._local.encoder
        return encoder

    def _known_encoding(self) -> _Encoding:
        encoding = self._encoding
        if encoding is None:
            raise NotReady(f"model {self.model} has no version yet: {self.why_not_ready}")
        return encoding

    def _spec_of(self, features: dict[str, Any]) -> FeatureSpec:
        """The published specification. Raises NewerFormat for settings that this program does not know."""
        try:
            return FeatureSpec.from_dict(features)
        except ValueError as error:
            raise NewerFormat(f"model {self.model} has features that this program cannot make: {error}") from error

    def _note(self, version: int) -> None:
        model = self._replica.model
        known = self._encoding
        if model and (known is None or (known.features, known.inputs) != (model["features"], model["inputs"])):
            self._encoding = _Encoding(
                model["features"],
                model["inputs"],
                self._spec_of(model["features"]),
                tuple(model["inputs"]["ignored_fields"]),
                int(model["tick_ms"]),
            )
        if self.loaded_s is None:
            self.loaded_s = time.monotonic() - self._began_s
        self._on_version(self, version)


def _age_ms(version: int, encoding: _Encoding) -> float:
    """How long ago the tick of a version ended, by the wall clock."""
    return time.time() * 1000 - (version + 1) * encoding.tick_ms
