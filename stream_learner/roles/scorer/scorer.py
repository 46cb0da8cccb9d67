"""The class that predicts: follows one model, or the model that an alias points at.

It takes events as JSON or dictionaries, or hashed features, and returns click probabilities with the version and the
model that made them. No answer mixes versions or models, and answers do not end because no new version comes.

    with Scorer("localhost:9092", model="ctr") as scorer:
        scorer.wait_ready()
        print(scorer.predict({"site": "example.org", "ad": 17}).p_click)
"""

from __future__ import annotations

import os
import threading
import time
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_library_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.features import Event
from stream_learner.core.parts import compile_parts, parts_of
from stream_learner.errors import AuthenticationFailed, ConfigError, NewerFormat, NotAuthorised, NotReady, Stop
from stream_learner.roles.control.topic import require_control
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.scorer.kept_copy import KeptCopy
from stream_learner.roles.scorer.replica import BadEvent, KeptVersion, ModelReplica, Prediction, Predictions
from stream_learner.roles.scorer.served_model import ServedModel

__all__ = ["BadEvent", "Prediction", "Predictions", "Scorer"]

POLL_S = 0.02
SETTLE_S = 10.0
NOT_STARTED = "the scorer was not started: use it in a with block, or call start()"
FORKED = (
    "this process was forked from the one that started the scorer, and nothing follows the model here: make a Scorer "
    "in each process, after the fork"
)
LOOK = "see `stream-learner gate status` and the log of the learner"
CONTROL_TOPIC = "stream-learner.control"


