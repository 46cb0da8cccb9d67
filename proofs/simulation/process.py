"""One joiner process: production `PartitionJoiner`s on the model of Kafka, and the role's loop in a few lines.

The world decides what goes wrong. A process must never look into a record, nor repair what a joiner did.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from dataclasses import replace
from random import Random
from typing import Any, NamedTuple, Protocol

from proofs.simulation.events import CLICK_EVENTS, IMPRESSION_EVENTS, good_click, good_impression
from proofs.simulation.kafka import Appender, Died, Log, Queries, Reader
from stream_learner.adapters.kafka import EndWatch, RawBatch, TopicAndPartition
from stream_learner.core.events.decoders import ClickDecoder, ImpressionDecoder
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.marks import InputIdentity
from stream_learner.errors import BrokerUnreachable, RetryLater, StreamLearnerError
from stream_learner.roles.joiner import inputs as inputs_module
from stream_learner.roles.joiner.bad_records import BadShare
from stream_learner.roles.joiner.inputs import InputPlan
from stream_learner.roles.joiner.log_beginning import LogBeginning, StartRule
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.partition_plan import PartitionPlan
from stream_learner.roles.joiner.progress import Kept
from stream_learner.roles.joiner.stream_clock import ClockRule, TopicArrivals
from stream_learner.roles.joiner.ticks import BrokersClock

IMPRESSIONS, CLICKS, LOG, LETTERS = "impressions", "clicks", "examples", "letters"
END_DELAY_SHARE = 0.2
"""The share of questions for an end during which time passes."""
END_ERROR_SHARE = 0.05
"""The share of questions for an end that are not answered."""
DELAY_MS = 4
"""Every answer of a broker takes less than this."""
STALE_SHARE = 0.05
"""The share of questions to which a broker tells an older end of the training log."""
STALE_IN_A_ROW = 2
"""The most old ends in a row: a broker catches up."""
NO_LIMIT = BadShare(1.0, 1)
_IMPRESSION_DECODER = ImpressionDecoder(IMPRESSION_EVENTS, FeatureSpec.from_dict({}))
_CLICK_DECODER = ClickDecoder(CLICK_EVENTS)


class World(Protocol):
    """The world as a process sees it."""

    now: int
    quiet: bool
    rng: Random
    seen: Counter[str]
    logs: dict[TopicAndPartition, Log]
    spec: JoinSpec
    close_idle: bool
    grace_ms: int
    idle_after_ms: int
    partitions: int
    partition_count: int
    record_bytes: int
    buffer_bytes: int
    seconds_per_ms: float
    resume_within_s: float
    until_tick: int | None
    topic_ids: dict[str, bytes]

    def pass_time(self, ms: int) -> None:
        """Let time pass."""

    def note_writer(self, process: Process, attempt: int) -> None:
        """Note that a process begins an attempt."""

    def hint(self, partition: int) -> str:
        """The metadata that the group has for a partition."""

    def commit(self, process: Process, partition: int, kept: str) -> None:
        """Commit the metadata of a partition to the group."""

    def leave_behind(self, appender: Appender) -> None:
        """Keep the records that a producer has in flight; some may still land."""


class _Silent:
    """A logger that drops all lines."""

    def bind(self, **fields: object) -> _Silent:
        return self

    def info(self, event: str, **fields: object) -> None:
        """Drop a line."""

    warning = info


class _Questions(Queries):
    """Notes the time of every question for an end that was answered."""

    def __init__(self, process: Process) -> None:
        super().__init__(process)
        self._process = process

    def high_watermarks_known(
        self, places: Iterable[TopicAndPartition]
    ) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, StreamLearnerError]]:
        """The ends, as `Queries` tells them."""
        asked = self._process.world.now
        known, failed = super().high_watermarks_known(places)
        for place in known:
            self._process.asked[place].append(asked)
        return known, failed


class Read(NamedTuple):
    """A good record that was read. at: when, in the world's time. time_ms: its own.

    arrived: surely the end of the partition had been reached before, no longer ago than `ARRIVES_WITHIN_MS`, and no
    window that it may belong to was closed: what is old, or belongs to what is old, may be no arrival.
    """

    at: int
    time_ms: int
    arrived: bool


class _InputReader(Reader):
    """Notes for the laws what was read of an input, and when."""

    _reached = -(10**9)

    def read(self, max_records: int, timeout_s: float = 0.0) -> RawBatch | None:
        process: Process = self._client  # type: ignore[assignment]
        place = (self.topic, self.partition)
        ends, joiner = process.ends.snapshot, process.partitions.get(self.partition)
        known = all((topic, self.partition) in ends for topic in (IMPRESSIONS, CLICKS))
        begun = joiner is not None and joiner.attempt is not None
        if begun and known and self.position >= ends[place].high_watermark:
            self._reached = ends[place].asked_at_ms
        batch = super().read(max_records, timeout_s)
        if batch is not None:
            is_good = good_impression if self.topic == IMPRESSIONS else good_click
            good = zip(batch.record_times_ms.tolist(), batch.values, strict=True)
            arrived = process.monotonic_ms() - self._reached <= inputs_module.ARRIVES_WITHIN_MS
            old_ms = 0 if joiner is None or joiner.join is None else joiner.join.closed_ms
            if self.topic == IMPRESSIONS:
                old_ms -= min(process.world.spec.window_ms, process.world.spec.lateness_ms)
            process.reads[place] += [
                Read(process.world.now, time, arrived and time >= old_ms) for time, value in good if is_good(value)
            ]
        return batch


class _NotedClock(BrokersClock):
    """Notes for the laws how far the brokers' clock is ahead of the world's by the reports up to now, and when."""

    def __init__(self, process: Process) -> None:
        super().__init__()
        self._process = process

    def assume(self, now_ms: int, m: int) -> None:
        super().assume(now_ms, m)
        self._process.assumed = now_ms - self._process.world.now

    def note(self, appended_ms: int, m: int) -> None:
        super().note(appended_ms, m)
        self._process.reports.append((self._process.world.now, appended_ms - self._process.world.now))


class Process:
    """One joiner process: the role's loop over its partitions, and its clients.

    For the laws, all in the world's time: asked: when each end was asked for and answered. reads: of each input.
    opened: when each partition's inputs were opened. reports: what brokers told, how far their clock is ahead of the
    world's, and when; assumed: what was taken for it before. recalled: when each partition
    was begun, and whether with the memory of another's clock.
    """

    def __init__(self, world: World, instance: int) -> None:
        self.world, self.instance, self.rng = world, instance, world.rng
        self.logs = world.logs
        self.below = world.rng.randrange
        self._booted = world.rng.choice((world.now, 0, -123_456))
        self.events: deque[tuple[str, int]] = deque()
        self.partitions: dict[int, PartitionJoiner] = {}
        self.given: set[int] = set()
        self.paused = False
        self.fragile = 0.0
        self._stale_in_a_row = 0
        self.asked: defaultdict[TopicAndPartition, list[int]] = defaultdict(list)
        self.reads: defaultdict[TopicAndPartition, list[Read]] = defaultdict(list)
        self.opened: defaultdict[int, list[int]] = defaultdict(list)
        self.reports: list[tuple[int, int]] = []
        self.assumed: int | None = None
        self.recalled: defaultdict[int, list[tuple[int, bool]]] = defaultdict(list)
        queries = _Questions(self)
        self.appender = Appender(self)
        self.ends = EndWatch(queries, self.monotonic_ms)  # type: ignore[arg-type]
        self.brokers = _NotedClock(self)
        if world.until_tick is not None:
            self.brokers.assume(world.now, self.monotonic_ms())
        rule = self._clock_rule()
        inputs = InputPlan(
            settings=self,  # type: ignore[arg-type]
            impressions_topic=IMPRESSIONS,
            clicks_topic=CLICKS,
            impression_decoder=_IMPRESSION_DECODER,
            click_decoder=_CLICK_DECODER,
            bad_share=NO_LIMIT,
            clock=rule,
            clock_ms=self.monotonic_ms,
            brokers=self.brokers,
            topics=None if rule is None else TopicArrivals.none_yet(rule),
            new_reader=self._open,
            new_reader_beside=Reader,
        )
        self.plan = PartitionPlan(
            settings=self,  # type: ignore[arg-type]
            queries=queries,  # type: ignore[arg-type]
            appender=self.appender,  # type: ignore[arg-type]
            ends=self.ends,
            inputs=inputs,
            spec=world.spec,
            log_topic=LOG,
            dead_letters_topic=LETTERS,
            start=StartRule(queries, "earliest"),  # type: ignore[arg-type]
            beginning=LogBeginning(
                self,  # type: ignore[arg-type]
                queries,  # type: ignore[arg-type]
                LOG,
                world.partitions,
                new_reader=Reader,
                clock_s=self._clock_s,
            ),
            made_from=InputIdentity(
                world.topic_ids[IMPRESSIONS],
                world.topic_ids[CLICKS],
                world.partition_count,
                inputs.impression_decoder.events.fingerprint,
                inputs.click_decoder.events.fingerprint,
            ),
            record_bytes=world.record_bytes,
            resume_within_s=world.resume_within_s,
            log=_Silent(),  # type: ignore[arg-type]
            until_tick=world.until_tick,
            clock_s=self._clock_s,
            new_attempt_id=self._new_attempt_id,
            log_id=LOG,
        )

    def _clock_rule(self) -> ClockRule | None:
        world = self.world
        return (
            ClockRule(world.grace_ms, world.spec.lateness_ms, world.idle_after_ms, world.spec.window_ms)
            if world.close_idle
            else None
        )

    def monotonic_ms(self) -> int:
        """The monotonic clock of this process: it begins anywhere."""
        return self.world.now - self._booted

    def _open(self, client: Process, topic: str, partition: int, *args: Any, **options: Any) -> Reader:
        """Open a partition for its joiner."""
        if topic == LOG:
            return Reader(client, topic, partition, *args, **options)
        self.opened[partition].append(self.world.now)
        return _InputReader(client, topic, partition, *args, **options)

    def _clock_s(self) -> float:
        return 1.0 + self.world.now * self.world.seconds_per_ms

    def _new_attempt_id(self) -> int:
        attempt = self.rng.getrandbits(64) | 1
        self.world.note_writer(self, attempt)
        return attempt

    def edge(self, name: str) -> None:
        """Called at every call to a broker: while there is trouble, time passes, or an error or death is raised."""
        world = self.world
        if world.quiet:
            return
        roll = self.rng.random()
        often = END_DELAY_SHARE if name == "end" else 0.02
        if roll < often:
            world.pass_time(self.rng.randrange(DELAY_MS))
        elif roll < often + self.fragile:
            world.seen["crashes"] += 1
            world.seen[f"crashes in {name}"] += 1
            raise Died
        elif roll > (1 - END_ERROR_SHARE if name == "end" else 0.99):
            world.seen["broker errors"] += 1
            raise BrokerUnreachable("no answer") if name != "append" else RetryLater("the queue is full")

    def stale_end(self, place: TopicAndPartition, end: int) -> int:
        """The end that a broker tells; sometimes, for a while, an older one of the training log."""
        stale = place[0] == LOG and not self.world.quiet and self.rng.random() < STALE_SHARE
        if not stale or self._stale_in_a_row == STALE_IN_A_ROW:
            self._stale_in_a_row = 0
            return end
        self._stale_in_a_row += 1
        older = max(end - self.rng.randrange(1, 4), self.logs[place].start)
        self.world.seen["stale ends"] += older < end
        return older

    def turn(self) -> None:
        """Do one turn of the role's loop. Raises Stop where the process must end, and Died."""
        rng = self.rng
        while self.events and (self.world.quiet or rng.random() < 0.3):
            self._follow(*self.events.popleft())
        self._begin_given()
        if self.world.quiet or rng.random() < 0.5:
            self.ends.watch((topic, p) for topic in (IMPRESSIONS, CLICKS) for p in self.partitions)
            self.ends.ask()
        for partition in list(self.partitions.values()):
            partition.turn()
        if rng.random() < 0.8:
            self._deliver()
        if rng.random() < 0.3:
            self._commit()

    def _follow(self, event: str, partition: int) -> None:
        if event == "assigned":
            self.given.add(partition)
            return
        self.given.discard(partition)
        joiner = self.partitions.pop(partition, None)
        if joiner is not None:
            if self.rng.random() < 0.3:
                joiner.settle()
            joiner.close()

    def _begin_given(self) -> None:
        for partition in sorted(self.given):
            self.given.discard(partition)
            kept = Kept.from_text(self.world.hint(partition))
            self.world.seen["clocks that remember"] += kept.remembered is not None
            self.recalled[partition].append((self.world.now, kept.remembered is not None))
            hint = kept.hint and replace(kept.hint, log_id=self.plan.log_id)
            self.partitions[partition] = PartitionJoiner(
                self.plan, partition, hint, self.world.buffer_bytes, kept.remembered
            )

    def _deliver(self) -> None:
        try:
            deliveries = self.appender.poll()
        except RetryLater:
            self._renew_appender()
            return
        for delivery in deliveries:
            delivery.tag.deliver(delivery)

    def _renew_appender(self) -> None:
        """The producer cannot be used any more: drop every attempt."""
        self.world.seen["producers renewed"] += 1
        held = set(self.partitions)
        for partition in held:
            self.partitions.pop(partition).close()
        self.world.leave_behind(self.appender)
        self.appender.broken = None
        self.appender.done.clear()
        self.given |= held

    def _commit(self) -> None:
        for partition, joiner in self.partitions.items():
            found = joiner.progress.to_commit(lambda hint, of=joiner: Kept(hint, remembered=of.to_remember()).to_text())  # type: ignore[misc]
            if found is not None:
                self.world.commit(self, partition, found.metadata)
