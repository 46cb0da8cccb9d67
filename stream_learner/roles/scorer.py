"""The scorer: predictions from a replica that follows the model.

In: events as JSON or dictionaries, or hashed features. Out: click probabilities, each with the version that made it.
This file must never answer from a mixture of versions, nor hash an event otherwise than the joiner did: the feature
specification comes with the model.

    with Scorer("localhost:9092", model="ctr") as scorer:
        scorer.wait_ready()
        print(scorer.predict({"site": "example.org", "ad": 17}).p_click)
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_learner.core.feature_spec import FeatureSpec
from stream_learner.core.features import Event, FeatureEncoder
from stream_learner.core.reasons import Reason
from stream_learner.edges import metric_names as names
from stream_learner.edges.kafka import KafkaSettings
from stream_learner.edges.metrics import Metrics
from stream_learner.edges.telemetry import get_logger
from stream_learner.errors import ConfigError, NotReady
from stream_learner.roles.snapshot_reader import SnapshotReader

POLL_S = 0.02
NOT_STARTED = "the scorer was not started: use it in a with block, or call start()"


class BadEvent(ValueError):
    """An event that cannot be scored; `reason` says why."""

    def __init__(self, reason: Reason) -> None:
        super().__init__(f"the event cannot be scored: {reason.text}")
        self.reason = reason


class Prediction(NamedTuple):
    """A click probability, and the version (a tick) of the model that it is of."""

    p_click: float
    version: int


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of n events, all of one version.

    p_click f64[n], NaN where the event cannot be scored; status u8[n], a `Reason`, 0 for OK.
    """

    p_click: NDArray[np.float64]
    status: NDArray[np.uint8]
    version: int

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


