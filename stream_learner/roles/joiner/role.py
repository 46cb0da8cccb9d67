"""`JoinerRole`: checks the topics, makes all parts of a joiner, and joins the group. `loop` goes on from there.

1. Check that the topics exist and belong together.
2. Join the group.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import TYPE_CHECKING, NamedTuple

from stream_learner.adapters import open_files
from stream_learner.adapters.kafka import (
    NO_TOPIC_ID,
    Admin,
    Appender,
    EndWatch,
    KafkaSettings,
    Membership,
    Moments,
    ReaderPools,
    TopicInfo,
    TopicWatch,
    Wake,
)
from stream_learner.adapters.telemetry.episode import Episode
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.core.log.marks import InputIdentity
from stream_learner.errors import PartitionCountsDiffer
from stream_learner.roles.common.event_decoders import EventForms
from stream_learner.roles.common.lifecycle import monotonic_ms, wall_clock_ms
from stream_learner.roles.common.record_sizes import RecordSizes, example_record_bytes
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.roles.joiner.bad_records import BadShare
from stream_learner.roles.joiner.click_silence import SilenceWatch
from stream_learner.roles.joiner.inputs import InputPlan, RateLimit
from stream_learner.roles.joiner.log_beginning import LogBeginning, StartRule
from stream_learner.roles.joiner.loop import JoinerLoop, Look, moments_by
from stream_learner.roles.joiner.made_with import MadeWith
from stream_learner.roles.joiner.owned_partitions import Turns
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.partition_plan import MAX_LETTER_BYTES, PartitionPlan
from stream_learner.roles.joiner.report import FieldReport, PartitionView, view_of
from stream_learner.roles.joiner.retention import resume_within_s
from stream_learner.roles.joiner.stream_clock import ClockRule, TopicArrivals
from stream_learner.roles.joiner.ticks import BrokersClock

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.config import Config

MOST_FETCHED_IMPRESSIONS_BYTES, MOST_FETCHED_CLICKS_BYTES = 64 << 20, 16 << 20
"""The most that is fetched ahead of a topic, all partitions together; a quarter of `join.buffer` where that is less."""
LAST_WAIT_MS = 60_000
"""In a silence longer than usual, windows of a joiner that ends by itself wait for so long at the most."""
CLIENTS = 7
"""Two for administration, the group member, the producer, and a consumer of each topic that is read."""


class _Topics(NamedTuple):
    impressions: TopicInfo
    clicks: TopicInfo
    log: TopicInfo


class JoinerRole:
    """A joiner with its settings. Run it with `roles.common.lifecycle.run_role`; any thread may ask how far it is."""

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
        look: Callable[[Config], Look] | None = None,
    ) -> None:
        """clock_ms: the monotonic clock. brokers: what is known of the brokers' clock; nothing unless given.
        until_tick: the last tick to make, in every partition; None for no end. leave: whether a static member gives its
        partitions away at once when it has finished. look: makes what looks at the inputs; None for none.
        """
        self._leave, self._new_look = leave, look
        self._config = config
        self._metrics = metrics
        self._clock_ms = clock_ms
        self._brokers = BrokersClock() if brokers is None else brokers
        self._until_tick = until_tick
        self._log = get_logger("joiner").bind(model=config.model)
        self._settings = KafkaSettings(config.kafka_options(), group=config.group)
        self._loop: JoinerLoop | None = None
        """For those who ask; `open` returns it to those who run it."""

    @property
    def partitions(self) -> Mapping[int, PartitionJoiner]:
        """The joiners that are turned, by partition; none before the group was joined."""
        return {} if self._loop is None else self._loop.partitions

    @property
    def why_not_ready(self) -> str:
        """The reason why this joiner does not do its part, "" if it does."""
        if self._loop is None:
            return "the joiner has not joined its group"
        return self._loop.why_not_ready

    @property
    def done(self) -> bool:
        """Whether every partition held has come to `until_tick`; False without one, or while no partition is held.

        A joiner that is done stays in its group, so that its partitions do not go to another that would begin them.
        """
        return self._loop is not None and self._loop.done

    def views(self) -> list[PartitionView]:
        """How far each partition held has come; may be asked from any thread."""
        return [view_of(joiner) for joiner in list(self.partitions.values())]

    def open(self) -> JoinerLoop:
        """Check the topics and join the group. Raises TopicMissing, PartitionCountsDiffer, ConfigError and others."""
        config = self._config
        with ExitStack() as opened:
            # Step 1: check that the topics exist and belong together.
            admin = Admin(self._settings)
            open_files.expect(admin.files_of(CLIENTS), "the joiner's connections to the brokers", self._log)
            topics, watch = self._check_topics(admin)
            sizes = RecordSizes(admin, self._log)
            appending = self._settings.with_batches(sizes.batch_bytes(topics.log.name, config.dead_letters_topic))
            appender = Appender(appending, name="joiner")
            opened.callback(appender.close)
            # Until a tick, it may have nothing to append before all is closed; the mock broker tells no time.
            if self._until_tick is not None or admin.is_mock():
                self._brokers.assume(wall_clock_ms(), self._clock_ms())
            wake = Wake()
            ends = EndWatch(admin.offsets, self._clock_ms, moments=self._moments, told=wake.set).start()
            opened.callback(ends.stop)
            pools = self._pools(topics, wake)
            fields = FieldReport(config, self._metrics)
            plan = self._partition_plan(admin, topics, sizes, appender, ends, self._input_plan(topics, pools, fields))
            # Step 2: join the group.
            membership = Membership(
                self._settings, topics.impressions.name, topics.clicks.name, instance_id=config.join.instance_id
            )
            opened.callback(membership.close)
            self._log.info(
                "joiner_started",
                partitions=topics.impressions.partitions,
                group=config.group,
                log=topics.log.name,
                resume_points_every_s=plan.resume_within_s,
            )
            self._loop = loop = JoinerLoop(
                config,
                self._metrics,
                plan,
                admin,
                appending=appending,
                membership=membership,
                topics=watch,
                turns=Turns(pools, ends, paced=bool(config.join.max_rate)),
                wake=wake,
                fields=fields,
                leave=self._leave,
                look=None if self._new_look is None else self._new_look(config),
            )
            opened.pop_all()  # the loop closes them
        return loop

    def _moments(self) -> Moments:
        """The moments of the monotonic clock at which the brokers' clock closes ticks."""
        join = self._config.join
        return Moments(join.tick_ms, after_ms=join.grace_ms - (self._brokers.base or 0))

    def _check_topics(self, admin: Admin) -> tuple[_Topics, TopicWatch]:
        config = self._config
        wanted = [config.input.impressions.topic, config.input.clicks.topic, config.examples_topic]
        found = admin.require([*wanted, config.dead_letters_topic])
        topics = _Topics(*(found[name] for name in wanted))
        if not topics.impressions.partitions == topics.clicks.partitions == topics.log.partitions:
            counts = ", ".join(f"{info.name} has {info.partitions}" for info in topics)
            raise PartitionCountsDiffer(f"these topics must have the same number of partitions: {counts}")
        return topics, TopicWatch(admin, found.values(), counted=wanted)

    def _pools(self, topics: _Topics, wake: Wake) -> ReaderPools:
        fetched_bytes = self._config.join.buffer_bytes // 4
        most_bytes = {
            topics.impressions.name: min(fetched_bytes, MOST_FETCHED_IMPRESSIONS_BYTES),
            topics.clicks.name: min(fetched_bytes, MOST_FETCHED_CLICKS_BYTES),
        }
        return ReaderPools(topics.impressions.partitions, most_bytes, packed=True, wake=wake)

    def _input_plan(self, topics: _Topics, pools: ReaderPools, fields: FieldReport) -> InputPlan:
        config, join = self._config, self._config.join
        forms, rule = EventForms(config, wait_s=0.0), self._clock_rule()
        return InputPlan(
            settings=self._settings,
            impressions_topic=topics.impressions.name,
            clicks_topic=topics.clicks.name,
            impression_decoder=forms.impression_decoder(
                config.feature_spec(), config.field_numbers(), ones_left_out=True
            ),
            click_decoder=forms.click_decoder(),
            bad_share=BadShare(join.max_bad_share, join.bad_share_period_ms),
            clock=rule,
            clock_ms=self._clock_ms,
            brokers=self._brokers,
            topics=None if rule is None else TopicArrivals.none_yet(rule),
            silence=self._silence_watch(),
            field_counts=fields.counts,
            on_bad_share=self._on_bad_share(),
            rate_limit=RateLimit(join.max_rate, time.monotonic()) if join.max_rate else None,
            new_reader=pools.open,
        )

    def _clock_rule(self) -> ClockRule | None:
        """None where only log time closes windows."""
        join = self._config.join
        ends = self._until_tick is not None
        idle_after_ms = min(join.idle_after_ms, LAST_WAIT_MS) if ends else join.idle_after_ms
        return ClockRule(join.grace_ms, join.lateness_ms, idle_after_ms, join.window_ms) if join.close_idle else None

    def _silence_watch(self) -> SilenceWatch | None:
        """None where the settings allow silent clicks, or where the clock closes no window in any case."""
        join, topics = self._config.join, self._config.input
        if not (join.close_idle and join.hold_on_silence):
            return None
        time_of = moments_by(self._brokers, self._clock_ms)
        waits = self._until_tick is None
        return SilenceWatch(topics.impressions.topic, topics.clicks.topic, self._log, time_of, waits=waits)

    def _on_bad_share(self) -> str:
        """A joiner that ends by itself stops where others hold: it would wait for records that may never come."""
        wanted = self._config.join.on_bad_share
        return "stop" if wanted == "hold" and self._until_tick is not None else wanted

    def _partition_plan(
        self,
        admin: Admin,
        topics: _Topics,
        sizes: RecordSizes,
        appender: Appender,
        ends: EndWatch,
        inputs: InputPlan,
    ) -> PartitionPlan:
        config, (impressions, clicks, log) = self._config, topics
        spec = config.join_spec()
        unusable = UnusableRecords(self._settings, admin.offsets, log=self._log)
        return PartitionPlan(
            settings=self._settings,
            queries=admin.offsets,
            appender=appender,
            ends=ends,
            inputs=inputs,
            spec=spec,
            log_topic=log.name,
            dead_letters_topic=config.dead_letters_topic,
            start=StartRule(admin.offsets, config.join.start),
            beginning=LogBeginning(self._settings, admin.offsets, log.name, log.partitions, unusable=unusable),
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
            unusable=unusable,
            bound=config.field_bound(),
            log_id=log.id.hex(),
            begins_again=Episode(self._log, "log_begins_again", note="it holds no example, so nothing is lost by it"),
            made_with=MadeWith(config, self._settings),
        )
