"""One joiner process in a world of streams: production `PartitionJoiner`s on the model of Kafka, in virtual time.

Nothing goes wrong here but what the world's events, clocks and restarts bring. A process must never ask for the right
time: it has a monotonic clock that begins anew with it.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from proofs.simulation.kafka import Calm, Queries, Reader
from stream_learner.adapters.kafka import Delivery, EndWatch, RawBatch, TopicAndPartition
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.core.events.decoders import ClickDecoder, EventSpec, ImpressionDecoder
from stream_learner.core.events.feature_spec import FeatureSpec
from stream_learner.core.join.spec import JoinSpec
from stream_learner.core.log.marks import InputIdentity
from stream_learner.core.log.rule_w import MAX_OUTSTANDING
from stream_learner.roles.joiner.bad_records import BadShare
from stream_learner.roles.joiner.click_silence import SilenceWatch
from stream_learner.roles.joiner.inputs import InputPlan
from stream_learner.roles.joiner.log_beginning import LogBeginning, StartRule
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.partition import PartitionJoiner
from stream_learner.roles.joiner.partition_plan import PartitionPlan
from stream_learner.roles.joiner.progress import Kept
from stream_learner.roles.joiner.stream_clock import ClockRule, TopicArrivals
from stream_learner.roles.joiner.ticks import BrokersClock
from stream_learner.roles.joiner.watches import StreamReport

IMPRESSIONS, CLICKS, LOG = "impressions", "clicks", "examples"
BOOTED_MS = 3_600_000
"""The monotonic clock of a process begins so long before the process."""
MOST_TURNS = 12
"""A partition turns at most so often at one look."""
RESUME_WITHIN_S = 300.0
_EVENTS = EventSpec(time="t", max_skew_ms=10**12)
_IMPRESSION_DECODER = ImpressionDecoder(_EVENTS, FeatureSpec.from_dict({}))
_CLICK_DECODER = ClickDecoder(_EVENTS)


@dataclass(frozen=True)
class RunSettings:
    """window_ms to agree: settings of the join. idle_after_ms, grace_ms: of the clock. hold_on_silence: whether clicks
    are waited for, and partitions held. buffer_bytes: of each partition.
    """

    window_ms: int = 60_000
    idle_after_ms: int = 6 * 3_600_000
    hold_on_silence: bool = True
    buffer_bytes: int = 256 << 20
    grace_ms: int = 2_000
    lateness_ms: int = 600_000
    skew_ms: int = 5_000
    agree: int = 16
    tick_ms: int = 1_000

    @property
    def spec(self) -> JoinSpec:
        """The settings of the join."""
        return JoinSpec(
            self.window_ms, self.skew_ms, self.tick_ms, dedupe_ms=0, lateness_ms=self.lateness_ms, agree=self.agree
        )


class Silent:
    """A logger that counts lines."""

    def __init__(self) -> None:
        self.lines: Counter[str] = Counter()

    def bind(self, **fields: object) -> Silent:
        """This logger."""
        return self

    def info(self, event: str, **fields: object) -> None:
        """Count a line."""
        self.lines[event] += 1

    warning = error = info


class ReaderInPieces(Reader):
    """Reads no more between two looks than the world says."""

    def read(self, max_records: int, timeout_s: float = 0.0) -> RawBatch | None:
        """As any reader, from what is left of this look."""
        process: Any = self._client
        place = self.topic, self.partition
        batch = super().read(min(max_records, process.may_read(place)), timeout_s)
        if batch is not None:
            process.read_now[place] += len(batch.offsets)
        return batch


@dataclass
class Landing:
    """An appender whose records are in the log at once; the brokers stamp them."""

    process: StreamProcess
    done: deque[Delivery] = field(default_factory=deque)

    def append(self, topic: str, partition: int, value: bytes, *, tag: Any = None, **rest: object) -> None:
        """Append one record; its delivery follows."""
        process = self.process
        now = process.brokers_ms()
        offset = process.logs[topic, partition].append(value, at=process.now(), time_ms=now)
        self.done.append(Delivery(tag, topic, partition, offset, time_ms=now))


class StreamProcess(Calm):
    """A joiner process and its clients. now: the right time. brokers_ms: what the brokers' clock shows.

    partitions: the joiners of its partitions. lines: how often each line was logged.
    """

    def __init__(
        self,
        settings: RunSettings,
        logs: dict[TopicAndPartition, Any],
        partitions: Iterable[int],
        kept: Callable[[int], str],
        *,
        partition_count: int,
        now: Callable[[], int],
        wall_ms: Callable[[], int],
        brokers_ms: Callable[[], int],
        most_read: int,
        number: int,
    ) -> None:
        super().__init__(logs)
        self.settings, self.now, self.wall_ms, self.brokers_ms = settings, now, wall_ms, brokers_ms
        self._booted = now() - BOOTED_MS * number
        self._most_read = most_read
        self.read_now: Counter[TopicAndPartition] = Counter()
        self._attempts = (number * 1_000_003 + one for one in range(1, 1_000_000))
        log = Silent()
        self.lines = log.lines
        self.brokers = BrokersClock()
        self.appender = Landing(self)
        queries: Any = Queries(self)
        self.ends = EndWatch(queries, self.monotonic_ms)
        self.silence = SilenceWatch(IMPRESSIONS, CLICKS, log) if settings.hold_on_silence else None  # type: ignore[arg-type]
        self.report = StreamReport(Metrics("world"), log, self.brokers, window_s=settings.window_ms / 1000)  # type: ignore[arg-type]
        self.plan = self._plan(queries, log, partition_count)
        self.partitions: dict[int, PartitionJoiner] = {}
        self.ends.watch((topic, p) for topic in (IMPRESSIONS, CLICKS) for p in partitions)
        for partition in partitions:
            known = Kept.from_text(kept(partition))
            if self.silence is not None:
                self.silence.recall(partition, known.usual_of_all, known.usual, self.monotonic_ms())
            self.partitions[partition] = PartitionJoiner(
                self.plan, partition, known.hint, settings.buffer_bytes, known.remembered
            )

    def _plan(self, queries: Any, log: Any, partition_count: int) -> PartitionPlan:
        settings, client = self.settings, self
        rule = ClockRule(settings.grace_ms, settings.lateness_ms, settings.idle_after_ms, settings.window_ms)
        me: Any = self
        inputs = InputPlan(
            settings=me,
            impressions_topic=IMPRESSIONS,
            clicks_topic=CLICKS,
            impression_decoder=_IMPRESSION_DECODER,
            click_decoder=_CLICK_DECODER,
            bad_share=BadShare(1.0, 1),
            clock=rule,
            clock_ms=self.monotonic_ms,
            brokers=self.brokers,
            topics=TopicArrivals.none_yet(rule),
            silence=self.silence,
            new_reader=ReaderInPieces,
            new_reader_beside=Reader,
        )
        appender: Any = self.appender
        return PartitionPlan(
            settings=me,
            queries=queries,
            appender=appender,
            ends=self.ends,
            inputs=inputs,
            spec=settings.spec,
            log_topic=LOG,
            dead_letters_topic="letters",
            start=StartRule(queries, "earliest"),
            beginning=LogBeginning(me, queries, LOG, partition_count, new_reader=Reader, clock_s=self.monotonic_s),
            made_from=InputIdentity(bytes(16), bytes(16), partition_count, _EVENTS.fingerprint, _EVENTS.fingerprint),
            record_bytes=900_000,
            resume_within_s=RESUME_WITHIN_S,
            log=log,
            clock_s=self.monotonic_s,
            new_attempt_id=lambda: next(client._attempts),
        )

    def monotonic_ms(self) -> int:
        """The monotonic clock of this process."""
        return self.now() - self._booted

    def monotonic_s(self) -> float:
        """The same in seconds."""
        return self.monotonic_ms() / 1000

    def may_read(self, place: TopicAndPartition) -> int:
        """How many records of an input may still be read at this look."""
        return self._most_read - self.read_now[place]

    def look(self) -> None:
        """Read what has come, ask for the ends, and close what may close."""
        self.read_now.clear()
        for partition, joiner in self.partitions.items():
            if joiner.join is None or self._has_more(partition):
                self._turn(joiner, lambda partition=partition: self._has_more(partition))  # type: ignore[misc]
        self.ends.ask()
        if self.silence is not None:
            self.silence.look(self.ends.snapshot)
        for joiner in self.partitions.values():
            self._turn(joiner, lambda joiner=joiner: joiner.has_deliveries)  # type: ignore[misc]
        self.report.look(self.partitions.values(), self.monotonic_ms(), self.wall_ms())

    def _has_more(self, partition: int) -> bool:
        """Whether a partition may read more of its inputs at this look."""
        join = self.partitions[partition].join
        if join is None:
            return False
        shown, clicked = (IMPRESSIONS, partition), (CLICKS, partition)
        return (self.may_read(shown) > 0 and join.next_impression_to_read < self.logs[shown].end) or (
            self.may_read(clicked) > 0 and join.next_click_to_read < self.logs[clicked].end
        )

    def _turn(self, joiner: PartitionJoiner, has_more: Callable[[], bool]) -> None:
        for _ in range(MOST_TURNS):
            did = joiner.turn()
            is_full = joiner.attempt is None or joiner.attempt.outstanding >= MAX_OUTSTANDING
            self._deliver()
            if not did or not (is_full or has_more()):
                break

    def _deliver(self) -> None:
        done = self.appender.done
        while done:
            delivery = done.popleft()
            delivery.tag.deliver(delivery)

    def guesses(self, partition: int) -> int:
        """How many examples of a partition had to be guessed in this process."""
        base = self.brokers.base
        return 0 if base is None else self.partitions[partition].count_guesses(self.monotonic_ms(), base)

    def to_keep(self, partition: int, *, remembers: bool) -> str:
        """The metadata that is committed for a partition; without `remembers` only its hint."""
        joiner = self.partitions[partition]

        def kept(hint: Hint) -> str:
            of_all, own = ("", "") if self.silence is None else self.silence.to_texts(partition)
            whole = Kept(hint, of_all, own, joiner.to_remember())
            return (whole if remembers else Kept(hint)).to_text()

        found = joiner.progress.to_commit(kept)
        return "" if found is None else found.metadata

    def end(self) -> None:
        """End the process."""
        for joiner in self.partitions.values():
            joiner.close()
