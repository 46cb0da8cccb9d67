"""The joiner's loop: a member of the group that joins the partitions which the group gives to this process.

2. Begin a `PartitionJoiner` for each pair of partitions given, drop it for each taken.
3. Turn every partition once; hand acknowledged offsets to the partition that appended the record.
4. Every `COMMIT_EVERY_S`, commit the offsets of the durable marks: a hint, and what lag displays show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Protocol

from stream_learner.adapters.kafka import (
    ADDED,
    Admin,
    Appender,
    Assigned,
    KafkaSettings,
    Lost,
    Membership,
    ToCommit,
    TopicWatch,
    Wake,
)
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.errors import BrokerUnreachable, LogTrimmed, PartitionCountsDiffer, RetryLater, TopicMissing
from stream_learner.roles.common.lifecycle import IDLE_S, BrokerOutage, wall_clock_ms
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.made_with import PARTITION as SETTINGS_PARTITION
from stream_learner.roles.joiner.owned_partitions import OwnedPartitions, Turns
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.partition_plan import PartitionPlan
from stream_learner.roles.joiner.progress import Kept
from stream_learner.roles.joiner.report import FieldReport, forget_partition, lag_beyond_window_s, report_partitions
from stream_learner.roles.joiner.retention import Headroom
from stream_learner.roles.joiner.ticks import BrokersClock
from stream_learner.roles.joiner.watches import AheadWatch, BehindWatch, OrphanShare, ShareWatch, StreamReport
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config

COMMIT_EVERY_S = 1.0
LOOK_ROUND_S = 0.25
"""How often the group, the topics, the credentials and the clients' reports are looked at."""
FLUSH_S = 5.0
RETRY_S = 1.0
STUCK_S = 30.0
"""A record that waits so long for its acknowledgement is logged; the brokers may lack in-sync replicas."""
MIN_PARTITION_BUFFER_BYTES = 1 << 20


def moments_by(brokers: BrokersClock, clock_ms: Callable[[], int]) -> Callable[[int], int]:
    """A function from a time of the monotonic clock to its moment by the brokers' clock, or by the wall clock before a
    report.
    """

    def time_of(m: int) -> int:
        return m + (wall_clock_ms() - clock_ms() if brokers.base is None else brokers.base)

    return time_of


class Look(Protocol):
    """Looks at the inputs in a thread of its own, and logs what does not fit. earned: False."""

    def __call__(self, *, earned: bool) -> object:
        """May be asked often."""


