"""Everything that a demo runs: topics, traffic, joiner, learner, scorer, and the audit of the log.

Each role gets nothing but its configuration, and is started as in production.

1. Make the topics.
2. Start joiner and learner; when they are ready, the scorer and the audit of the log; then the traffic.
3. In the end stop them in the order of the data, each after it has taken what the one before it left.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import TracebackType

import numpy as np
from numpy.typing import NDArray

from stream_learner.adapters.kafka import Admin, EmbeddedBroker, KafkaSettings, TopicAndPartition, TopicPlan
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.core.log.marks import TickCounts
from stream_learner.demo.audit import LogAudit
from stream_learner.demo.freshness import Freshness
from stream_learner.demo.plan import DemoPlan, make_traffic
from stream_learner.demo.producer import TrafficProducer
from stream_learner.demo.scoreboard import Score, Scoreboard
from stream_learner.errors import RetryLater
from stream_learner.operations.topics import input_plans, plans
from stream_learner.roles.common.lifecycle import Task, run_role, wall_clock_ms
from stream_learner.roles.joiner.role import JoinerRole
from stream_learner.roles.learner.role import LearnerRole
from stream_learner.roles.scorer.scorer import Scorer
from stream_learner.wording import count_of

START_S = 60.0
SETTLE_S = 20.0
PAUSE_S = 0.02
JOIN_S = 60.0


@dataclass(frozen=True, slots=True)
class DemoStatus:
    """The state of a demo at one moment.

    sent_…: records on the input topics. counts: their outcomes, by the training log. learned: examples folded.
    freshness_ms: p50 and p99 since the start, None before the first.
    """

    seconds: float
    sent_impressions: int
    sent_clicks: int
    counts: TickCounts
    learned: int
    version: int
    features: int
    nonzero: int
    total: Score
    recent: Score
    curve: list[float]
    freshness_ms: list[int] | None


@dataclass(frozen=True, slots=True)
class DemoResult:
    """The last status, the model's digest at that time, and problems, which only a bug can cause."""

    status: DemoStatus
    digest: str
    problems: list[str]