class Scorer:
    """Follows one model, or an alias, and predicts. Thread-safe; use as a context manager, or call `start`, `close`.

    Every prediction is made with one whole version of one model. Neither a version nor a model that is loaded makes a
    prediction wait. Once there is a version, predictions are made until the end, whatever becomes of brokers and
    learner; `version_age_s` and `why_stale` say how old it is. Threads do not survive a fork: in a forked process a
    scorer that was started before is not ready, and predicting raises NotReady.
    """

    def __init__(
        self,
        bootstrap_servers: str = "",
        model: str = "",
        *,
        alias: str = "",
        kafka: Mapping[str, Any] | None = None,
        topic: str | None = None,
        control_topic: str = CONTROL_TOPIC,
        stale_after_ms: int | None = 300_000,
        refuse_after_ms: int | None = None,
        state_dir: str | os.PathLike[str] | None = None,
        copy_every_ms: int = 60_000,
        on_version: Callable[[int], None] | None = None,
        metrics: Metrics | None = None,
    ) -> None:
        """bootstrap_servers: "host:port[,host:port]". model: its name; or alias: that of an alias. kafka: further
        options of librdkafka.

        topic: the model's snapshot topic, if it is not `<model>.snapshots`. control_topic: the topic of aliases, pins
        and pauses. stale_after_ms: a version that was published longer ago is stale, unless the model is paused or
        pinned; the log, the metrics and `why_stale` say so; None for no limit. refuse_after_ms: if the version was
        published longer ago, predicting raises NotReady; None for no limit. state_dir: directory of a copy of the last
        version, written at most every copy_every_ms, and served at the start until the topic has been read. on_version:
        is called with every new version, in the thread that applies it; it must be quick, and errors that it raises are
        logged. metrics: where to count; by default nobody sees them. Raises ConfigError.
        """
        if bool(model) == bool(alias):
            raise ConfigError(
                "a scorer needs the name of its model, or of an alias, and not both", action="Give `model` or `alias`."
            )
        if alias and topic:
            raise ConfigError(
                "an alias's models have their own snapshot topics", action="Leave `topic` out, or give `model`."
            )
        options = dict(kafka or {})
        if bootstrap_servers:
            options["bootstrap.servers"] = bootstrap_servers
        self.name = alias or model
        self._alias = alias
        self._settings = KafkaSettings(options)
        self._topic = topic
        self._stale_after_ms = stale_after_ms
        self._refuse_after_ms = refuse_after_ms
        self._notify = on_version
        self._metrics = metrics or Metrics(self.name)
        self._metrics.follow(names.SCORER_READY, lambda: float(self.ready))
        self._metrics.follow(names.SCORER_FRESHNESS, lambda: (self.freshness_ms or 0.0) / 1000)
        self._metrics.follow(names.SCORER_VERSION_AGE, lambda: self.version_age_s or 0.0)
        self._metrics.follow(names.SCORER_STALE, lambda: float(bool(self.why_stale)))
        self._metrics.follow(names.SCORER_FROM_COPY, lambda: float(self.is_from_copy))
        self._metrics.inc(names.SCORER_UNUSABLE, 0.0)
        self._log = get_library_logger("scorer", **{"alias": alias} if alias else {"model": model})
        self._watch = ControlWatch(self._settings, control_topic, self._log, on_look=self._follow)
        self._served = self._new_served_model()
        self._copy = self._new_copy(Path(state_dir), copy_every_ms) if state_dir is not None else None
        self._started = False
        self._closed = False
        self._forked = False
        self._reporting = threading.Lock()
        self._loaded: ModelReplica | None = None
        self._reported: tuple[ModelReplica, int] | None = None

    def start(self) -> Scorer:
        """Connect and begin to follow, once. Loads the kernels before that, or compiles them, if no start did so yet.

        With a copy in `state_dir` it serves the copy at once, without asking a broker. Without one it raises
        TopicMissing, NotAuthorised, AuthenticationFailed, and RetryLater (BrokerUnreachable is one) if the brokers
        cannot answer now, for example while leaders change. With an alias it also raises TopicMissing if there is no
        control topic. An alias that points at no model yet, or at one that cannot be loaded, is no error:
        `why_not_ready` says so. Raises RuntimeError when called again.
        """
        if self._started:
            raise RuntimeError("a scorer is started once: make another one")
        compile_parts(parts_of(["scorer"]))
        kept = self._kept_replica()
        if kept is None and self._alias:
            require_control(Admin(self._settings), self._watch.topic)
        else:
            self._served.begin(kept or self._replica_of(self.name))
        self._started = True
        _STARTED.add(self)
        self._watch.start()
        if self._copy is not None:
            self._copy.start(lambda: self._served.current)
        if self._alias and kept is None:
            self._watch.wait_settled(SETTLE_S)
        return self

    def close(self) -> None:
        """Stop following; predictions go on being made with the last version."""
        self._closed = True
        if self._copy is not None:
            self._copy.stop()
        self._watch.stop()
        self._served.close()

    def __enter__(self) -> Scorer:
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def wait_ready(self, timeout_s: float = 60.0) -> None:
        """Wait until `ready`. Raises NotReady, with the reason, after `timeout_s`; and what ended the reader."""
        until = time.monotonic() + timeout_s
        if not self._started:
            raise NotReady(NOT_STARTED)
        while not self.ready:
            if self._forked:
                raise NotReady(FORKED)
            current = self._served.current
            failure = current.failure if current is not None else self._control_refused
            if failure is not None:
                raise failure
            if time.monotonic() > until:
                raise NotReady(f"{self._what} is not ready after {timeout_s:g} s: {self.why_not_ready}")
            time.sleep(POLL_S)

    @property
    def ready(self) -> bool:
        """Whether there is a whole version to predict with. Once true it stays so until `close`."""
        return not self.why_not_ready

    @property
    def is_held(self) -> bool:
        """Whether there is no version because the learner publishes none, and says why."""
        current = self._served.current
        return current is not None and current.is_held

    @property
    def why_not_ready(self) -> str:
        """The reason why it is not ready, "" if it is."""
        if not self._started:
            return NOT_STARTED
        if self._forked:
            return FORKED
        current = self._served.current
        if current is not None:
            return current.why_not_ready
        if self._closed:
            return "the scorer was closed"
        if self._control_refused is not None:
            return str(self._control_refused)
        return self.pending or "the control topic is not read yet"

    @property
    def why_stale(self) -> str:
        """How long ago the last version was published, and why none came since; "" if the version is not stale."""
        current = self._served.current
        return current.why_stale if current is not None else ""

    @property
    def trouble(self) -> str:
        """The reason why later versions of the model served cannot be applied at present, "" if they can."""
        current = self._served.current
        return current.trouble if current is not None else self.why_not_ready

    @property
    def why_refused(self) -> str:
        """The reason to refuse, "" for none: there is no version, or `refuse_after_ms` has passed."""
        current = self._served.current
        return current.why_refused if current is not None and self._started else self.why_not_ready

    @property
    def is_from_copy(self) -> bool:
        """Whether the version served is the copy in `state_dir`: the topic has not been read yet."""
        current = self._served.current
        return current is not None and current.is_from_copy

    @property
    def _control_refused(self) -> Stop | None:
        """The error for which an alias cannot be followed until a person has acted, None if there is none."""
        problem = self._watch.problem
        return problem if self._alias and isinstance(problem, NotAuthorised | AuthenticationFailed) else None

    @property
    def pending(self) -> str:
        """The reason why the alias's model is not served, "" if it is. The scorer may be ready all the same."""
        return self._served.pending

    @property
    def model(self) -> str:
        """The model that is served, "" if an alias points at none yet."""
        current = self._served.current
        return current.model if current is not None else "" if self._alias else self.name

    @property
    def version(self) -> int:
        """The version served, a tick; -1 before the first."""
        current = self._served.current
        return current.replica.version if current is not None else -1

    @property
    def freshness_ms(self) -> float | None:
        """Age of the version served: the wall clock minus the end of its tick; None before the first."""
        current = self._served.current
        return current.freshness_ms if current is not None else None

    @property
    def version_age_s(self) -> float | None:
        """Seconds since the version served was published; None before the first."""
        current = self._served.current
        return current.version_age_s if current is not None else None

    @property
    def description(self) -> dict[str, Any]:
        """The content of the model record: features, optimizer, progressive metrics, digest; empty before the first."""
        return self._replica.replica.model

    @property
    def weights(self) -> int:
        """Number of weights held."""
        return self._replica.replica.rows

    def weight(self, key: int) -> float:
        """The weight of a hashed feature in the version served; 0.0 if it has none, or before the first version."""
        replica = self._replica.replica
        return replica.weight(key) if replica.served is not None else 0.0

    def largest_weights(self, count: int) -> tuple[NDArray[np.uint64], NDArray[np.float32]]:
        """Keys and weights of the `count` largest weights by magnitude, largest first."""
        return self._replica.replica.largest_weights(count)

    def predict(self, event: Event) -> Prediction:
        """The probability that this event is clicked. Raises BadEvent if it cannot be scored, NotReady before the first
        version."""
        return (self._served.current or self._replica).predict(event)

    def predict_many(self, events: Sequence[Event]) -> Predictions:
        """The probabilities for many events, all of one version. Raises NotReady before the first version."""
        return (self._served.current or self._replica).predict_many(events)

    def predict_json(self, data: bytes | NDArray[np.uint8], bounds: NDArray[np.int64]) -> Predictions:
        """The probabilities for the n events data[bounds[i]:bounds[i+1]], each as JSON, bounds i64[n+1].

        Makes no object for each event, unlike `predict_many`. Raises NotReady before the first version, ValueError if
        the bounds do not rise from 0 or more to len(data) or less.
        """
        return (self._served.current or self._replica).predict_json(data, bounds)

    def predict_hashed(self, keys: ArrayLike, values: ArrayLike, row_start: ArrayLike) -> Predictions:
        """The probabilities for events given as hashed features.

        keys u64[m], values f64[m], row_start i64[n+1]: event i has the features row_start[i] to row_start[i+1] - 1.
        The bias must be among them. Raises NotReady before the first version, ValueError for arrays that do not fit.
        """
        return (self._served.current or self._replica).predict_hashed(keys, values, row_start)

    def tell_of(self, events: Sequence[bytes]) -> None:
        """Log the fields of some events, JSON, that the version served does not know, each with the nearest that it
        knows; for a program that ends after them. One that runs on is told by itself. Nothing before the first version.
        """
        self._replica.tell_of(events)

    def pin(self, version: int | None = None) -> None:
        """Stay with the model served, and serve no version of it after this one; None holds the one served now.

        A scorer that is past the version stays at the version it serves. Wins over pins of the control topic until
        `unpin`. Raises NotReady if there is no model yet.
        """
        self._replica  # noqa: B018 -- raises NotReady if there is none
        self._served.pin(version)

    def unpin(self) -> None:
        """Follow again what the control topic says, its pins included, from the last version on."""
        self._served.unpin()

    @property
    def _what(self) -> str:
        return f"alias {self._alias}" if self._alias else f"model {self.name}"

    @property
    def _replica(self) -> ModelReplica:
        current = self._served.current
        if current is None:
            raise NotReady(f"{self._what} has no version yet: {self.why_not_ready}" if self._started else NOT_STARTED)
        return current

    def _follow(self) -> None:
        """Obey the control topic. Called in its thread, after every look."""
        try:
            self._served.obey(self._watch.state, is_read=self._watch.is_read)
        except Exception:  # noqa: BLE001 -- the model served must go on being served
            self._log.error("following_failed", exc_info=True)

    def _new_served_model(self) -> ServedModel:
        return ServedModel(
            self.name, is_alias=bool(self._alias), make=self._replica_of, on_served=self._on_served, log=self._log
        )

    def _leave_behind(self) -> None:
        """Serve nothing in a forked process. Its clients must not be touched: their threads are in the parent."""
        _OF_THE_PARENT.append((self._served, self._watch))
        self._served = self._new_served_model()
        self._forked = True

    def _new_copy(self, folder: Path, every_ms: int) -> KeptCopy:
        if "/" in self.name:
            raise ConfigError(f"a copy cannot be kept under the name {self.name!r}", action="Give it another name.")
        return KeptCopy(folder, self.name, self._log, self._metrics, is_alias=bool(self._alias), every_ms=every_ms)

    def _kept_replica(self) -> ModelReplica | None:
        """The replica that begins with the copy, None if there is no copy that can be served."""
        found = self._copy.load() if self._copy is not None else None
        if found is None:
            return None
        model, kept = found
        try:
            replica = self._replica_of(model, kept)
        except NewerFormat as error:
            self._log.warning("copy_not_served", reason=str(error))
            return None
        self._log.warning(
            "serving_copy", served_model=model, version=kept.replica.version, age_seconds=round(kept.age_s)
        )
        return replica

    def _replica_of(self, model: str, kept: KeptVersion | None = None) -> ModelReplica:
        return ModelReplica(
            self._settings,
            model,
            self._topic or f"{model}.snapshots",
            self._log.bind(model=model),
            stale_after_ms=self._stale_after_ms,
            refuse_after_ms=self._refuse_after_ms,
            on_version=self._on_version,
            on_unusable=lambda: self._metrics.inc(names.SCORER_UNUSABLE),
            metrics=self._metrics,
            kept=kept,
            why_held=lambda: self._why_held(model),
        )

    def _why_held(self, model: str) -> str:
        """What the learner of a model that was never published says of that in the control topic, "" for nothing."""
        found = self._watch.state.gates.get(model)
        if found is not None and found.holding is not None:
            return f"the learner holds the training log at tick {found.holding.tick}: {found.note}; {LOOK}"
        if found is not None and (held := found.publication) is not None:
            return f"the learner holds the first version ({held.bound}): {held.reason}; {LOOK}"
        return ""

    def _on_served(self, replica: ModelReplica, before: ModelReplica | None) -> None:
        """Count that another model is served from now on."""
        if before is not None:
            self._metrics.forget(names.SCORER_MODEL_INFO, served_model=before.model)
            self._metrics.inc(names.SCORER_SWITCHES)
        self._metrics.set(names.SCORER_MODEL_INFO, 1, served_model=replica.model)
        if replica.loaded_s is not None:
            self._report(replica, replica.replica.version)

    def _on_version(self, replica: ModelReplica, version: int) -> None:
        """Count a new version. Called in the thread of the replica's reader."""
        self._metrics.inc(names.SCORER_APPLIED)
        if replica is self._served.current:
            self._report(replica, version)

    def _report(self, replica: ModelReplica, version: int) -> None:
        """Report a version that is served: once, though two threads may come with it at the same time."""
        with self._reporting:
            if self._reported == (replica, version):
                return
            self._reported = (replica, version)
            if self._loaded is not replica and replica.loaded_s is not None:
                self._loaded = replica
                self._metrics.observe(names.SCORER_LOAD, replica.loaded_s)
            self._metrics.set(names.SCORER_VERSION, version)
            self._metrics.set(names.SCORER_WEIGHTS, replica.replica.rows)
        if self._notify is not None:
            try:
                self._notify(version)
            except Exception:  # noqa: BLE001 -- the caller's function must not end the reader
                self._log.error("on_version_failed", version=version, exc_info=True)


_STARTED: weakref.WeakSet[Scorer] = weakref.WeakSet()
_OF_THE_PARENT: list[object] = []
"""Never freed in a forked process: freeing a client of Kafka waits for its threads, which are not there."""


def _after_fork() -> None:
    for scorer in list(_STARTED):
        scorer._leave_behind()


os.register_at_fork(after_in_child=_after_fork)
