"""The learner's loop: steps 3 to 6 of `role`, once in every turn, and the lease of step 2."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from stream_learner.adapters.kafka import RetentionWatch, TopicWatch
from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.logs import Logger
from stream_learner.errors import BrokerUnreachable, LogTrimmed, RetryLater
from stream_learner.roles.common.lifecycle import IDLE_S, BrokerOutage
from stream_learner.roles.control.watch import ControlWatch
from stream_learner.roles.learner.log_follower import LogFollower, LogWait
from stream_learner.roles.learner.model import LearnedModel

FOLD_FOR_S = 0.05
REST_S = 0.25
"""How long the role waits for a record before it looks at the lease, the topics and the clock again."""
REPORT_EVERY_S = 1.0


class LearnerLoop:
    """An open learner. Used by one thread; any may ask for the properties."""

    def __init__(
        self,
        models: Sequence[LearnedModel],
        control: ControlWatch,
        follower: LogFollower,
        topics: TopicWatch,
        retention: RetentionWatch,
        *,
        catch_up_to: Mapping[int, int],
        standby: bool,
        clock_ms: Callable[[], int],
        log: Logger,
    ) -> None:
        """catch_up_to: the end that each partition of the log had at the start. The loop closes the models and all else
        that it is given.
        """
        self.follower = follower
        self._models, self._control, self._topics, self._retention = models, control, topics, retention
        self._standby, self._catch_up_to = standby, catch_up_to
        self._clock_ms, self._log = clock_ms, log
        self._caught_up = False
        self._partitions = len(follower.positions)
        self._reported_s = time.monotonic()
        self._outage = BrokerOutage(log, "log_unreachable", "log_reachable")
        self._log_wait = LogWait(log, models[0].config.join.tick_ms)
        self._said_awaits = False

    @property
    def tick(self) -> int:
        """The last tick that every model has folded, -1 before the first."""
        return min(model.tick for model in self._models)

    @property
    def done(self) -> bool:
        """As of `LearnerRole`."""
        return all(model.done for model in self._models)

    @property
    def why_not_ready(self) -> str:
        """As of `LearnerRole`."""
        if self._outage.since_s is not None:
            return "the learner cannot read the training log"
        if self._awaits_decisions:
            return f"the learner has not read the decisions in {self._control.topic}{self._why_decisions}"
        trouble = "; ".join(model.trouble for model in self._models if model.trouble)
        if trouble:
            return trouble
        if self._caught_up or not self._standby:
            return ""
        holding = ", ".join(map(str, self._log_wait.partitions))
        waits = f": it waits for partition {holding}" if holding else ""
        return f"the standby has not caught up with the training log{waits}"

    @property
    def waits(self) -> str:
        """As of `LearnerRole`."""
        return "; ".join(model.waits for model in self._models if model.waits)

    def turn(self) -> bool:
        """Steps 3 to 6, once. False if there was nothing to do."""
        if self.done:
            return False
        # Step 2: a standby leads once it holds the lease.
        for model in self._models:
            model.keep_lease(caught_up=self._caught_up)
        # Step 3: read.
        came = self._read()
        # Step 4: fold.
        folded = self._fold()
        self._caught_up = self._caught_up or (not folded and (self._is_held or self._has_caught_up))
        wrote, positions = False, self.follower.positions
        for model in self._models:
            # Step 5: publish.
            model.publish_when_due()
            # Step 6: checkpoint.
            wrote |= model.checkpoint_when_due(positions)
        if self.done or time.monotonic() - self._reported_s > REPORT_EVERY_S:
            self._report()
        return came or folded or wrote

    def rest(self) -> None:
        """Wait for a record of the log, and no longer than until a version is due."""
        due_in_s = [due_s for model in self._models if (due_s := model.publication_due_in_s) is not None]
        self.follower.wait(min([*due_in_s, REST_S]) or IDLE_S)

    def _read(self) -> bool:
        self._topics.check()
        self._outage.answered(self._topics.answered_s)
        try:
            came = self.follower.read()
        except (BrokerUnreachable, RetryLater) as error:
            if self._outage.report(str(error)):
                for model in self._models:
                    model.metrics.inc(names.RETRIES, role="learner", error=type(error).__name__)
            return False
        except LogTrimmed:
            # A log that was made anew lacks the offset too; then that is the error to raise.
            self._topics.check_now()
            raise
        if came:
            self._outage.answered(time.monotonic())
        self._note_added()
        self._log_wait.look(self.follower)
        return came

    def _note_added(self) -> None:
        """Log that the training log was given partitions."""
        partitions = len(self.follower.positions)
        if partitions > self._partitions:
            self._log.info("partitions_added", partitions=partitions, before=self._partitions, tick=self.tick)
            self._partitions = partitions

    def _fold(self) -> bool:
        """Fold ticks that every partition has passed, for a bounded time."""
        if self._awaits_decisions:
            self._say_awaits()
            return False
        until_s = time.monotonic() + FOLD_FOR_S
        folded = False
        while time.monotonic() < until_s:
            tick, known = self.follower.next_tick(), self.follower.passed
            tick = min(model.last_before_kept(tick, known) for model in self._models)
            if tick <= self.tick or any(model.must_wait for model in self._models) or not self._may_fold(tick):
                break
            accepted = list(self.follower.take(tick))
            for model in self._models:
                model.fold(accepted, tick)
                model.keep_when_due(self.follower.positions, known)
            folded = True
        return folded

    def _may_fold(self, tick: int) -> bool:
        """Whether every model's gate lets the next tick through: they have one position in the log."""
        coming = self.follower.look(tick)
        if not any(accepted.records for accepted in coming):
            return True
        # One look for all models: a decision that comes meanwhile is for the next tick of each of them.
        decisions = self._control.state.decisions_of(self._models[0].config.examples_topic)
        lets = [model.may_fold(coming, tick, decisions) for model in self._models]  # each says what it holds
        return all(lets)

    @property
    def _awaits_decisions(self) -> bool:
        """Whether decisions on the log may be there that are not known yet: what they say must come first. Without the
        topic there are none, unless a model was learned with some.
        """
        names_some = any(model.gate.names_decisions for model in self._models)
        return not self._control.is_settled or (names_some and not self._control.is_read)

    @property
    def _why_decisions(self) -> str:
        """Why a topic that cannot be read keeps the learner from folding, "" while it may still be read."""
        problem = self._control.problem
        return "" if problem is None else f", and a model was learned with some: {problem}. {problem.action}"

    def _say_awaits(self) -> None:
        """Log once that the fold waits for a control topic that cannot be read."""
        problem = self._control.problem
        if problem is not None and not self._said_awaits:
            self._said_awaits = True
            self._log.error("decisions_not_read", tick=self.tick, reason=str(problem), action=problem.action)

    @property
    def _is_held(self) -> bool:
        return any(model.gate.holding is not None for model in self._models)

    @property
    def _has_caught_up(self) -> bool:
        """Whether all is read that was in the log at the start. The caller has folded what can be folded of it."""
        read_up_to = self.follower.read_up_to
        return all(read_up_to[partition] >= end for partition, end in self._catch_up_to.items())

    def _report(self) -> None:
        self._reported_s = time.monotonic()
        for model in self._models:
            model.report(self.follower, self._retention, self._clock_ms())

    def finish(self) -> None:
        """Publish what is folded, and write it: scorers have it, and the next start is quick."""
        for model in self._models:
            model.finish(self.follower.positions)

    def close(self) -> None:
        """Let go of the topics and the state directories. A checkpoint without its head does not count."""
        self._control.stop()
        self._retention.stop()
        self.follower.close()
        for model in self._models:
            model.close()
