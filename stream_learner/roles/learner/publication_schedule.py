"""Decides when one model is published, and says why it is not: step 5 of the learner."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.errors import BrokerUnreachable, ConfigError, Fenced, RetryLater
from stream_learner.roles.learner.checkpoints import Checkpoints
from stream_learner.roles.learner.leadership import Leadership, Term
from stream_learner.roles.learner.log_follower import LogFeatures
from stream_learner.roles.learner.publication_gate import ModelPublicationGate

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config

AGAIN_S = 1.0
OTHER_FEATURES = (
    "Give joiners and learner the same `features`. To go on with the learner's, begin the log anew with them "
    "(`stream-learner begin-anew`): the model is published again once the marks of every partition carry them. Scorers "
    "serve the last version until then."
)


class PublicationSchedule:
    """The publications of one model. Used by the learner's thread, between two ticks."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        log: Logger,
        leadership: Leadership,
        log_features: LogFeatures | None,
        gate: ModelPublicationGate,
        *,
        describe: Callable[[], Mapping[str, Any]],
        is_paused: Callable[[str], bool],
    ) -> None:
        """log_features: those of the examples folded so far, None where they need not be the configured ones.

        describe: makes the content of the model record. is_paused: whether the publication of a model is paused now.
        """
        self.paused = False
        self._config, self._metrics, self._log = config, metrics, log
        self._leadership, self._gate = leadership, gate
        self._log_features = log_features if config.learner.publish else None
        self._describe, self._is_paused = describe, is_paused
        self._paused_s: float | None = None
        self._published_s = time.monotonic()
        self._again_at_s = 0.0
        self._other_features = ""
        """The reason why the model must not be published with the features that are configured, "" where it may be."""

    @property
    def trouble(self) -> str:
        """The reason why the model cannot be published, "" if it can or need not be."""
        term = self._leadership.term
        return self._other_features or self._gate.trouble or (term.failure if term is not None else "")

    def publish_when_due(self, tick: int, checkpoints: Checkpoints, *, at_end: bool) -> None:
        """Publish the model as of `tick` if the interval is over; at once at the end.

        at_end: whether all is folded that was to be. Raises Fenced, OtherDecisions, and ConfigError where the end was
        folded from examples with other features than those configured.
        """
        self._look(tick)
        if at_end and self._other_features:
            raise ConfigError(f"{self._other_features}, up to tick {tick}", action=OTHER_FEATURES)
        is_time = time.monotonic() - self._published_s >= self._config.snapshots.interval_ms / 1000
        if self._leadership.term is None:
            self._gate.follow(tick, checkpoints.learner)
        elif at_end or is_time:
            self._publish(tick, checkpoints, ends=at_end)

    def due_in_s(self, tick: int) -> float | None:
        """Seconds until the model as of `tick` is published; None where it waits for more than its time."""
        term = self._leadership.term
        if term is None or self.paused or self._other_features or self.held or not term.publication.may_publish(tick):
            return None
        due_s = max(self._published_s + self._config.snapshots.interval_ms / 1000, self._again_at_s)
        return max(due_s - time.monotonic(), 0.0)

    @property
    def held(self) -> bool:
        """Whether the model is held back because it is out of bounds, or has not shown enough."""
        return self._gate.holding is not None

    def finish(self, tick: int, checkpoints: Checkpoints) -> None:
        """Publish the model as of `tick`, if it is allowed. Raises Fenced, OtherDecisions."""
        self._look(tick)
        self._publish(tick, checkpoints, ends=False)

    def _look(self, tick: int) -> None:
        """Learn what forbids to publish."""
        self._note_pause(tick)
        self._note_features(tick)

    def _note_pause(self, tick: int) -> None:
        """Learn whether publication is paused; log it when that changes."""
        paused = self._leadership.term is not None and self._is_paused(self._config.model)
        if paused != self.paused:
            self._log.info("publication_paused" if paused else "publication_resumed", tick=tick)
            self._metrics.set(names.LEARNER_PAUSED, float(paused))
            self._paused_s = time.monotonic() if paused else None
        self.paused = paused

    @property
    def paused_for_s(self) -> float:
        """How long this learner has known that publication is paused, 0 while it is not."""
        return 0.0 if self._paused_s is None else time.monotonic() - self._paused_s

    def _note_features(self, tick: int) -> None:
        """Learn whether the log's examples have the configured features; log it when that changes."""
        if self._log_features is None:
            return
        found = self._log_features.trouble(self._config.examples_topic)
        if found and not self._other_features:
            self._log.warning("features_differ", tick=tick, reason=found, action=OTHER_FEATURES)
        elif self._other_features and not found:
            self._log.info("features_agree", tick=tick)
        self._other_features = found

    def _publish(self, tick: int, checkpoints: Checkpoints, *, ends: bool) -> None:
        term, now_s = self._leadership.term, time.monotonic()
        if term is None or now_s < self._again_at_s or self.paused or self._other_features:
            return
        if not term.publication.may_publish(tick):
            if checkpoints.learner.examples == 0 and term.publication.version < 0:
                self._gate.lacks(tick, checkpoints.learner)
            return
        self._leadership.check_course()
        if not self._gate.lets(tick, checkpoints.learner, term.publication.version, ends=ends):
            return
        try:
            size_bytes = term.publication.publish(tick, checkpoints.tick, self._describe())
        except (BrokerUnreachable, RetryLater) as error:
            self._leadership.waited_for_brokers()
            self._note_failure(term, tick, str(error))
            return
        except Fenced as error:
            raise self._leadership.taken_over(error) from error
        term.failure, self._published_s = "", now_s
        self._gate.published()
        checkpoints.learner.count_nonzero()
        self._note_published(term, size_bytes, time.monotonic() - now_s)

    def _note_failure(self, term: Term, tick: int, reason: str) -> None:
        """Log the first of several failures; the next attempt is made a second later."""
        if not term.failure:
            self._log.warning("publication_failed", version=tick, reason=reason)
        self._metrics.inc(names.LEARNER_PUBLISH_FAILED)
        term.failure = f"model {self._config.model} cannot be published: {reason}"
        self._again_at_s = time.monotonic() + AGAIN_S

    def _note_published(self, term: Term, size_bytes: int, seconds: float) -> None:
        metrics, publication = self._metrics, term.publication
        metrics.observe(names.LEARNER_PUBLISH, seconds)
        metrics.inc(names.LEARNER_PUBLISH_BYTES, size_bytes)
        metrics.set(names.LEARNER_PUBLISHED_SEQUENCE, publication.sequence)
        metrics.set(names.LEARNER_PUBLISHED_VERSION, publication.version)
        if term.took_over is not None:
            took_over, term.took_over = term.took_over.published(), None
            metrics.observe(names.LEARNER_TAKEOVER, took_over.seconds)
            self._log.info("took_over", version=publication.version, **took_over.fields())