class Scorer:
    """Follows one model and predicts. Thread-safe; use as a context manager, or call `start` and `close`.

    Every prediction is made with one whole version. A version is applied in place while predictions go on; none of
    them waits for it.
    """

    def __init__(
        self,
        bootstrap_servers: str = "",
        model: str = "",
        *,
        kafka: Mapping[str, Any] | None = None,
        topic: str | None = None,
        max_staleness_ms: int | None = 300_000,
        on_version: Callable[[int], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """bootstrap_servers: "host:port[,host:port]". model: its name. kafka: further options of librdkafka.

        topic: the snapshot topic, where it is not `<model>.snapshots`. max_staleness_ms: a replica whose last version
        was applied longer ago is not ready; None never asks. on_version: called with every new version, in the
        thread that applies them: it must be quick; what it raises is logged. metrics: where to count; by default
        nowhere that is seen. Raises ConfigError.
        """
        if not model:
            raise ConfigError("a scorer needs the name of its model", action="Give `model`.")
        options = dict(kafka or {})
        if bootstrap_servers:
            options["bootstrap.servers"] = bootstrap_servers
        self.model = model
        self._settings = KafkaSettings(options)
        self._topic = topic or f"{model}.snapshots"
        self._max_staleness_ms = max_staleness_ms
        self._notify = on_version
        self._metrics = metrics or Metrics(model)
        self._started_s = time.monotonic()
        self._metrics.follow(names.SCORER_READY, lambda: float(self.ready))
        self._metrics.follow(names.SCORER_FRESHNESS, lambda: (self.freshness_ms or 0.0) / 1000)
        self._log = get_logger("scorer").bind(model=model)
        self._reader: SnapshotReader | None = None
        self._encoding: _Encoding | None = None
        self._local = threading.local()

    def start(self) -> Scorer:
        """Connect and begin to follow the model, once.

        Raises TopicMissing, BrokerUnreachable, NotAuthorised, AuthenticationFailed; RuntimeError when called again.
        """
        if self._reader is not None:
            raise RuntimeError("a scorer is started once: make another one")
        self._reader = SnapshotReader(self._settings, self._topic, self._log, self._on_version)
        self._reader.start()
        return self

    def close(self) -> None:
        """Stop following; predictions go on being made with the last version."""
        if self._reader is not None:
            self._reader.stop()

    def __enter__(self) -> Scorer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until `ready`. Raises NotReady, with the reason, when it takes longer; and what stopped the reader."""
        until = time.monotonic() + timeout_s
        while not self.ready:
            failure = self._following.failure
            if failure is not None:
                raise failure
            if time.monotonic() > until:
                raise NotReady(f"model {self.model} is not ready after {timeout_s:g} s: {self.why_not_ready}")
            time.sleep(POLL_S)

    @property
    def ready(self) -> bool:
        """Whether the replica is complete and fresh."""
        return not self.why_not_ready

    @property
    def why_not_ready(self) -> str:
        """What is missing, "" if nothing."""
        reader = self._reader
        if reader is None:
            return NOT_STARTED
        if reader.stopped:
            return "the scorer was closed"
        if reader.failure is not None:
            return str(reader.failure)
        if not reader.replica.ready or self._encoding is None:
            return reader.replica.why_not_ready or "the model record is not read yet"
        since_ms = (time.monotonic() - reader.applied_at_s) * 1000
        if self._max_staleness_ms is not None and since_ms > self._max_staleness_ms:
            return f"the last version was applied {since_ms / 1000:.0f} s ago"
        return ""

    @property
    def version(self) -> int:
        """The version served, a tick; -1 before the first."""
        return self._reader.replica.version if self._reader is not None else -1

    @property
    def freshness_ms(self) -> float | None:
        """Age of the version served: the wall clock minus the end of its tick; None before the first."""
        encoding, version = self._encoding, self.version
        if encoding is None or version < 0:
            return None
        return time.time() * 1000 - (version + 1) * encoding.tick_ms

    @property
    def description(self) -> dict[str, Any]:
        """What the model says of itself: features, optimizer, progressive metrics, digest; empty before the first."""
        return self._following.replica.model

    @property
    def weights(self) -> int:
        """Weights held."""
        return self._following.replica.rows

    def weight(self, key: int) -> float:
        """The weight of a hashed feature, 0.0 if it has none."""
        return self._following.replica.weight(key)

    def largest_weights(self, count: int) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """Keys and weights of the `count` largest weights by magnitude, largest first."""
        return self._following.replica.largest_weights(count)

    def predict(self, event: Event) -> Prediction:
        """The probability that this event is clicked. Raises BadEvent for what is no event, NotReady before the first
        version."""
        rows = self._encoder().encode_one(event)
        if rows.status[0]:
            raise BadEvent(Reason(int(rows.status[0])))
        p_click, version = self._following.replica.predict(rows.keys, rows.values, rows.row_start)
        return Prediction(float(p_click[0]), version)

    def predict_many(self, events: Sequence[Event]) -> Predictions:
        """The probabilities for many events, all of one version. Raises NotReady before the first version."""
        rows = self._encoder().encode(events)
        p_click, version = self._following.replica.predict(rows.keys, rows.values, rows.row_start)
        p_click[rows.status != 0] = np.nan
        return Predictions(p_click, rows.status, version)

    def predict_hashed(self, keys: ArrayLike, values: ArrayLike, row_start: ArrayLike) -> Predictions:
        """The probabilities for events given as hashed features.

        keys u64[m], values f64[m], row_start i64[n+1]: event i has the features row_start[i] to row_start[i+1] - 1.
        Give the bias too. Raises NotReady before the first version, ValueError for arrays that do not fit together.
        """
        self._known_encoding()
        p_click, version = self._following.replica.predict(
            np.asarray(keys, np.uint64), np.asarray(values, np.float64), np.asarray(row_start, np.int64)
        )
        return Predictions(p_click, np.zeros(len(p_click), np.uint8), version)

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

    @property
    def _following(self) -> SnapshotReader:
        if self._reader is None:
            raise NotReady(NOT_STARTED)
        return self._reader

    def _on_version(self, version: int) -> None:
        model = self._following.replica.model
        known = self._encoding
        if model and (known is None or (known.features, known.inputs) != (model["features"], model["inputs"])):
            self._encoding = _Encoding(
                model["features"],
                model["inputs"],
                FeatureSpec.from_dict(model["features"]),
                tuple(model["inputs"]["ignored_fields"]),
                int(model["tick_ms"]),
            )
        if known is None:
            self._metrics.observe(names.SCORER_LOAD, time.monotonic() - self._started_s)
        self._metrics.inc(names.SCORER_APPLIED)
        self._metrics.set(names.SCORER_VERSION, version)
        self._metrics.set(names.SCORER_WEIGHTS, self._following.replica.rows)
        if self._notify is not None:
            try:
                self._notify(version)
            except Exception:  # noqa: BLE001 -- the caller's own, which must not end the following
                self._log.error("on_version_failed", version=version, exc_info=True)