class DemoSystem:
    """One running demo; use as a context manager."""

    def __init__(self, plan: DemoPlan, config: Config, broker: EmbeddedBroker | None) -> None:
        self.plan = plan
        self.config = config
        self._broker = broker
        self._settings = KafkaSettings(config.kafka_options(), group=f"{config.model}.demo")
        self._admin = Admin(self._settings)
        self._window_ms = config.join.window_ms
        self._tick_ms = config.join.tick_ms
        self._traffic = make_traffic(plan, self._window_ms)
        self._freshness = Freshness()
        self._board = Scoreboard()
        metrics = Metrics(config.model)
        self._joiner = JoinerRole(config, metrics)
        self._learner = LearnerRole(config, metrics)
        self._scorer = Scorer(
            model=config.model,
            kafka=config.kafka_options(),
            topic=config.snapshots_topic,
            stale_after_ms=None,
            on_version=self._on_version,
        )
        self._audit = LogAudit(self._settings, config.examples_topic, plan.partitions, self._on_examples)
        self._producer = TrafficProducer(
            self._settings,
            self._traffic,
            impressions_topic=config.input.impressions.topic,
            clicks_topic=config.input.clicks.topic,
            partitions=plan.partitions,
            rate_per_s=plan.rate_per_s,
        )
        self._joining = Task("joiner", partial(run_role, self._joiner))
        self._learning = Task("learner", partial(run_role, self._learner))
        self._auditing = Task("audit", self._audit.run)
        self._producing = Task("traffic", self._producer.run)
        self._began_s = self._ended_s = 0.0

    def start(self) -> None:
        """Steps 1 and 2. Raises the error of a role that cannot start."""
        # Step 1: make the topics.
        self._make_topics()
        # Step 2: start everything, in the order of the data.
        self._joining.start()
        self._learning.start()
        self._until(self._roles_are_ready, "the joiner and the learner to start", START_S)
        self._scorer.start()
        self._auditing.start()
        self._producing.start()
        self._began_s = time.monotonic()

    def _make_topics(self) -> None:
        wanted = [*plans(self.config, self.plan.partitions), *self._input_plans()]
        if self._broker is not None:
            for topic in wanted:
                self._broker.create_topic(topic.name, topic.partitions)
            return
        self._admin.create(wanted)
        partitions = [(topic.name, partition) for topic in wanted for partition in range(topic.partitions)]
        self._until(lambda: self._have_leaders(partitions), "every partition of the topics to have a leader", START_S)

    def _have_leaders(self, partitions: list[TopicAndPartition]) -> bool:
        """Whether all partitions have leaders. Roles that start before that end and must be restarted; nobody does
        here."""
        known, _ = self._admin.offsets.high_watermarks_known(partitions)
        return len(known) == len(partitions)

    def _input_plans(self) -> list[TopicPlan]:
        """The plans of the input topics, with the retention of the model's own topics."""
        kept = {"retention.ms": str(self.config.topics.retention_ms)}
        return [replace(p, configs={**p.configs, **kept}) for p in input_plans(self.config, self.plan.partitions)]

    def _roles_are_ready(self) -> bool:
        started = not (self._joiner.why_not_ready or self._learner.why_not_ready)
        return started and len(self._joiner.partitions) == self.plan.partitions

    def check(self) -> None:
        """Raise the error of a thread that has failed."""
        for task in (self._joining, self._learning, self._auditing, self._producing):
            if task.error is not None:
                raise task.error

    def status(self) -> DemoStatus:
        learner = self._learner.learner
        return DemoStatus(
            seconds=(self._ended_s or time.monotonic()) - self._began_s,
            sent_impressions=self._producer.impressions,
            sent_clicks=self._producer.clicks,
            counts=self._audit.counts,
            learned=learner.examples,
            version=self._scorer.version,
            features=learner.table.count,
            nonzero=learner.nonzero,
            total=self._board.total,
            recent=self._board.recent,
            curve=self._board.curve,
            freshness_ms=self._freshness.percentiles(0.5, 0.99),
        )

    def finish(self) -> DemoResult:
        """Step 3: stop everything in the order of the data, and sum up. Raises the error of a role that failed."""
        self._producing.stop(JOIN_S)
        self._ended_s = time.monotonic()
        self._joining.stop(JOIN_S)
        self.check()
        ends = self._ends(self.config.examples_topic)
        self._audit.wait_for(ends, SETTLE_S)
        self._until(lambda: self._learner.tick >= self._audit.passed, "the last ticks to be folded", SETTLE_S)
        self._learning.stop(JOIN_S)
        self.check()
        self._until(lambda: self._scorer.version == self._learner.tick, "the last version to be served", SETTLE_S)
        self._auditing.stop(JOIN_S)
        result = DemoResult(self.status(), f"{self._learner.learner.digest():016x}", self._problems())
        self._scorer.close()
        return result

    def _problems(self) -> list[str]:
        """Every disagreement between producer, topics, training log, learner and scorer, a line each."""
        found = self._audit.problems
        counts, positions = self._audit.counts, self._audit.positions()
        inputs = self.config.input
        for what, topic, sent, read, emitted in (
            (
                "impressions",
                inputs.impressions.topic,
                self._producer.impressions,
                counts.impressions.read,
                sum(impression for impression, _ in positions.values()),
            ),
            (
                "clicks",
                inputs.clicks.topic,
                self._producer.clicks,
                counts.clicks.read,
                sum(click for _, click in positions.values()),
            ),
        ):
            held = sum(self._ends(topic).values())
            if held != sent:
                found.append(f"{sent} {what} were sent, the topic holds {held}")
            if read != emitted:
                found.append(f"the marks count {read} {what} and stand at {emitted}")
        return found + self._model_problems()

    def _model_problems(self) -> list[str]:
        found = []
        learner = self._learner.learner
        logged, folded = self._audit.examples_up_to(self._learner.tick), learner.examples + learner.refused
        if logged != folded:
            found.append(
                f"the training log holds {count_of(logged, 'example')} up to the version, {folded} were folded"
            )
        different = self._different_weights()
        if different:
            found.append(f"{count_of(different, 'weight')} of the scorer not as in the learner")
        return found

    def _different_weights(self) -> int:
        """How many weights differ between learner and scorer, as float32."""
        learner = self._learner.learner
        different = 0
        for rows in learner.table.items():
            weights = learner.weights(rows.columns).astype(np.float32)
            served = np.array([self._scorer.weight(key) for key in rows.keys.tolist()], np.float32)
            different += int((weights != served).sum())
        return different

    def _ends(self, topic: str) -> dict[int, int]:
        partitions = [(topic, partition) for partition in range(self.plan.partitions)]
        found = self._admin.offsets.high_watermarks(partitions)
        return {partition: end for (_, partition), end in found.items()}

    def _on_version(self, version: int) -> None:
        """Note a version that is served now. Called in the scorer's thread."""
        self._freshness.applied(version, wall_clock_ms())
        shown_before_ms = (version + 1) * self._tick_ms - self._window_ms
        self._board.add(self._scorer.description.get("metrics", {}), self._traffic.best(shown_before_ms))

    def _on_examples(self, tick: int, log_times_ms: NDArray[np.int64]) -> None:
        """Note the examples of a tick by the times they were shown at. Called in the audit's thread."""
        self._freshness.closed(tick, log_times_ms + self._window_ms)

    def _until(self, true: Callable[[], bool], what: str, timeout_s: float) -> None:
        until = time.monotonic() + timeout_s
        while not true():
            self.check()
            if time.monotonic() > until:
                raise RetryLater(f"waited {timeout_s:g} s for {what}")
            time.sleep(PAUSE_S)

    def __enter__(self) -> DemoSystem:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for task in (self._producing, self._joining, self._learning, self._auditing):
            task.stop(JOIN_S)
        self._scorer.close()
