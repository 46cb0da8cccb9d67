"""The checks of `promote` and `rollback`: whether a model is fit for an alias."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.adapters.telemetry.logs import get_logger
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.config import Config
from stream_learner.config.values import format_duration_ms
from stream_learner.core.control.records import PROMOTE
from stream_learner.core.model.slices import compare
from stream_learner.errors import NotFound, StreamLearnerError
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.roles.scorer.replica import ModelReplica
from stream_learner.wording import count_of

POLL_S = 0.02
Description = dict[str, Any]
"""The content of a model record, and under "version" its version."""


@dataclass(frozen=True)
class Check:
    """One check. passed: whether it passed; None for a remark that decides nothing."""

    name: str
    passed: bool | None
    detail: str

    @property
    def result(self) -> str:
        return {True: "ok", False: "failed", None: "note"}[self.passed]


@dataclass(frozen=True)
class PromotionRequest:
    """An alias to point at a model, who asks for it, and whether it is done even if checks fail."""

    alias: str
    model: str
    who: str
    what: str = PROMOTE
    forced: bool = False
    note: str = ""
    dry_run: bool = False


@dataclass
class Outcome:
    """The outcome of a request. before: the model before. done: whether the alias points at the model now. notes: what
    else to tell."""

    request: PromotionRequest
    before: str | None
    checks: list[Check] = field(default_factory=list)
    done: bool = False
    notes: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Check]:
        return [check for check in self.checks if check.passed is False]


class PromotionChecks:
    """The checks, one method each; each adds to the checks of an outcome."""

    def __init__(self, config: Config, control: ControlTopic, clock_ms: Callable[[], int]) -> None:
        self._config = config
        self._control = control
        self._settings = KafkaSettings(config.kafka_options())
        self._clock_ms = clock_ms
        self._log = get_logger("promotion")

    def complete(self, outcome: Outcome, model: str) -> Description | None:
        """Check that a replica of the model becomes ready. Returns its description then."""
        until = time.monotonic() + self._config.scorer.ready_timeout_ms / 1000
        try:
            replica = ModelReplica(
                self._settings, model, f"{model}.snapshots", self._log, stale_after_ms=None, metrics=Metrics(model)
            )
            replica.start()
            try:
                while replica.why_not_current and replica.failure is None and time.monotonic() < until:
                    time.sleep(POLL_S)
                missing = replica.why_not_current
                description = {**replica.replica.model, "version": replica.replica.version}
                detail = f"version {replica.replica.version}, {count_of(replica.replica.rows, 'weight')}"
            finally:
                replica.stop()
        except StreamLearnerError as error:
            missing = error.message
        if missing:
            outcome.checks.append(Check("complete", False, missing))
            return None
        outcome.checks.append(Check("complete", True, detail))
        return description

    def publishing(self, outcome: Outcome) -> None:
        """Check that publication of the model is not paused, and that its gate does not hold it."""
        found = self._control.state.publications.get(outcome.request.model)
        gate = self._control.state.gates.get(outcome.request.model)
        if gate is not None and gate.holding is not None:
            detail = f"its gate holds it at tick {gate.holding.tick}: {gate.note}"
            outcome.checks.append(Check("publishing", False, detail))
        elif found is not None and found.paused:
            outcome.checks.append(Check("publishing", False, f"publication was paused by {found.who}"))
        else:
            outcome.checks.append(Check("publishing", True, "not paused, not held"))

    def pinned(self, outcome: Outcome, passed: bool | None = False) -> None:
        """Check that the alias is not pinned: scorers of a pinned alias would not follow."""
        pin = self._control.state.pin(outcome.request.alias)
        if pin is None:
            outcome.checks.append(Check("followed", True, "the alias is not pinned"))
            return
        detail = f"{pin.who} has pinned it to {pin.model}: scorers change models after `stream-learner unpin`"
        outcome.checks.append(Check("followed", passed, detail))

    def described(self, model: str | None) -> Description | StreamLearnerError:
        """The description of the model that is replaced, or the error for which it is not known."""
        topic = f"{model}.snapshots"
        try:
            admin = Admin(self._settings)
            shards = admin.require([topic])[topic].partitions
            last = read_last_publication(self._settings, admin.offsets, topic, shards)
        except StreamLearnerError as error:
            return error
        if last.model is None:
            return NotFound(f"{topic} holds no published version")
        return {**last.model.content, "version": last.model.stamp.version}

    def fresh(
        self,
        outcome: Outcome,
        candidate: Description,
        current: Description | StreamLearnerError | None,
        max_lag_ms: int,
    ) -> None:
        """Check that its version is not far behind the clock, or behind that of the model it replaces."""
        end_ms = _end_ms(candidate)
        behind_ms = {"the clock": self._clock_ms() - end_ms}
        if isinstance(current, dict):
            behind_ms[str(current["name"])] = _end_ms(current) - end_ms
        texts = [f"{_lag(max(ms, 0))} behind {what}" for what, ms in behind_ms.items()]
        passed = min(behind_ms.values()) <= max_lag_ms
        limit = "" if passed else f"; at most {_lag(max_lag_ms)} (--max-lag)"
        outcome.checks.append(Check("fresh", passed, ", ".join(texts) + limit))

    def same_inputs(self, outcome: Outcome, candidate: Description, current: Description | StreamLearnerError) -> None:
        """Add a remark whether both models make the same features of an event."""
        if isinstance(current, StreamLearnerError):
            return
        differ = [name for name in ("features", "inputs") if candidate.get(name) != current.get(name)]
        detail = f"the two differ in their {' and '.join(differ)}" if differ else "the same inputs and features"
        outcome.checks.append(Check("features", None, detail))

    def not_worse(
        self,
        outcome: Outcome,
        candidate: Description,
        current: Description | StreamLearnerError | None,
        tolerance: float,
    ) -> None:
        """Check that its loss, on traffic that both have predicted, is no larger, within the tolerance."""
        if current is None:
            detail = "nothing to compare with" if outcome.before is None else "it is the same model"
            outcome.checks.append(Check("not worse", True, detail))
            return
        if isinstance(current, StreamLearnerError):
            detail = f"{outcome.before}, which it replaces, cannot be looked at: {current}"
            outcome.checks.append(Check("not worse", False, detail))
            return
        losses = [_loss_of(model) for model in (candidate, current)]
        if losses[0] != losses[1]:
            detail = f"it learns by the loss {losses[0]}, {outcome.before} by {losses[1]}: their means do not compare"
            outcome.checks.append(Check("not worse", False, detail))
            return
        found = compare(current.get("slices", ()), candidate.get("slices", ()))
        if not found.start_ms:
            detail = f"no finished slice of traffic is shared with {outcome.before}"
            outcome.checks.append(Check("not worse", False, detail))
            return
        worse = found.is_worse(tolerance)
        figure = "log-loss" if losses[0] == "logistic" else losses[0]
        detail = (
            f"{figure} {found.candidate_loss:.5f}, that of {outcome.before} {found.current_loss:.5f}, "
            f"over {count_of(len(found.start_ms), 'shared slice')} with {count_of(found.examples, 'example')}"
        )
        limit = f"; at most {tolerance:g} more (--tolerance)" if worse else ""
        outcome.checks.append(Check("not worse", not worse, detail + limit))


def _loss_of(description: Description) -> str:
    """The loss that a model learns by, with its option: means of losses with different options do not compare."""
    loss = dict(description.get("loss", {"name": "logistic"}))
    name = str(loss.pop("name"))
    return " ".join([name, *(f"{option}={value!r}" for option, value in sorted(loss.items()))])


def _end_ms(description: Description) -> int:
    """The end of the tick of a version, ms."""
    return (int(description["version"]) + 1) * int(description["tick_ms"])


def _lag(duration_ms: int) -> str:
    return format_duration_ms(duration_ms // 1000 * 1000 if duration_ms >= 10_000 else duration_ms)