class JoinerLoop:
    """An open joiner. Used by one thread; any may ask for the properties."""

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        plan: PartitionPlan,
        admin: Admin,
        *,
        appending: KafkaSettings,
        membership: Membership,
        topics: TopicWatch,
        turns: Turns,
        wake: Wake,
        fields: FieldReport,
        leave: bool,
        look: Look | None,
    ) -> None:
        """appending: settings of the plan's appender. leave: whether a static member gives its partitions away at once
        when it has finished. look: asked while it looks round. The loop closes `membership` and the plan's clients.
        """
        self._config, self._metrics, self._plan, self._log = config, metrics, plan, plan.log
        self._membership, self._topics, self._turns, self._wake = membership, topics, turns, wake
        self._fields, self._appending, self._leave, self._look = fields, appending, leave, look
        self._brokers, self._clock_ms, self._silence = plan.inputs.brokers, plan.inputs.clock_ms, plan.inputs.silence
        self._time_of = moments_by(self._brokers, self._clock_ms)
        self._owned = OwnedPartitions(self._report_partitions, self._forget_partition)
        self._headroom = Headroom(
            config, metrics, admin, lambda: list(self.partitions.values()), wall_clock_ms, self._log
        )
        self._orphans = OrphanShare(self._log, plan.partitions)
        self._ahead = AheadWatch(metrics, self._log)
        self._shares = ShareWatch(self._log)
        self._behind = BehindWatch(self._log)
        self._streams = StreamReport(metrics, self._log, self._brokers, window_s=config.join.window_ms / 1000)
        self._outage = BrokerOutage(self._log, "group_unreachable", "group_reachable")
        self._stuck = Episode(self._log, "appends_wait", "appends_go_on", limit=STUCK_S, ends_at=STUCK_S)
        self._oldest_append_s = 0.0
        self._look_round_at_s = self._retry_s = self._committed_at_s = 0.0
        self._foreign = 0

    @property
    def partitions(self) -> Mapping[int, PartitionJoiner]:
        """The joiners that are turned, by partition."""
        return self._owned.joining

    @property
    def why_not_ready(self) -> str:
        """As of `JoinerRole`."""
        if self._outage.since_s is not None:
            return "the joiner cannot reach its group"
        unread = next((j for j in list(self.partitions.values()) if j.held_for), None)
        if unread is not None:
            return f"partition {unread.partition} is not read: {unread.held_for}"
        if self._stuck.lasts:
            return f"the training log takes no records: the oldest waits for {self._oldest_append_s:.0f} s"
        return ""

    @property
    def done(self) -> bool:
        """As of `JoinerRole`."""
        partitions = list(self.partitions.values())
        return bool(partitions) and not self._owned.given and all(joiner.done for joiner in partitions)

    def turn(self) -> bool:
        """Steps 2 to 4, once. False if there was nothing to do."""
        looks_round = time.monotonic() >= self._look_round_at_s
        if looks_round:
            self._look_round_at_s = time.monotonic() + LOOK_ROUND_S
            self._topics.check()
            self._plan.ends.check()
            self._follow_group()
            if self._look is not None:
                self._look(earned=False)
        begun = self._begin_given()
        delivered = self._deliver(serve=looks_round)
        # Step 3: turn every partition once.
        did = self._turn_partitions(news=begun)
        if time.monotonic() - self._committed_at_s > COMMIT_EVERY_S:
            self._commit()
        return did or delivered

    def rest(self) -> None:
        """Wait for records or an answer about the ends; for a moment only while there is more to wait for."""
        waits = self._turns.may_wait and not self._plan.appender.waiting and not self._owned.given
        self._wake.wait(LOOK_ROUND_S if waits else IDLE_S)

    def _turn_partitions(self, *, news: bool) -> bool:
        """Turn the partitions; none while brokers take no records, so that the producer's queue is not filled.

        First notice whether clicks are silent: new ends of the inputs let the clock close windows.
        """
        if self._silence is not None:
            self._silence.look(self._plan.ends.snapshot)
        if self._plan.appender.is_filling:
            return False
        try:
            return self._turns.turn(list(self.partitions.values()), news=news)
        except (LogTrimmed, TopicMissing):
            # A topic that was made anew lacks the offset as well, and a topic that has fewer partitions than the others
            # lacks the partition: the check raises the error that says so.
            self._topics.check_now()
            raise

    def _deliver(self, *, serve: bool) -> bool:
        """Hand what the brokers acknowledged to the partitions that appended it; returns whether there was anything.

        serve: look for reports of the producer although nothing is under way.
        """
        if not (serve or self._plan.appender.waiting):
            return False
        try:
            deliveries = self._plan.appender.poll()
        except RetryLater as error:
            self._renew_appender(error)
            return True
        for delivery in deliveries:
            delivery.tag.deliver(delivery)
        return bool(deliveries)

    def _renew_appender(self, error: RetryLater) -> None:
        """The producer cannot be used any more: drop every attempt, and begin again with a new producer."""
        self._log.warning("producer_renewed", reason=str(error))
        self._owned.begin_again()
        self._plan.appender.close()
        self._plan = replace(self._plan, appender=Appender(self._appending, name="joiner"))

    def _follow_group(self) -> None:
        """Step 2: begin the partitions that are given, drop those that are taken."""
        self._outage.answered(self._topics.answered_s)
        try:
            events = self._membership.poll()
        except (BrokerUnreachable, RetryLater) as error:
            if self._outage.report(str(error)):
                self._metrics.inc(names.RETRIES, role="joiner", error=type(error).__name__)
            return
        except PartitionCountsDiffer:
            self._topics.check_now()
            raise
        for event in events:
            self._log.info(type(event).__name__.lower(), partitions=sorted(event.partitions))
            if isinstance(event, Assigned):
                self._refuse_added(event.partitions)
                self._owned.assign(event.partitions)
            elif isinstance(event, Lost):
                self._owned.park(event.partitions)
            else:
                self._owned.drop(event.partitions)
        if events:
            inputs = self._plan.inputs
            topics, owned = (inputs.impressions_topic, inputs.clicks_topic), {*self.partitions, *self._owned.given}
            self._plan.ends.watch((topic, partition) for topic in topics for partition in owned)

    def _refuse_added(self, partitions: frozenset[int]) -> None:
        """Raise PartitionCountsDiffer for partitions that were added since the start; the group may know them first."""
        added = sorted(partition for partition in partitions if partition >= self._plan.partitions)
        if added:
            self._topics.check_now()
            there = f"the topics had {count_of(self._plan.partitions, 'partition')} when it began"
            raise PartitionCountsDiffer(f"the group gave out partitions {added}, and {there}", action=ADDED)

    def _begin_given(self) -> bool:
        """Begin the partitions that were given; where brokers do not tell the hint, try again after `RETRY_S`.

        Returns whether any was begun.
        """
        given = self._owned.given
        if not given or time.monotonic() < self._retry_s:
            return False
        owned = len(self.partitions) + len(given)
        buffer_bytes = max(self._config.join.buffer_bytes // owned, MIN_PARTITION_BUFFER_BYTES)
        for partition in sorted(given):
            try:
                metadata = self._membership.committed(partition).metadata
            except (BrokerUnreachable, RetryLater) as error:
                self._log.warning("hint_not_known_yet", partition=partition, reason=str(error))
                self._retry_s = time.monotonic() + RETRY_S
                return False
            kept = Kept.from_text(metadata)
            if self._silence is not None:
                self._silence.recall(partition, kept.usual_of_all, kept.usual, self._clock_ms())
            joiner = PartitionJoiner(self._plan, partition, kept.hint, buffer_bytes, kept.remembered)
            self._owned.begin(partition, joiner)
        return True

    def _commit(self) -> None:
        """Step 4: commit the offsets of the durable marks, with the hint for the next owner; update the metrics."""
        self._committed_at_s = time.monotonic()
        self._note_stuck()
        if self._outage.since_s is None:
            found = (
                (partition, j.progress.to_commit(partial(self._kept, j))) for partition, j in self.partitions.items()
            )
            self._membership.commit({p: self._with_settings(p, now) for p, now in found if now is not None})
        for joiner in self.partitions.values():
            self._warn_of_shares(joiner)
        self._report_partitions(list(self.partitions.values()))
        if self._plan.until_tick is None:
            lags_s = {partition: self._lag_s(joiner) for partition, joiner in self.partitions.items()}
            known = {partition: lag_s for partition, lag_s in lags_s.items() if lag_s is not None}
            self._behind.look(known, time.monotonic())
        self._report()

    def _with_settings(self, partition: int, now: ToCommit) -> ToCommit:
        made_with = self._plan.made_with
        if made_with is None or partition != SETTINGS_PARTITION:
            return now
        return now._replace(of_clicks=made_with.text)

    def _kept(self, joiner: PartitionJoiner, hint: Hint) -> str:
        """The metadata of a committed offset: what the next owner of the partition should know."""
        of_all, own = ("", "") if self._silence is None else self._silence.to_texts(joiner.partition)
        return Kept(hint, of_all, own, joiner.to_remember()).to_text()

    def _note_stuck(self) -> None:
        """Log it when the brokers begin to take no records, and when they take them again."""
        now_s, before_s = self._plan.clock_s(), self._oldest_append_s
        oldest_s = min((j.appending_since_s for j in self.partitions.values()), default=now_s)
        self._oldest_append_s = waits_s = max(now_s - oldest_s, 0.0)
        self._stuck.look(waits_s, seconds=round(max(waits_s, before_s), 1))

    def _warn_of_shares(self, joiner: PartitionJoiner) -> None:
        for counts, early in joiner.progress.unreported:
            self._shares.note(counts, early)
            self._orphans.note(counts)

    def _lag_s(self, joiner: PartitionJoiner) -> float | None:
        """How far a partition is behind, less what its stream lags and what its windows wait for."""
        m, base = self._clock_ms(), self._brokers.base
        lag_s = lag_beyond_window_s(joiner, self._time_of(m), self._config.join.tick_ms)
        inputs = joiner.inputs
        if lag_s is None or inputs is None or inputs.clock is None or base is None:
            return lag_s
        late_ms = (inputs.clock.lag_ms(base) or 0) - (inputs.clock.extra_ms() or 0) + inputs.waits_ms(m)
        return max(lag_s - late_ms / 1000, 0.0)

    def _report_partitions(self, joiners: Sequence[PartitionJoiner]) -> None:
        report_partitions(self._metrics, joiners, self._time_of(self._clock_ms()), self._config.join.tick_ms)
        self._headroom.report([joiner.partition for joiner in joiners])

    def _forget_partition(self, partition: int) -> None:
        forget_partition(self._metrics, partition)
        self._streams.forget(partition)
        if self._silence is not None:
            self._silence.forget(partition)

    def _report(self) -> None:
        """Report the metrics over all partitions."""
        joiners, inputs, set_to = self.partitions.values(), self._plan.inputs, self._metrics.set
        self._ahead.look(joiners, self._time_of(self._clock_ms()))
        self._streams.look(joiners, self._clock_ms(), wall_clock_ms())
        foreign = 0 if self._plan.unusable is None else self._plan.unusable.foreign
        self._metrics.inc(names.JOINER_FOREIGN, foreign - self._foreign)
        self._foreign = foreign
        set_to(names.JOINER_PARTITIONS, len(joiners))
        set_to(names.JOINER_CLICKS_WAITING, sum(j.progress.clicks_waiting for j in joiners))
        set_to(names.JOINER_BUFFER_BYTES, sum(j.join.buffered_bytes for j in joiners if j.join))
        set_to(names.JOINER_LETTER_BYTES, sum(j.letter_bytes for j in joiners))
        set_to(names.JOINER_UNREAD, sum(bool(j.held_for) for j in joiners))
        silent = () if self._silence is None else filter(self._silence.is_held, self.partitions)
        set_to(names.JOINER_HELD, len(list(silent)))
        self._fields.update()
        for side, topic in (("impressions", inputs.impressions_topic), ("clicks", inputs.clicks_topic)):
            set_to(names.JOINER_BAD_SHARE, inputs.bad_share.share_of(topic), input=side)

    def finish(self) -> None:
        """Wait for the ticks under way, and commit what is durable."""
        with suppress(RetryLater):
            for delivery in self._plan.appender.flush(FLUSH_S):
                delivery.tag.deliver(delivery)
        for joiner in self.partitions.values():
            joiner.settle()
        self._commit()
        if self._leave:
            self._membership.leave()

    def close(self) -> None:
        """Drop all attempts and close all clients; a static member keeps its partitions."""
        self._plan.appender.close()
        self._membership.close()
        self._owned.drop_all()
        self._plan.ends.stop()
        self._headroom.stop()
        self._log.info("joiner_stopped")
