"""`backfill`: joiners and a learner under another model's name, from a moment on, up to another or for good.

It makes a training log (unless it folds another model's), snapshots and checkpoints. It must never write to anything of
the live model's.

1. Check that the log to fold is what the plan takes it for, and that the models go on as they were begun; note that in
   their state directories, and make their topics.
2. Load the models. If all have come to the end, go to step 5.
3. Start the joiners: one here, the others as processes of their own.
4. Wait until the learner is done, or a signal comes.
5. Stop the joiners, then the learner, which publishes and keeps what it has folded.
6. At the end, add up the marks of the training log.

It may be interrupted at any moment: joiners go on by the training log, models by their checkpoints.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from types import TracebackType

from stream_learner.adapters.http.thread import TelemetryServer
from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics, merged
from stream_learner.core.log.subset import FeatureSubset
from stream_learner.errors import RetryLater
from stream_learner.operations.backfill.joiners import FurtherJoiner, member
from stream_learner.operations.backfill.plan import BackfillPlan, describe
from stream_learner.operations.backfill.progress import BackfillProgress, BackfillStatus, Goal
from stream_learner.operations.backfill.record import check_and_record
from stream_learner.operations.backfill.result import Counts, Result, balance_of, check, learned_by
from stream_learner.operations.backfill.source import await_leaders, first_time_ms, subsets_of, warn_of_late_beginning
from stream_learner.operations.topics import ensure_topics, plans
from stream_learner.roles.common.compile import kernels_of_inputs, load_kernels
from stream_learner.roles.common.key_rule import with_key_rule
from stream_learner.roles.common.lifecycle import (
    Heartbeat,
    Stopping,
    Task,
    all_alive,
    all_ready,
    run_role,
    wall_clock_ms,
)
from stream_learner.roles.joiner.report import PartitionView
from stream_learner.roles.joiner.role import JoinerRole
from stream_learner.roles.learner.role import LearnerRole
from stream_learner.version import __version__

FRAME_S = 0.25
LOOK_S = 0.02
SCAN_EVERY_S = 10.0
AGAIN_S = 1.0

Show = Callable[[BackfillStatus], None]


class Backfill:
    """One run of a backfill. Use as a context manager; `run` once."""

    def __init__(self, plan: BackfillPlan) -> None:
        self._plan = plan = replace(plan, models=tuple(with_key_rule(one, plan.source) for one in plan.models))
        self._began_s = self._scan_said_s = time.monotonic()
        self._log = get_logger("backfill")
        self._settings = KafkaSettings(plan.main.kafka_options(), group=plan.main.group)
        self._admin = Admin(self._settings)
        self._metrics = [Metrics(config.model) for config in plan.models]
        self._keep: dict[str, FeatureSubset] = {}
        self._joiner: JoinerRole | None = None
        self._running: list[tuple[JoinerRole | LearnerRole, Heartbeat, Task]] = []
        self._further: list[FurtherJoiner] = []

    def run(self, stopping: Stopping, show: Show) -> Result | None:
        """Run to the end, or until `stopping` is set: then None. `show` is called a few times a second.

        Raises ConfigError, what a role raises, and BrokenInvariant where the balance does not add up.
        """
        # Step 1: check, note, make the topics.
        went_on = self._prepare()
        # Step 2: load the models.
        learner = self._load(stopping)
        if not learner.done and not stopping.is_set():
            # Step 3: start the joiners.
            if self._plan.joins:
                self._start_joiners(went_on)
            # Step 4: wait.
            self._watch(learner, stopping, show)
        done = learner.done
        # Step 5: stop.
        self._stop()
        self._check()
        # Step 6: add up.
        return self._result(learner, stopping) if done else None

    def _prepare(self) -> bool:
        plan = self._plan
        self._log.info("backfill", does=describe(plan), until_tick=plan.until_tick)
        inputs = kernels_of_inputs(plan.main)
        load_kernels(["backfill", *inputs], [config.optimizer() for config in plan.models])
        self._keep = subsets_of(plan, self._settings, self._admin, self._report_scan)
        went_on = check_and_record(plan, self._admin)
        if plan.joins:
            ensure_topics(plan.main)
        # The topic of the copies is for the learner that takes over. A backfill copies nothing: it can learn again.
        own = [
            topic
            for config in plan.models
            for topic in plans(config, 1)
            if topic.name in (config.snapshots_topic, config.checkpoints_topic)
        ]
        self._admin.ensure(own, create=True)
        await_leaders(self._admin, [plan.main.examples_topic, *(config.snapshots_topic for config in plan.models)])
        return went_on

    def _load(self, stopping: Stopping) -> LearnerRole:
        until_tick = self._plan.until_tick
        models = [config.with_values({("learner", "copies"): False}) for config in self._plan.models]
        learner = LearnerRole(models, self._metrics, until_tick=until_tick, keep=self._keep, with_lease=False)
        self._begin(learner)
        while not learner.is_loaded and not stopping.wait(LOOK_S):
            self._check()
        return learner

    def _report_scan(self, read: int, of: int) -> None:
        now_s = time.monotonic()
        if now_s - self._scan_said_s >= SCAN_EVERY_S:
            self._scan_said_s = now_s
            self._log.info("features_compared", impressions=read, of=of)

    def _start_joiners(self, went_on: bool) -> None:
        main, until_tick = self._plan.main, self._plan.until_tick
        topic = main.input.impressions.topic
        partitions = self._admin.require([topic])[topic].partitions
        start = self._plan.span.start
        if not went_on and isinstance(start, int):
            warn_of_late_beginning(self._admin, [topic, main.input.clicks.topic], partitions, start, self._log)
        self._joiner = JoinerRole(member(main, 0), self._metrics[0], until_tick=until_tick, leave=True)
        self._begin(self._joiner)
        for number in range(1, min(self._plan.joiners, partitions)):
            further = FurtherJoiner(main, number, until_tick)
            self._further.append(further)
            further.start()

    def _begin(self, role: JoinerRole | LearnerRole) -> None:
        heartbeat = Heartbeat()
        task = Task(role.name, lambda stopping: run_role(role, stopping, heartbeat))
        self._running.append((role, heartbeat, task.start()))

    def _watch(self, learner: LearnerRole, stopping: Stopping, show: Show) -> None:
        progress = BackfillProgress(self._goal(), self._began_s)
        with ExitStack() as stack:
            self._serve(stack)
            while not learner.done and not stopping.is_set():
                self._check()
                for further in self._further:
                    further.turn()
                examples = learner.learner.examples + learner.learner.refused
                paused = [model.config.model for model in learner.models if model.waits_for_resume]
                held = [f"{model.config.model}: {model.trouble}" for model in learner.models if model.trouble]
                now_s, wall_ms = time.monotonic(), wall_clock_ms()
                show(progress.status(self._views(), learner.tick, examples, now_s, wall_ms, paused, held))
                stopping.wait(FRAME_S)

    def _goal(self) -> Goal:
        plan, join = self._plan, self._plan.main.join
        start_ms = plan.span.start if isinstance(plan.span.start, int) else None
        if start_ms is None and plan.joins:
            start_ms = first_time_ms(self._settings, self._admin, plan.main.input.impressions.topic)
        return Goal(start_ms, plan.span.until_ms, plan.until_tick, join.window_ms, join.tick_ms, plan.joins)

    def _views(self) -> list[PartitionView]:
        views = [] if self._joiner is None else self._joiner.views()
        return views + [view for further in self._further for view in further.views]

    def _serve(self, stack: ExitStack) -> None:
        """Answer `/metrics`, `/healthz` and `/readyz`, if there is a port for them."""
        telemetry = self._plan.main.telemetry
        for role, _, _ in self._running:
            self._metrics[0].set(names.BUILD_INFO, 1, version=__version__, role=role.name)
        if telemetry.http_port:
            server = TelemetryServer(
                telemetry.http_host,
                telemetry.http_port,
                metrics=_AllMetrics(self._metrics),
                health=lambda: all_alive(heartbeat for _, heartbeat, _ in self._running),
                ready=lambda: all_ready(role for role, _, _ in self._running),
                token=telemetry.token,
            )
            stack.enter_context(server)

    def _check(self) -> None:
        for _, _, task in self._running:
            if task.error is not None:
                raise task.error

    def _stop(self) -> None:
        """Take step 5; may be called twice. Joiners stop first, so that the last checkpoint has all that they made."""
        for further in self._further:
            further.ask_to_stop()
        for _, _, task in reversed(self._running):
            task.stop()
        for further in self._further:
            further.wait_stopped()

    def _result(self, learner: LearnerRole, stopping: Stopping) -> Result | None:
        plan = self._plan
        if plan.until_tick is None:
            return None
        balance = self._balance(plan.main.examples_topic, plan.until_tick, stopping)
        if balance is None:
            return None
        models = [learned_by(fold) for fold in learner.models]
        result = Result(balance, models, time.monotonic() - self._began_s)
        check(result, plan.main.examples_topic)
        return result

    def _balance(self, log_topic: str, until_tick: int, stopping: Stopping) -> Counts | None:
        """Take step 6, again and again while brokers do not answer; None after a signal."""
        said = False
        while True:
            try:
                return balance_of(self._settings, self._admin, log_topic, until_tick)
            except RetryLater as error:
                if not said:
                    self._log.warning("balance_waits", reason=str(error), action=error.action)
                said = True
                if stopping.wait(AGAIN_S):
                    return None

    def __enter__(self) -> Backfill:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._stop()


class _AllMetrics:
    """The metrics of all models as one text."""

    def __init__(self, metrics: Sequence[Metrics]) -> None:
        self._metrics = metrics

    def text(self) -> bytes:
        """All values in Prometheus's text format."""
        return merged([({}, metrics.text()) for metrics in self._metrics])
