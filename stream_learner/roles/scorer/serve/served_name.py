"""One name of `serve`: a model or an alias, followed by a scorer that is replaced if it ends.

An error that ends one scorer must never end the server: other names go on, and this one says why it is not ready.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.errors import NotReady, RetryLater, StreamLearnerError
from stream_learner.roles.scorer.scorer import Predictions, Scorer

AGAIN_S = 5.0
"""Time from the end of a scorer, or from a failed start, to the next attempt."""


class ServedName:
    """A model or alias that is served. One thread calls `tend` every second or so; any thread may call the rest."""

    def __init__(self, config: Config, name: str, *, is_alias: bool, wait: bool = True) -> None:
        """wait: whether to wait for brokers if none answers at the first start."""
        self.name = name
        self._wait = wait
        self.metrics = Metrics(name)
        self._config = config
        self._is_alias = is_alias
        self._log = get_logger("serve").bind(served=name)
        self._scorer: Scorer | None = None
        self._following = False
        self._reason = "the server is starting"
        self._again_s = float("-inf")
        self._begun = False

    @property
    def model(self) -> str:
        return self._scorer.model if self._scorer is not None else "" if self._is_alias else self.name

    @property
    def version(self) -> int:
        """The version served, a tick; -1 before the first."""
        return self._scorer.version if self._scorer is not None else -1

    @property
    def freshness_ms(self) -> float | None:
        """Age of the version served; None before the first."""
        return self._scorer.freshness_ms if self._scorer is not None else None

    @property
    def description(self) -> dict[str, Any]:
        """The content of the model record; empty before the first version."""
        return self._scorer.description if self._scorer is not None and self._scorer.version >= 0 else {}

    @property
    def version_age_s(self) -> float | None:
        """How long ago the version was published, seconds; None before the first."""
        return self._scorer.version_age_s if self._scorer is not None else None

    @property
    def why_not_ready(self) -> str:
        """The reason why there is no whole version yet, "" if there is one."""
        if not self._following or self._scorer is None:
            return self._reason
        return self._scorer.why_not_ready

    @property
    def why_refused(self) -> str:
        """The reason why requests are refused, "" if they are not."""
        if not self._following or self._scorer is None:
            return self._reason
        return self._scorer.why_refused

    def predict_json(self, data: NDArray[np.uint8], bounds: NDArray[np.int64]) -> Predictions:
        """Predictions of `Scorer.predict_json`. Raises NotReady before the first version."""
        return self._ready_scorer.predict_json(data, bounds)

    def predict_many(self, events: Sequence[bytes | str]) -> Predictions:
        """Predictions of `Scorer.predict_many`. Raises NotReady before the first version."""
        return self._ready_scorer.predict_many(events)

    def tend(self) -> None:
        """Start the scorer, or start another one `AGAIN_S` after it has ended.

        Raises the error of the first start if trying again cannot help (a topic or a right is missing), or if `wait`
        is false.
        """
        if self._following:
            self._look_after()
        elif time.monotonic() >= self._again_s:
            self._start()

    def close(self) -> None:
        """Stop following."""
        if self._scorer is not None:
            self._scorer.close()

    @property
    def _ready_scorer(self) -> Scorer:
        if self._scorer is None:
            raise NotReady(f"{self.name}: {self._reason}")
        return self._scorer

    def _start(self) -> None:
        config = self._config
        own_topic = None if self._is_alias or self.name != config.model else config.snapshots_topic
        try:
            scorer = Scorer(
                model="" if self._is_alias else self.name,
                alias=self.name if self._is_alias else "",
                kafka=config.kafka_options(),
                topic=own_topic,
                control_topic=config.control_topic,
                stale_after_ms=config.scorer.stale_after_ms,
                refuse_after_ms=config.scorer.refuse_after_ms,
                state_dir=config.scorer.state_dir,
                copy_every_ms=config.scorer.copy_every_ms,
                metrics=self.metrics,
            ).start()
        except StreamLearnerError as error:
            if not self._begun and not (self._wait and isinstance(error, RetryLater)):
                raise
            if isinstance(error, RetryLater):
                self.metrics.inc(names.RETRIES, role="serve", error=type(error).__name__)
            self._end(error)
            return
        self._scorer, self._following, self._begun = scorer, True, True

    def _look_after(self) -> None:
        assert self._scorer is not None
        if self._scorer.ready:
            return
        try:
            self._scorer.wait_ready(0)
        except NotReady:
            return
        except StreamLearnerError as error:
            self._scorer.close()
            self._end(error)

    def _end(self, error: StreamLearnerError) -> None:
        if str(error) != self._reason:
            self._log.error("scorer_ended", reason=str(error), action=error.action)
        self._reason, self._following = str(error), False
        self._again_s = time.monotonic() + AGAIN_S
