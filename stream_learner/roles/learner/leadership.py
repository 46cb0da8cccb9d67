"""Takes up and lays down what only the leader of a model does: publish, and copy checkpoints.

`roles/learner/__init__.py` has the table of the states. `Election` decides; this file acts on it.

Initialising a publisher fences the learner that led before. So a learner connects its publishers while it loads its
state, and must initialise them only when it is its turn: a load that fails must end no leader.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import Admin, KafkaSettings, TopicInfo, TransactionalPublisher
from stream_learner.adapters.record_errors import DELETE
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.core.events.feature_keys import FIRST_RULE
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.errors import (
    BrokerUnreachable,
    ConfigError,
    Fenced,
    PartitionCountsDiffer,
    RetryLater,
    StateOfAnotherModel,
    operator_action,
)
from stream_learner.roles.common.last_publication import LastPublication
from stream_learner.roles.common.record_sizes import RecordSizes
from stream_learner.roles.control.topic import require_control
from stream_learner.roles.learner.checkpoints import Checkpoints, spans_of
from stream_learner.roles.learner.copies.schedule import CopySchedule, begin_copies
from stream_learner.roles.learner.election import Election
from stream_learner.roles.learner.publication import Publication
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config
    from stream_learner.roles.learner.gate import ModelGate

TAKE_OVER_AGAIN_S = 1.0


@dataclass(frozen=True)
class TakeOver:
    """The times of a take-over: how long the standby had waited, and when it had the lease."""

    stood_by_s: float
    begun_s: float
    fence_s: float = 0.0
    seconds: float = 0.0

    def fenced(self) -> TakeOver:
        """The predecessor is fenced, and the last version is known."""
        return replace(self, fence_s=time.monotonic() - self.begun_s)

    def published(self) -> TakeOver:
        """The first version is out."""
        return replace(self, seconds=time.monotonic() - self.begun_s)

    def fields(self) -> dict[str, float]:
        """The fields of its log events."""
        found = {"stood_by_seconds": self.stood_by_s, "fence_seconds": self.fence_s}
        if self.seconds:
            found["first_publication_seconds"] = self.seconds - self.fence_s
        return {name: round(value, 3) for name, value in found.items()}


@dataclass
class Term:
    """A period in which this learner leads."""

    publication: Publication
    took_over: TakeOver | None = None
    """The take-over with which a standby began this term; None once its first version is out."""
    failure: str = ""
    """The reason why the last publication failed, "" if it did not."""


class Leadership:
    """The terms of one learner. Used by the learner's thread: `connect`, `begin`, then `turn` after turn.

    The copies go on after the term of a plain learner, which ends only with the process: its last checkpoint is copied
    too. A standby's copies end with its term.
    """

    def __init__(
        self,
        config: Config,
        settings: KafkaSettings,
        metrics: Metrics,
        log: Logger,
        gate: ModelGate,
        *,
        standby: bool,
        with_lease: bool,
    ) -> None:
        """gate: knows which decisions the model was learned with. standby: lead only while this learner holds the
        lease. with_lease: whether it asks for one.
        """
        self.term: Term | None = None
        """None while this learner follows."""
        self.copies: CopySchedule | None = None
        self.fence_s = 0.0
        """How long the last fencing of a predecessor took."""
        self._config, self._settings, self._metrics, self._log = config, settings, metrics, log
        self._gate = gate
        self._election = Election(config, settings, standby=standby, with_lease=with_lease)
        self._warm = WarmPublishers()
        self._copy_settings = settings
        self._admin: Admin | None = None
        self._checkpoints: Checkpoints | None = None
        self._again_at_s = 0.0
        self._to_check: tuple[Mapping[str, Any], int] | None = None
        """The version that the next publication goes on from: its model record, and its number; None once checked."""

    def connect(self, admin: Admin) -> int | None:
        """Begin to connect the publishers. Fences nobody.

        Returns how large a piece of a checkpoint may be to fit the topic of the copies, None where nothing bounds it.
        """
        config, sizes = self._config, RecordSizes(admin, self._log)
        if not config.learner.publish:
            return None
        self._warm.connect(self._publisher_settings(sizes), config.publisher_id)
        if not config.learner.copies:
            return None
        piece_bytes = sizes.limit_bytes(config.checkpoints_topic)
        self._copy_settings = self._settings.with_batches(sizes.batch_bytes(config.checkpoints_topic))
        self._warm.connect(self._copy_settings, config.copier_id)
        return piece_bytes

    def _publisher_settings(self, sizes: RecordSizes) -> KafkaSettings:
        """Settings with batches that the snapshot topic takes."""
        return self._settings.with_batches(sizes.batch_bytes(self._config.snapshots_topic))

    def begin(self, admin: Admin, checkpoints: Checkpoints) -> TopicInfo | None:
        """Lead at once, unless this is a standby; returns the snapshot topic, None where nothing is ever published.

        checkpoints: loaded. Raises TopicMissing, PartitionCountsDiffer, and what `turn` raises.
        """
        config, snapshots = self._config, self._config.snapshots
        self._show(leads=False)
        if not config.learner.publish:
            return None
        topic = admin.require([config.snapshots_topic])[config.snapshots_topic]
        if topic.partitions != snapshots.shards:
            raise PartitionCountsDiffer(
                f"{topic.name} has {count_of(topic.partitions, 'partition')}, snapshots.shards is {snapshots.shards}",
                action=operator_action(StateOfAnotherModel),
            )
        if config.learner.copies:
            admin.require([config.checkpoints_topic])
        self._admin, self._checkpoints = admin, checkpoints
        if self._election.standby:
            require_control(admin, config.control_topic)
        self.turn(checkpoints.tick, caught_up=False)
        return topic

    def turn(self, tick: int, *, caught_up: bool) -> None:
        """Lead if it is this learner's turn, follow if it is no longer.

        tick: folded last, for the log. caught_up: whether the fold has reached the end that the log had at the start.

        Raises what `Election.poll` and `Publication.begin` raise, OtherDecisions, and ConfigError where the last
        version's keys were made by another rule; a standby tries again where the brokers do not answer.
        """
        if self._admin is None:
            return
        is_to_lead = self._election.poll(caught_up=caught_up)
        if is_to_lead == (self.term is not None):
            return
        if not is_to_lead:
            self._follow(tick)
        elif not self._election.standby:
            self.term = self._new_term(tick)
        elif time.monotonic() >= self._again_at_s:
            self._take_over(tick)

    def _take_over(self, tick: int) -> None:
        """Begin a term where another learner has led, or will lead again."""
        took_over = TakeOver(self._election.stood_by_s, time.monotonic())
        try:
            term = self._new_term(tick)
        except (BrokerUnreachable, RetryLater) as error:
            self._log.warning("take_over_failed", reason=str(error))
            self._again_at_s = time.monotonic() + TAKE_OVER_AGAIN_S
            return
        term.took_over = took_over.fenced()
        self.term = term
        self._metrics.inc(names.LEARNER_TAKEOVERS)
        self._log.info("leads", tick=tick, **term.took_over.fields())

    def _new_term(self, tick: int) -> Term:
        """Fence whoever led before; publish from now on, beyond the last version there is."""
        assert self._admin is not None and self._checkpoints is not None
        checkpoints = self._checkpoints

        def begins_whole(last: LastPublication) -> bool:
            published = () if last.model is None else spans_of(last.model.content)
            checkpoints.follow_rewinds(published, tick, self._config.snapshots_topic)
            has_gone_back = len(checkpoints.rewinds) > len(published)
            self._to_check = None
            if last.model is not None and not has_gone_back:
                self._to_check = last.model.content, last.model.stamp.version
                self._gate.check_course(*self._to_check)
            return has_gone_back

        config, sizes = self._config, RecordSizes(self._admin, self._log)
        publication = Publication(
            self._publisher_settings(sizes),
            self._admin.offsets,
            topic=config.snapshots_topic,
            transactional_id=config.publisher_id,
            shards=config.snapshots.shards,
            policy=self._page_policy(sizes),
            learner=self._checkpoints.learner,
            new_publisher=self._warm.take,
            begins_whole=begins_whole,
        )
        began_s = time.monotonic()
        try:
            # The publisher first: whoever copies and is fenced takes it for a sign that it is fenced there too.
            _check_key_rule(config, publication.begin())
            self._begin_copies(self._admin, self._checkpoints)
        except BaseException:
            publication.close()
            raise
        self.fence_s = time.monotonic() - began_s
        self._show(leads=True)
        return Term(publication)

    def _page_policy(self, sizes: RecordSizes) -> PagePolicy:
        """Pages and parts of deltas that the snapshot topic takes."""
        snapshots, policy, topic = self._config.snapshots, PagePolicy(), self._config.snapshots_topic
        return PagePolicy(
            page_bytes=sizes.fitting(topic, snapshots.page_bytes, "snapshots.page_bytes"),
            part_bytes=sizes.fitting(topic, policy.part_bytes, "of a part of a delta"),
            ring=snapshots.ring,
        )

    def _begin_copies(self, admin: Admin, checkpoints: Checkpoints) -> None:
        """Fence whoever copied checkpoints before; copy from now on."""
        if self._config.learner.copies:
            self.copies = begin_copies(
                self._config,
                self._copy_settings,
                admin,
                checkpoints,
                self._metrics,
                self._log,
                new_publisher=self._warm.take,
            )

    def _follow(self, tick: int) -> None:
        """End the term: publish nothing from now on. Whatever was published stays."""
        term, self.term = self.term, None
        if term is None:
            return
        term.publication.close()
        if self._election.standby and self.copies is not None:
            self.copies.close()
            self.copies = None
        self._show(leads=False)
        self._log.info("follows", tick=tick)

    def _show(self, *, leads: bool) -> None:
        self._metrics.set(names.LEARNER_LEADS, float(leads))

    def check_course(self) -> None:
        """Before a publication: compare the decisions with those of the version that was published when the term began.

        The state was compared then; but what it has folded since, up to that version, was not. Raises OtherDecisions.
        """
        if self._to_check is not None:
            self._gate.check_course(*self._to_check)
            self._to_check = None

    def check_copies(self) -> None:
        """Raise Fenced if another process copies the checkpoints of this model."""
        try:
            if self.copies is not None:
                self.copies.check()
        except Fenced as error:
            raise self.taken_over(error) from error

    def taken_over(self, error: Fenced) -> Fenced:
        """The error to end with, after one that says that another process publishes or copies."""
        return self._election.taken_over(str(error))

    def waited_for_brokers(self) -> None:
        """Note that the learner's thread waited for brokers since the last turn, and did not sleep."""
        self._election.awake()

    def resign(self, tick: int) -> None:
        """End the term, and give the lease up. tick: folded last, for the log."""
        self._follow(tick)
        self._election.leave()

    def close(self) -> None:
        """Drop every producer, and the lease."""
        if self.term is not None:
            self.term.publication.close()
        if self.copies is not None:
            self.copies.close()
        self._warm.close()
        self._election.leave()


