"""The joiner's loop: a member of the group that joins the partitions which the group gives to this process.

1. Check that the topics exist and belong together.
2. Join the group; begin a `PartitionJoiner` for each pair of partitions given, drop it for each taken.
3. Turn every partition once; hand acknowledged offsets to the partition that appended the record.
4. Every `COMMIT_EVERY_S`, commit the offsets of the durable marks: a hint, and what lag displays show.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from stream_learner.adapters import open_files
from stream_learner.adapters.kafka import (
    ADDED,
    NO_TOPIC_ID,
    Admin,
    Appender,
    Assigned,
    EndWatch,
    KafkaSettings,
    Lost,
    Membership,
    Moments,
    ReaderPools,
    ToCommit,
    TopicInfo,
    TopicWatch,
    Wake,
)
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.events.decoders import ClickDecoder, ImpressionDecoder
from stream_learner.core.log.marks import InputIdentity
from stream_learner.errors import BrokerUnreachable, LogTrimmed, PartitionCountsDiffer, RetryLater, TopicMissing
from stream_learner.roles.common.lifecycle import IDLE_S, BrokerOutage, monotonic_ms, wall_clock_ms
from stream_learner.roles.common.record_sizes import RecordSizes, example_record_bytes
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.roles.joiner.field_report import FieldReport
from stream_learner.roles.joiner.first_examples import FirstExamples
from stream_learner.roles.joiner.headroom import Headroom
from stream_learner.roles.joiner.held_partitions import HeldPartitions
from stream_learner.roles.joiner.inputs import BadShare, InputPlan, RateLimit
from stream_learner.roles.joiner.log_origin import LogOrigin
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.made_with import PARTITION as SETTINGS_PARTITION
from stream_learner.roles.joiner.made_with import MadeWith
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.partition_plan import MAX_LETTER_BYTES, PartitionPlan
from stream_learner.roles.joiner.progress import Kept
from stream_learner.roles.joiner.report import (
    AheadWatch,
    OrphanShare,
    PartitionView,
    forget_partition,
    lag_beyond_window_s,
    likely_causes,
    report_partitions,
    view_of,
)
from stream_learner.roles.joiner.resume_age import resume_within_s
from stream_learner.roles.joiner.share_watch import BehindWatch, ShareWatch
from stream_learner.roles.joiner.silence_watch import SilenceWatch
from stream_learner.roles.joiner.start_offsets import StartRule
from stream_learner.roles.joiner.stream_clock import ClockRule, TopicArrivals
from stream_learner.roles.joiner.stream_report import StreamReport
from stream_learner.roles.joiner.ticks import BrokersClock
from stream_learner.roles.joiner.turns import Turns
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
MOST_FETCHED_IMPRESSIONS_BYTES, MOST_FETCHED_CLICKS_BYTES = 64 << 20, 16 << 20
"""The most that is fetched ahead of a topic, all partitions together; a quarter of `join.buffer` where that is less."""
LAST_WAIT_MS = 60_000
"""In a silence longer than usual, windows of a joiner that ends by itself wait for so long at the most."""
CLIENTS = 7
"""Two for administration, the group member, the producer, and a consumer of each topic that is read."""


class JoinerRole:
    """Joins the partitions that the group gives to this process. Run it with `roles.common.lifecycle.run_role`."""

    name = "joiner"

    def __init__(
        self,
        config: Config,
        metrics: Metrics,
        *,
        clock_ms: Callable[[], int] = monotonic_ms,
        brokers: BrokersClock | None = None,
        until_tick: int | None = None,
        leave: bool = False,
    ) -> None:
        """clock_ms: the monotonic clock. brokers: what is known of the brokers' clock; nothing unless given.
        until_tick: the last tick to make, in every partition; None for no end. leave: whether a static member gives its
        partitions away at once when it has finished.
        """
        self._leave = leave
        self._config = config
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._brokers = BrokersClock() if brokers is None else brokers
        self._until_tick = until_tick
        self._log = get_logger("joiner").bind(model=config.model)
        self._settings = KafkaSettings(config.kafka_options(), group=config.group)
        self._held = HeldPartitions(self._report_partitions, self._forget_partition)
        self._plan: PartitionPlan | None = None
        self._membership: Membership | None = None
        self._appender: Appender | None = None
        self._ends: EndWatch | None = None
        self._topics: TopicWatch | None = None
        self._headroom: Headroom | None = None
        self._orphans = OrphanShare()
        self._ahead = AheadWatch()
        self._shares = ShareWatch(self._log)
        self._behind = BehindWatch(self._log)
        self._silence = self._silence_watch()
        self._streams = StreamReport(metrics, self._log, self._brokers, window_s=config.join.window_ms / 1000)
        self._fields = FieldReport(config, metrics)
        self._turns: Turns | None = None
        self._wake = Wake()
        self._look_round_at_s = 0.0
        self._retry_s = 0.0
        self._committed_at_s = 0.0
        self._outage = BrokerOutage(self._log, "group_unreachable", "group_reachable")
        self._stuck = 0.0
        self._unusable: UnusableRecords | None = None
        self._foreign = 0

    def _silence_watch(self) -> SilenceWatch | None:
        """None where the settings allow silent clicks, or where the clock closes no window in any case."""
        join, topics = self._config.join, self._config.input
        if not (join.close_idle and join.hold_on_silence):
            return None
        return SilenceWatch(topics.impressions.topic, topics.clicks.topic, self._log, self._time_of)

    def _time_of(self, m: int) -> int:
        """The moment of a time of the monotonic clock, by the brokers' clock, or the wall clock before a report."""
        base = self._brokers.base
        return m + (wall_clock_ms() - self._clock_ms() if base is None else base)

    def _forget_partition(self, partition: int) -> None:
        forget_partition(self._metrics, partition)
        self._streams.forget(partition)

    def _on_bad_share(self) -> str:
        """A joiner that ends by itself stops where others hold: it would wait for records that may never come."""
        wanted = self._config.join.on_bad_share
        return "stop" if wanted == "hold" and self._until_tick is not None else wanted

    @property
    def partitions(self) -> dict[int, PartitionJoiner]:
        """The joiners that are turned, by partition."""
        return self._held.joining

    @property
    def why_not_ready(self) -> str:
        """The reason why this joiner does not do its part, "" if it does."""
        if self._membership is None:
            return "the joiner has not joined its group"
        if self._outage.since_s is not None:
            return "the joiner cannot reach its group"
        held = next((j for j in list(self.partitions.values()) if j.held_for), None)
        if held is not None:
            return f"partition {held.partition} is not read: {held.held_for}"
        return f"the training log takes no records: the oldest waits for {self._stuck:.0f} s" if self._stuck else ""

    @property
    def done(self) -> bool:
        """Whether every partition held has come to `until_tick`; False without one, or while no partition is held.

        A joiner that is done stays in its group, so that its partitions do not go to another that would begin them.
        """
        partitions = list(self.partitions.values())
        return bool(partitions) and not self._held.given and all(joiner.done for joiner in partitions)

    def views(self) -> list[PartitionView]:
        """How far each partition held has come; may be asked from any thread."""
        return [view_of(joiner) for joiner in list(self.partitions.values())]

    def open(self) -> None:
        """Check the topics and join the group. Raises TopicMissing, PartitionCountsDiffer, ConfigError and others."""
        # Step 1: check that the topics exist and belong together.
        config = self._config
        admin = Admin(self._settings)
        open_files.expect(admin.files_of(CLIENTS), "the joiner's connections to the brokers", self._log)
        impressions, clicks, log = self._check_topics(admin)
        self._sizes = RecordSizes(admin, self._log)
        batch_bytes = self._sizes.batch_bytes(log.name, config.dead_letters_topic)
        self._appending = self._settings.with_batches(batch_bytes)
        self._appender = Appender(self._appending, name="joiner")
        if self._until_tick is not None:  # what it closes ends at that tick, and it may have nothing to append before
            self._brokers.assume(wall_clock_ms(), self._clock_ms())
        self._ends = EndWatch(admin.offsets, self._clock_ms, moments=self._moments, told=self._wake.set).start()
        self._plan = self._partition_plan(admin, impressions, clicks, log)
        held = self._held.joining
        self._headroom = Headroom(config, self._metrics, admin, lambda: list(held.values()), wall_clock_ms, self._log)
        # Step 2: join the group.
        self._membership = Membership(
            self._settings, impressions.name, clicks.name, instance_id=config.join.instance_id
        )
        self._log.info(
            "joiner_started",
            partitions=impressions.partitions,
            group=config.group,
            log=log.name,
            resume_points_every_s=self._plan.resume_within_s,
        )

    def _moments(self) -> Moments:
        """The moments of the monotonic clock at which the brokers' clock closes ticks."""
        join = self._config.join
        return Moments(join.tick_ms, after_ms=join.grace_ms - (self._brokers.base or 0))

    def _check_topics(self, admin: Admin) -> tuple[TopicInfo, TopicInfo, TopicInfo]:
        config = self._config
        topics = [config.input.impressions.topic, config.input.clicks.topic, config.examples_topic]
        found = admin.require([*topics, config.dead_letters_topic])
        self._topics = TopicWatch(admin, found.values(), counted=topics)
        impressions, clicks, log = (found[name] for name in topics)
        if not impressions.partitions == clicks.partitions == log.partitions:
            counts = ", ".join(f"{info.name} has {info.partitions}" for info in (impressions, clicks, log))
            raise PartitionCountsDiffer(f"these topics must have the same number of partitions: {counts}")
        return impressions, clicks, log

    def _partition_plan(self, admin: Admin, impressions: TopicInfo, clicks: TopicInfo, log: TopicInfo) -> PartitionPlan:
        config = self._config
        impression_spec, click_spec = config.event_specs()
        assert self._appender is not None and self._ends is not None
        sizes = self._sizes
        self._unusable = UnusableRecords(self._settings, admin.offsets, log=self._log)
        fetched_bytes = config.join.buffer_bytes // 4
        rule = _clock_rule(config, ends=self._until_tick is not None)
        pools = ReaderPools(
            impressions.partitions,
            {
                impressions.name: min(fetched_bytes, MOST_FETCHED_IMPRESSIONS_BYTES),
                clicks.name: min(fetched_bytes, MOST_FETCHED_CLICKS_BYTES),
            },
            packed=True,
            wake=self._wake,
        )
        self._turns = Turns(pools, self._ends, paced=bool(config.join.max_rate))
        inputs = InputPlan(
            settings=self._settings,
            impressions_topic=impressions.name,
            clicks_topic=clicks.name,
            impression_decoder=ImpressionDecoder(
                impression_spec, config.feature_spec(), config.field_numbers(), ones_left_out=True
            ),
            click_decoder=ClickDecoder(click_spec),
            bad_share=BadShare(config.join.max_bad_share, config.join.bad_share_period_ms),
            clock=rule,
            clock_ms=self._clock_ms,
            brokers=self._brokers,
            topics=None if rule is None else TopicArrivals.none_yet(rule),
            silence=self._silence,
            field_counts=self._fields.counts,
            on_bad_share=self._on_bad_share(),
            rate_limit=RateLimit(config.join.max_rate, time.monotonic()) if config.join.max_rate else None,
            new_reader=pools.open,
        )
        return PartitionPlan(
            settings=self._settings,
            queries=admin.offsets,
            appender=self._appender,
            ends=self._ends,
            inputs=inputs,
            spec=config.join_spec(),
            log_topic=log.name,
            dead_letters_topic=config.dead_letters_topic,
            start=StartRule(admin.offsets, config.join.start),
            origin=LogOrigin(self._settings, admin.offsets, log.name, log.partitions, unusable=self._unusable),
            made_from=InputIdentity(
                impressions.id or NO_TOPIC_ID,
                clicks.id or NO_TOPIC_ID,
                impressions.partitions,
                inputs.impression_decoder.events.fingerprint,
                inputs.click_decoder.events.fingerprint,
            ),
            record_bytes=example_record_bytes(sizes, log.name, config),
            letter_bytes=sizes.fitting(config.dead_letters_topic, MAX_LETTER_BYTES, "of a dead letter"),
            resume_within_s=resume_within_s(admin, config.must_keep_ms(), log.name, self._log),
            log=self._log,
            until_tick=self._until_tick,
            unusable=self._unusable,
            bound=config.field_bound(),
            log_id=log.id.hex(),
            made_with=MadeWith(config, self._settings),
            first_examples=FirstExamples(
                self._settings, admin.offsets, log.name, log.partitions, self._log, unusable=self._unusable
            ),
        )

    def turn(self) -> bool:
        """Steps 2 to 4, once. False if there was nothing to do."""
        looks_round = time.monotonic() >= self._look_round_at_s
        if looks_round:
            self._look_round_at_s = time.monotonic() + LOOK_ROUND_S
            self._check_surroundings()
            self._follow_group()
        begun = self._begin_given()
        delivered = self._deliver(serve=looks_round)
        # Step 3: turn every partition once.
        did = self._turn_partitions(news=begun)
        if time.monotonic() - self._committed_at_s > COMMIT_EVERY_S:
            self._commit()
        return did or delivered

    def rest(self) -> None:
        """Wait for records or an answer about the ends; for a moment only while there is more to wait for."""
        assert self._appender is not None and self._turns is not None
        waits = self._turns.may_wait and not self._appender.waiting and not self._held.given
        self._wake.wait(LOOK_ROUND_S if waits else IDLE_S)

    def _turn_partitions(self, *, news: bool) -> bool:
        """Turn the partitions; none while brokers take no records, so that the producer's queue is not filled.

        First notice whether clicks are silent: new ends of the inputs let the clock close windows.
        """
        assert self._appender is not None and self._turns is not None and self._ends is not None
        if self._silence is not None:
            self._silence.look(self._ends.snapshot)
        if self._appender.is_filling:
            return False
        try:
            return self._turns.turn(list(self.partitions.values()), news=news)
        except (LogTrimmed, TopicMissing):
            # A topic that was made anew lacks the offset as well, and a topic that has fewer partitions than the others
            # lacks the partition: the check raises the error that says so.
            assert self._topics is not None
            self._topics.check_now()
            raise

    def _check_surroundings(self) -> None:
        """Stop when a topic was deleted or made anew, or when the brokers refuse to say where partitions end."""
        assert self._topics is not None and self._ends is not None
        self._topics.check()
        self._ends.check()

    def _deliver(self, *, serve: bool) -> bool:
        """Hand what the brokers acknowledged to the partitions that appended it; returns whether there was anything.

        serve: look for reports of the producer although nothing is under way.
        """
        assert self._appender is not None
        if not (serve or self._appender.waiting):
            return False
        try:
            deliveries = self._appender.poll()
        except RetryLater as error:
            self._renew_appender(error)
            return True
        for delivery in deliveries:
            delivery.tag.deliver(delivery)
        return bool(deliveries)

    def _renew_appender(self, error: RetryLater) -> None:
        """The producer cannot be used any more: drop every attempt, and begin again with a new producer."""
        assert self._appender is not None and self._plan is not None
        self._log.warning("producer_renewed", reason=str(error))
        self._held.begin_again()
        self._appender.close()
        self._appender = Appender(self._appending, name="joiner")
        self._plan = replace(self._plan, appender=self._appender)

    def _follow_group(self) -> None:
        """Step 2: begin the partitions that are given, drop those that are taken."""
        assert self._membership is not None
        assert self._topics is not None
        self._outage.answered(self._topics.answered_s)
        try:
            events = self._membership.poll()
        except (BrokerUnreachable, RetryLater) as error:
            if self._outage.report(str(error)):
                self._metrics.inc(names.RETRIES, role=self.name, error=type(error).__name__)
            return
        except PartitionCountsDiffer:
            self._topics.check_now()
            raise
        for event in events:
            self._log.info(type(event).__name__.lower(), partitions=sorted(event.partitions))
            if isinstance(event, Assigned):
                self._refuse_added(event.partitions)
                self._held.assign(event.partitions)
            elif isinstance(event, Lost):
                self._held.park(event.partitions)
            else:
                self._held.drop(event.partitions)
        if events:
            self._watch_ends()

    def _refuse_added(self, partitions: frozenset[int]) -> None:
        """Raise PartitionCountsDiffer for partitions that were added since the start; the group may know them first."""
        assert self._plan is not None and self._topics is not None
        added = sorted(partition for partition in partitions if partition >= self._plan.partitions)
        if added:
            self._topics.check_now()
            there = f"the topics had {count_of(self._plan.partitions, 'partition')} when it began"
            raise PartitionCountsDiffer(f"the group gave out partitions {added}, and {there}", action=ADDED)

    def _begin_given(self) -> bool:
        """Begin the partitions that were given; where brokers do not tell the hint, try again after `RETRY_S`.

        Returns whether any was begun.
        """
        given = self._held.given
        if not given or time.monotonic() < self._retry_s:
            return False
        assert self._plan is not None and self._membership is not None
        held = len(self.partitions) + len(given)
        buffer_bytes = max(self._config.join.buffer_bytes // held, MIN_PARTITION_BUFFER_BYTES)
        for partition in sorted(given):
            try:
                metadata = self._membership.committed(partition).metadata
            except (BrokerUnreachable, RetryLater) as error:
                self._log.warning("hint_not_known_yet", partition=partition, reason=str(error))
                self._retry_s = time.monotonic() + RETRY_S
                return False
            kept = Kept.from_text(metadata)
            if self._silence is not None:
                self._silence.recall(partition, kept.usual_of_all, kept.usual)
            joiner = PartitionJoiner(self._plan, partition, kept.hint, buffer_bytes, kept.remembered)
            self._held.begin(partition, joiner)
        return True

    def _report_partitions(self, joiners: Sequence[PartitionJoiner]) -> None:
        report_partitions(self._metrics, joiners, self._time_of(self._clock_ms()), self._config.join.tick_ms)
        if self._headroom is not None:
            self._headroom.report([joiner.partition for joiner in joiners])

    def _lag_s(self, joiner: PartitionJoiner) -> float | None:
        """How far a partition is behind, less what its stream lags and what its windows wait for."""
        m, base = self._clock_ms(), self._brokers.base
        lag_s = lag_beyond_window_s(joiner, self._time_of(m), self._config.join.tick_ms)
        inputs = joiner.inputs
        if lag_s is None or inputs is None or inputs.clock is None or base is None:
            return lag_s
        late_ms = (inputs.clock.lag_ms(base) or 0) - (inputs.clock.extra_ms() or 0) + inputs.waits_ms(m)
        return lag_s - late_ms / 1000

    def _watch_ends(self) -> None:
        assert self._ends is not None
        topics = (self._config.input.impressions.topic, self._config.input.clicks.topic)
        self._ends.watch((topic, partition) for topic in topics for partition in {*self.partitions, *self._held.given})

    def _commit(self) -> None:
        """Step 4: commit the offsets of the durable marks, with the hint for the next owner; update the metrics."""
        assert self._membership is not None
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
        if self._until_tick is None:
            self._behind.note({p: lag_s for p, j in self.partitions.items() if (lag_s := self._lag_s(j)) is not None})
        self._report()

    def _with_settings(self, partition: int, now: ToCommit) -> ToCommit:
        assert self._plan is not None and self._plan.made_with is not None
        return now._replace(of_clicks=self._plan.made_with.text) if partition == SETTINGS_PARTITION else now

    def _kept(self, joiner: PartitionJoiner, hint: Hint) -> str:
        """The metadata of a committed offset: what the next owner of the partition should know."""
        of_all, own = ("", "") if self._silence is None else self._silence.to_texts(joiner.partition)
        return Kept(hint, of_all, own, joiner.to_remember()).to_text()

    def _warn_of_shares(self, joiner: PartitionJoiner) -> None:
        assert self._plan is not None
        for counts in joiner.progress.unreported:
            self._shares.note(counts)
            matched = self._orphans.note(counts)
            if matched is not None:
                causes = likely_causes(matched, self._plan.partitions)
                self._log.warning("many_orphans", matched_share=round(matched, 3), note=causes)

    def _note_stuck(self) -> None:
        """Log it when the brokers begin to take no records, and when they take them again."""
        now_s = self._plan.clock_s() if self._plan is not None else 0.0
        oldest_s = min((j.appending_since_s for j in self.partitions.values()), default=now_s)
        stuck = now_s - oldest_s if now_s - oldest_s > STUCK_S else 0.0
        if bool(stuck) != bool(self._stuck):
            say = self._log.warning if stuck else self._log.info
            say("appends_wait" if stuck else "appends_go_on", seconds=round(stuck or self._stuck, 1))
        self._stuck = stuck

    def _report(self) -> None:
        """Report the metrics over all partitions."""
        joiners = self.partitions.values()
        self._ahead.look(joiners, self._time_of(self._clock_ms()), self._metrics, self._log)
        self._streams.look(joiners, self._clock_ms(), wall_clock_ms())
        self._metrics.set(names.JOINER_PARTITIONS, len(joiners))
        foreign = 0 if self._unusable is None else self._unusable.foreign
        self._metrics.inc(names.JOINER_FOREIGN, foreign - self._foreign)
        self._foreign = foreign
        self._metrics.set(names.JOINER_CLICKS_WAITING, sum(j.progress.clicks_waiting for j in joiners))
        self._metrics.set(names.JOINER_BUFFER_BYTES, sum(j.join.buffered_bytes for j in joiners if j.join))
        self._metrics.set(names.JOINER_LETTER_BYTES, sum(j.letter_bytes for j in joiners))
        self._metrics.set(names.JOINER_UNREAD, sum(bool(j.held_for) for j in joiners))
        self._metrics.set(names.JOINER_HELD, 0.0 if self._silence is None else float(len(self._silence.held)))
        self._fields.update()
        if self._plan is not None:
            inputs = self._plan.inputs
            for side, topic in (("impressions", inputs.impressions_topic), ("clicks", inputs.clicks_topic)):
                self._metrics.set(names.JOINER_BAD_SHARE, inputs.bad_share.share_of(topic), input=side)

    def finish(self) -> None:
        """Wait for the ticks under way, and commit what is durable."""
        assert self._appender is not None
        with suppress(RetryLater):
            for delivery in self._appender.flush(FLUSH_S):
                delivery.tag.deliver(delivery)
        for joiner in self.partitions.values():
            joiner.settle()
        self._commit()
        if self._leave and self._membership is not None:
            self._membership.leave()

    def close(self) -> None:
        """Drop all attempts and close all clients; a static member keeps its partitions."""
        for part in (self._appender, self._membership):
            if part is not None:
                part.close()
        self._held.drop_all()
        for watch in (self._ends, self._headroom):
            if watch is not None:
                watch.stop()
        self._log.info("joiner_stopped")


def _clock_rule(config: Config, *, ends: bool) -> ClockRule | None:
    """ends: whether the joiner ends by itself; then it waits for `LAST_WAIT_MS` at the longest."""
    join = config.join
    idle_after_ms = min(join.idle_after_ms, LAST_WAIT_MS) if ends else join.idle_after_ms
    return ClockRule(join.grace_ms, join.lateness_ms, idle_after_ms) if join.close_idle else None
