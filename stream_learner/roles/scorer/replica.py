"""One model as a scorer follows it: its replica, and how events become its features.

It predicts without a lock, each call with one version, and gives up no whole version before it has another. It knows
nothing of aliases. The package's docstring has its states as a table.

1. Begin with the copy that was kept on disk, if one is given, else read the snapshot topic until a version is whole.
2. Serve it. Later versions take its place as they become whole.
3. Where the reader ends (the topic is gone, a right is missing), go on serving, and try again to read the topic, from
   its beginning; its first whole version takes the place of what is served.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.control.records import Pin
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.events.features import Event
from stream_learner.core.events.reasons import Reason, Refused
from stream_learner.core.snapshots.predictor import EventPredictions, EventPredictor
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.replica_copy import WholeVersion
from stream_learner.errors import NewerFormat, NotReady, StreamLearnerError, TopicMissing
from stream_learner.roles.scorer.reader import SnapshotReader
from stream_learner.roles.scorer.request_fit import RequestFit

LOOK_S = 0.5
"""Time between two looks whether the version is stale, and whether the reader has ended."""
AGAIN_S, LONGEST_AGAIN_S = 5.0, 60.0
"""Time from the end of a reader, or from a failed start, to the next attempt; it doubles with each failure."""
NO_MODEL = (
    "Check the model's name, and kafka.bootstrap.servers. The topics of a new model are made by "
    "`stream-learner topics ensure`, and a learner publishes it."
)
STOP_S = 2.0
"""How long `stop` waits for a request to brokers that do not answer."""


class BadEvent(ValueError):
    """An event that cannot be scored; `reason` says why, and the text which field."""

    def __init__(self, reason: Reason, words: str = "") -> None:
        super().__init__(f"the event cannot be scored: {words or reason.text}")
        self.reason = reason


class Prediction(NamedTuple):
    """A click probability, and the version (a tick) and model that it was made with.

    known_features: how many features of the event have a weight in the version, the bias apart; 0 where the prediction
    says nothing of the event.
    """

    p_click: float
    version: int
    model: str
    known_features: int


_prediction = cast("Callable[[tuple[float, int, str, int]], Prediction]", partial(tuple.__new__, Prediction))
"""`Prediction._make`, in half its time."""


@dataclass(frozen=True, slots=True)
class Predictions:
    """Predictions of n events, all of one version of one model.

    p_click f64[n], NaN for an event that cannot be scored; status u8[n], a `Reason`, 0 for OK. freshness_ms: age of the
    version when they were made, from the end of its tick by the wall clock; None if it is not known. version_age_s: how
    long ago the version was published, seconds, by the time of its records and the wall clock. known_features i64[n]:
    as of `Prediction`, 0 for an event that cannot be scored. why_bad: why the first of these cannot be, "" if all can.
    """

    p_click: NDArray[np.float64]
    status: NDArray[np.uint8]
    version: int
    model: str
    known_features: NDArray[np.int64]
    freshness_ms: float | None = None
    version_age_s: float | None = None
    why_bad: str = ""

    def __len__(self) -> int:
        return len(self.p_click)


@dataclass(frozen=True, slots=True)
class _Encoding:
    """The decoder of events for the version served."""

    features: dict[str, Any]
    inputs: dict[str, Any]
    spec: FeatureSpec
    ignored: tuple[str, ...]
    tick_ms: int


class _PredictorOfThread(threading.local):
    """The predictor of the calling thread, None until it has one."""

    predictor: EventPredictor | None = None


@dataclass(frozen=True, slots=True)
class _Whole:
    """A replica with a whole version, and how events become its features. Its predictors end with it."""

    replica: Replica
    encoding: _Encoding
    local: _PredictorOfThread = field(default_factory=_PredictorOfThread)


class KeptVersion(NamedTuple):
    """A whole version from a copy on disk, and how long ago it was published, in seconds."""

    replica: Replica
    age_s: float


class ModelReplica:
    """Follows one model. Thread-safe."""

    def __init__(
        self,
        settings: KafkaSettings,
        model: str,
        topic: str,
        log: Logger,
        *,
        stale_after_ms: int | None,
        refuse_after_ms: int | None = None,
        on_version: Callable[[ModelReplica, int], None] = lambda replica, version: None,
        on_unusable: Callable[[], None] = lambda: None,
        metrics: Metrics,
        kept: KeptVersion | None = None,
        why_held: Callable[[], str] = lambda: "",
    ) -> None:
        """on_version: is called in the reader's thread with every version, once it is served. on_unusable: is called
        for every record of the topic that cannot be used. metrics: counts whether requests fit the model. kept: a
        version to serve until the topic has been read. why_held: why its learner publishes no first version.

        Raises TopicMissing, BrokerUnreachable, NotAuthorised. With `kept` it asks no broker yet, and raises NewerFormat
        if this program cannot encode events for that version.
        """
        self.model = model
        self._settings = settings
        self._topic = topic
        self._log = log
        self._stale_after_ms = stale_after_ms
        self._refuse_after_ms = refuse_after_ms
        self._on_version = on_version
        self._on_unusable, self._why_held = on_unusable, why_held
        self._fit = RequestFit(metrics, log)
        self._fit_of_lines = RequestFit(Metrics(model), log)
        self._began_s = self._published_s = time.monotonic()
        self._excused_at_s = -math.inf
        self.loaded_s: float | None = None
        """Seconds from the start to the first version, None before it."""
        self.pinned: Pin | None = None
        """The pin of the control topic that holds it; None for none."""
        self._whole: _Whole | None = None
        self._kept = kept.replica if kept is not None else None
        self._reader: SnapshotReader | None = None
        self._failure: StreamLearnerError | None = None
        """The reason why the last reader could not be begun."""
        self._held: tuple[int | None] | None = None
        """The argument of `pin`, None for no pin. A reader that is begun later is pinned with it."""
        self._stale = Episode(log, "version_stale", "version_fresh")
        self._changing = threading.RLock()
        """Held while the reader is exchanged or pinned, never by a thread that predicts."""
        self._stop = threading.Event()
        self._tending = threading.Thread(target=self._tend, name="replica-tender", daemon=True)
        if kept is None:
            self._reader = self._new_reader()
        else:
            self._begin_with(kept)

    def start(self) -> ModelReplica:
        """Begin to follow."""
        if self._reader is not None:
            self._reader.start()
        self._tending.start()
        return self

    def stop(self) -> None:
        """Stop following. Predictions go on, with the last version."""
        self._stop.set()
        if self._tending.is_alive() and self._tending is not threading.current_thread():
            self._tending.join(STOP_S)
        if self._reader is not None:
            self._reader.stop()
        self._fit.report()

    def tell_of(self, events: Sequence[bytes]) -> None:
        """Log the fields of some events that the version served does not know, each once; nothing before the first."""
        whole = self._whole
        if whole is not None:
            encoding = whole.encoding
            self._fit_of_lines.tell_of(events, encoding.spec, encoding.ignored, whole.replica.weight)

    def pin(self, version: int | None) -> None:
        """Serve no version after this one; None holds the one served now, or the first one to come."""
        with self._changing:
            self._held = (version,)
            if self._reader is not None:
                self._pin_reader(self._reader)

    def unpin(self) -> None:
        """Serve the last version, and later ones as they come."""
        with self._changing:
            self._held = None
            if self._reader is not None:
                self._reader.unpin()

    def excuse(self) -> None:
        """Count staleness from now: no new version was expected until now."""
        self._excused_at_s = time.monotonic()

    @property
    def replica(self) -> Replica:
        """The weights."""
        if self._whole is not None:
            return self._whole.replica
        assert self._reader is not None  # without `kept` there is a reader from the start
        return self._reader.replica

    def whole_version(self) -> WholeVersion | None:
        """All rows of the version served (`SnapshotReader.whole_version`); None if it is not the reader's."""
        whole, reader = self._whole, self._reader
        return reader.whole_version() if reader is not None and whole and whole.replica is reader.replica else None

    @property
    def is_from_copy(self) -> bool:
        """Whether the version served is that of a copy, not read from the topic."""
        whole, kept = self._whole, self._kept
        return whole is not None and kept is not None and whole.replica is kept

    @property
    def failure(self) -> StreamLearnerError | None:
        """The error that ended the reader, None while it runs."""
        reader = self._reader
        return reader.failure if reader is not None else self._failure

    @property
    def why_not_ready(self) -> str:
        """The reason why there is no whole version yet. Once there is one, "" until `stop`."""
        if self._stop.is_set():
            return "the scorer was closed"
        return "" if self._whole is not None else self.trouble or "the model record is not read yet"

    @property
    def trouble(self) -> str:
        """The reason why later versions cannot be applied at present, "" if they can."""
        reader, failure = self._reader, self.failure
        if failure is not None:
            return str(failure)
        if reader is None:
            return "the snapshot topic is not read yet"
        if self._whole is None or self._whole.replica is not reader.replica:
            return (reader.replica.is_unpublished and self._why_held()) or reader.replica.why_not_ready
        if reader.outage.since_s is not None:
            return "the brokers do not answer"
        return "" if reader.replica.ready else reader.replica.why_not_ready

    @property
    def is_held(self) -> bool:
        """Whether nothing was ever published, and its learner says why."""
        return self.replica.is_unpublished and bool(self._why_held())

    @property
    def why_stale(self) -> str:
        """How long ago the last version was published, and why none came since; "" if the version is not stale."""
        if self._whole is None or not self._quiet_for(self._stale_after_ms):
            return ""
        trouble = self.trouble
        return f"the last version was published {self._age_s():.0f} s ago" + (f": {trouble}" if trouble else "")

    @property
    def why_not_current(self) -> str:
        """The reason why it does not serve the last version of its topic, or would refuse to predict; "" if neither."""
        whole, reader = self._whole, self._reader
        if self.why_not_ready:
            return self.why_not_ready
        assert whole is not None
        if reader is None or whole.replica is not reader.replica:
            return self.trouble or "the model record is not read yet"
        return ("" if reader.replica.ready else self.trouble) or self.why_refused

    @property
    def why_refused(self) -> str:
        """The reason to refuse, "" for none: there is no version, or `refuse_after_ms` has passed."""
        if self._whole is None:
            return self.why_not_ready
        if self._quiet_for(self._refuse_after_ms):
            return f"the last version was published {self._age_s():.0f} s ago, and scorer.refuse_after has passed"
        return ""

    @property
    def freshness_ms(self) -> float | None:
        """Age of the version served: the wall clock minus the end of its tick; None before the first."""
        whole = self._whole
        return None if whole is None or whole.replica.version < 0 else _age_ms(whole.replica.version, whole.encoding)

    @property
    def version_age_s(self) -> float | None:
        """How long ago the version served was published, None before the first."""
        return None if self._whole is None else self._age_s()

    def predict(self, event: Event) -> Prediction:
        """One event. Raises BadEvent, NotReady before the first version."""
        whole = self._whole
        if whole is None or self._refuse_after_ms is not None:
            whole = self._usable()
        try:
            p_click, version, known = (whole.local.predictor or self._new_predictor(whole)).predict(event)
        except Refused as refused:
            raise BadEvent(refused.reason, str(refused)) from None
        if known < self._fit.wanted:
            self._fit.keep(event)
        return _prediction((p_click, version, self.model, known))

    def predict_many(self, events: Sequence[Event]) -> Predictions:
        """Many events. Raises NotReady before the first version."""
        whole = self._usable()
        given = events if isinstance(events, list) else list(events)
        found = (whole.local.predictor or self._new_predictor(whole)).predict_many(given)
        if self._fit.wanted and (wanted := self._wanted_of(found)) is not None:
            self._fit.keep(given[wanted])
        return self._predictions(whole, found)

    def predict_json(self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> Predictions:
        """Many events in one buffer; see `Scorer.predict_json` for the arguments."""
        whole = self._usable()
        found = (whole.local.predictor or self._new_predictor(whole)).predict_json(data, bounds)
        if self._fit.wanted and (wanted := self._wanted_of(found)) is not None:
            self._fit.keep(bytes(data[bounds[wanted] : bounds[wanted + 1]]))
        return self._predictions(whole, found)

    def predict_hashed(self, keys: ArrayLike, values: ArrayLike, row_start: ArrayLike) -> Predictions:
        """Hashed features; see `Scorer.predict_hashed` for the arguments."""
        whole = self._usable()
        p_click, version, known = whole.replica.predict(
            np.asarray(keys, np.uint64), np.asarray(values, np.float64), np.asarray(row_start, np.int64)
        )
        self._fit.count(known)
        return self._predictions(whole, EventPredictions(p_click, np.zeros(len(p_click), np.uint8), version, known))

    def _predictions(self, whole: _Whole, found: EventPredictions) -> Predictions:
        p_click, status, version, known, words = found
        ages = _age_ms(version, whole.encoding), self._age_s()
        return Predictions(p_click, status, version, self.model, known, *ages, words)

    def _new_predictor(self, whole: _Whole) -> EventPredictor:
        """The predictor of the calling thread, which has none yet."""
        predictor = whole.replica.predictor(whole.encoding.spec, whole.encoding.ignored)
        whole.local.predictor = predictor
        self._fit.follow(predictor)
        return predictor

    def _wanted_of(self, found: EventPredictions) -> int | None:
        """The place of an event that is to be looked at, None if these have none."""
        if len(found.known) == 1:
            return 0 if found.known[0] < self._fit.wanted and not found.status[0] else None
        wanted = np.flatnonzero((found.known < self._fit.wanted) & (found.status == 0))
        return int(wanted[0]) if len(wanted) else None

    def _usable(self) -> _Whole:
        """The version to predict with, as one reference: a call ends with what it began with. Raises NotReady."""
        whole = self._whole
        if whole is None:
            raise NotReady(f"model {self.model} has no version yet: {self.why_not_ready}")
        if self._refuse_after_ms is not None and (refused := self.why_refused):
            raise NotReady(f"model {self.model} is not used: {refused}")
        return whole

    def _age_s(self) -> float:
        return time.monotonic() - self._published_s

    def _quiet_for(self, limit_ms: int | None) -> bool:
        """Whether no version was published for longer than this, though one was expected."""
        quiet_s = time.monotonic() - max(self._published_s, self._excused_at_s)
        return limit_ms is not None and quiet_s * 1000 > limit_ms

    def _begin_with(self, kept: KeptVersion) -> None:
        """Take step 1 with a copy."""
        self._whole = _Whole(kept.replica, self._encoding_of(kept.replica.model))
        self._published_s = self._began_s - kept.age_s
        self.loaded_s = 0.0

    def _new_reader(self) -> SnapshotReader:
        """Make a reader of the topic, from its beginning. Raises TopicMissing, BrokerUnreachable, NotAuthorised."""
        try:
            reader = SnapshotReader(
                self._settings,
                self._topic,
                self._log,
                lambda version, published_ms: self._note(reader.replica, version, published_ms),
                check_model=self._encoding_of,
                on_unusable=self._on_unusable,
            )
        except TopicMissing as error:
            raise TopicMissing(
                f"there is no model {self.model}: its topic is {error.message}", action=NO_MODEL
            ) from error
        return reader

    def _pin_reader(self, reader: SnapshotReader) -> None:
        """Pin a reader as `pin` was told. The version held may be served by another replica than the reader's."""
        assert self._held is not None
        (version,), whole = self._held, self._whole
        if version is None and whole is not None and whole.replica is not reader.replica:
            version = whole.replica.version
        reader.pin(version)

    def _tend(self) -> None:
        """Take step 3 when the reader has ended; log when the version becomes stale, or requests do not fit."""
        again_s, pause_s, said = time.monotonic(), AGAIN_S, ""
        while not self._stop.wait(LOOK_S):
            self._tell_staleness()
            whole, reader = self._whole, self._reader
            if whole is not None:
                self._fit.turn(whole.encoding.spec, whole.encoding.ignored, whole.replica.weight)
            if reader is not None and whole is not None and whole.replica is reader.replica:
                pause_s, said = AGAIN_S, ""
            ended = reader is None or reader.failure is not None
            if whole is None or not ended or time.monotonic() < again_s:
                continue
            try:
                self._follow_again()
            except StreamLearnerError as error:
                self._failure = error
                if str(error) != said:
                    said = str(error)
                    self._log.warning("snapshots_not_followed", reason=said, action=error.action)
            again_s, pause_s = time.monotonic() + pause_s, min(2 * pause_s, LONGEST_AGAIN_S)

    def _follow_again(self) -> None:
        reader = self._new_reader()
        with self._changing:
            if self._held is not None:
                self._pin_reader(reader)
            self._reader = reader
        reader.start()
        if self._stop.is_set():
            reader.stop()
        else:
            self._log.info("snapshots_followed_again", topic=self._topic)

    def _tell_staleness(self) -> None:
        """Log once that the version has become stale, and once that it no longer is."""
        if reason := self.why_stale:
            self._stale.begin(version=self.replica.version, reason=reason)
        else:
            self._stale.end(version=self.replica.version)

    def _encoding_of(self, content: Mapping[str, Any]) -> _Encoding:
        """The encoding of events for a model record. Raises NewerFormat if this program cannot make its features."""
        try:
            inputs = content["inputs"]
            spec = FeatureSpec.from_dict(content["features"])
            return _Encoding(
                content["features"], inputs, spec, tuple(inputs["ignored_fields"]), int(content["tick_ms"])
            )
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise NewerFormat(f"model {self.model} has features that this program cannot make: {error}") from error

    def _note(self, replica: Replica, version: int, published_ms: int) -> None:
        """Serve a version that has become whole. Called in the reader's thread."""
        model, whole = replica.model, self._whole
        self._published_s = time.monotonic() - _since_s(published_ms)
        known = whole.encoding if whole is not None and whole.replica is replica else None
        if known is None or (known.features, known.inputs) != (model["features"], model["inputs"]):
            self._whole = _Whole(replica, self._encoding_of(model))
        if whole is not None and whole.replica is not replica:
            self._kept = None
            self._log.info("served_from_topic", version=version, before=whole.replica.version)
        if self.loaded_s is None:
            self.loaded_s = time.monotonic() - self._began_s
        self._on_version(self, version)


def _since_s(time_ms: int) -> float:
    """Seconds since a time of the wall clock; 0 if it is not known (-1) or not come yet."""
    return max(time.time() - time_ms / 1000, 0.0) if time_ms >= 0 else 0.0


def _age_ms(version: int, encoding: _Encoding) -> float:
    """How long ago the tick of a version ended, in ms of the wall clock."""
    return time.time() * 1000 - (version + 1) * encoding.tick_ms