def _check_key_rule(config: Config, last: LastPublication) -> None:
    """Raise ConfigError where the model was published with another rule of keys than is configured.

    Its weights, and the examples it was learned from, are of that rule; a model without an example has none.
    """
    if last.model is None or not last.model.content["metrics"].get("examples", 1):
        return
    found, configured = last.model.content["features"].get("key_rule", FIRST_RULE), config.feature_spec().key_rule
    if found != configured:
        raise ConfigError(
            f"{config.snapshots_topic} was published with key rule {found}, features.key_rule is {configured}",
            action=f"Set features.key_rule of joiners and learner to {found}, or begin another model. {DELETE}",
        )


class WarmPublishers:
    """Publishers that are connected before they are needed, so that a take-over does not wait for a connection.

    A client that initialises its id before it knows a broker looks again half a second later; a client that knows its
    broker is through in milliseconds. Used by the learner's thread.
    """

    def __init__(
        self, new_publisher: Callable[[KafkaSettings, str], TransactionalPublisher] = TransactionalPublisher
    ) -> None:
        self._new_publisher = new_publisher
        self._waiting: dict[str, tuple[KafkaSettings, TransactionalPublisher]] = {}

    def connect(self, settings: KafkaSettings, transactional_id: str) -> None:
        """Begin to connect a publisher, without initialising it; returns at once."""
        self._waiting[transactional_id] = (settings, self._new_publisher(settings, transactional_id))

    def take(self, settings: KafkaSettings, transactional_id: str) -> TransactionalPublisher:
        """The connected publisher if it has these settings and the credentials on disk, else a new one."""
        waiting = self._waiting.pop(transactional_id, None)
        if waiting is not None:
            made_with, publisher = waiting
            if made_with.batch_bytes == settings.batch_bytes and not publisher.outdated:
                return publisher
            publisher.close()
        return self._new_publisher(settings, transactional_id)

    def close(self) -> None:
        """Drop the publishers that nobody has taken."""
        for _, publisher in self._waiting.values():
            publisher.close()
        self._waiting.clear()
