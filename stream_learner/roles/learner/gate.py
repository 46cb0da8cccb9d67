"""Rules on every tick before one model learns from it: take it, leave its examples out, or hold until an operator
decides.

The ruling is a function of the log and of the operators' decisions on it: never of the clock, or of when a decision
came. So a decision counts only if none of its ticks had been folded before it came; one that comes later is too late,
is remembered as such, and changes nothing.

    decision on the tick   verdict of the bounds   policy   ruling
    skip                   any                     any      its examples are left out
    accept                 any                     any      learned from; the estimates begin anew with it
    none                   within bounds           any      learned from
    none                   out of bounds           warn     learned from, and said
    none                   out of bounds           hold     held

The bounds are `core.gate`'s. With `learner.gate: off` there are none; decisions are taken all the same, or a model
would not be learned again to what it was.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from enum import Enum
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.core.control.gate_state import Holding
from stream_learner.core.gate.decisions import Decision, Decisions, decisions_digest, other_course
from stream_learner.errors import OtherDecisions

if TYPE_CHECKING:
    from stream_learner.adapters.telemetry.logs import Logger
    from stream_learner.adapters.telemetry.metrics import Metrics
    from stream_learner.core.control.state import ControlState
    from stream_learner.core.gate.gate import Gate, Predict, Verdict
    from stream_learner.core.log.rule_r import AcceptedTick

OFF, WARN, HOLD = "off", "warn", "hold"
ACTION = "Look at `stream-learner gate status`; then `stream-learner gate accept` or `stream-learner gate skip`."
TOO_LATE = "Nothing was changed by it. Go back to before its first tick with `stream-learner rewind`."


class Ruling(Enum):
    """The gate's answer about a tick."""

    TAKE = "take"
    ACCEPT = "accept"
    SKIP = "skip"
    HOLD = "hold"


class ModelGate:
    """The gate of one model. Used by the learner's thread; `holding` and `trouble` may be asked from any."""

    def __init__(
        self,
        policy: str,
        model: str,
        training_log: str,
        make_gate: Callable[[], Gate],
        control: Callable[[], ControlState],
        metrics: Metrics,
        log: Logger,
    ) -> None:
        """control: what the control topic says now."""
        self.policy = policy
        self.holding: Holding | None = None
        """What it holds for, None while it does not hold."""
        self.message = ""
        self._model, self._training_log = model, training_log
        self._make_gate, self._control = make_gate, control
        self._metrics, self._log = metrics, log
        self._gate = None if policy == OFF else make_gate()
        self._applied: dict[str, Decision] = {}
        self._applied_at: dict[str, int] = {}
        self._late: set[str] = set()
        self._published_at: dict[str, int] = {}
        self._published = -1
        """The decisions that the last version was learned with, each with its first tick, and that version."""
        self._known: Decisions | None = None
        self._counting = Decisions()
        self.left_out = 0
        """How many examples were left out by decisions."""
        self._taken_tick = -1
        """The last tick with examples that is folded or left out."""
        self._judged: tuple[int, Verdict | None] | None = None
        self._ruled: tuple[int, Ruling, Decision | None] | None = None
        self._held_since_s = 0.0
        self._warned = ""

    @property
    def trouble(self) -> str:
        """The reason why the model is held, "" while it is not."""
        return f"held: {self.message}; see `stream-learner gate status`" if self.holding is not None else ""

    @property
    def late(self) -> tuple[str, ...]:
        """The decisions that came too late, by id, those included that the learner that led before has found so."""
        self._counting_of(self._control().decisions_of(self._training_log))
        return tuple(sorted(self._late))

    @property
    def digest(self) -> int:
        """The digest of the decisions that took effect, 0 for none."""
        return decisions_digest(self._applied.values())

    def description(self) -> dict[str, Any]:
        """The field of the model record by which `check_course` knows a model learned with other decisions."""
        return {"decisions": sorted(self._applied_at.items())} if self._applied_at else {}

    @property
    def names_decisions(self) -> bool:
        """Whether this state, or the last version, was learned where there were decisions."""
        return bool(self._applied or self._late or self._published_at)

    def check_course(self, published: Mapping[str, Any], version: int) -> None:
        """Compare with what was published. Raises OtherDecisions where the model was learned with other decisions.

        published: the content of the model record of a version. Up to that version the fold goes on as it says: the
        learner that published it may have found a decision too late, and ended before it could say so.
        """
        theirs = {str(name): int(tick) for name, tick in published.get("decisions", ())}
        self._published_at, self._published = theirs, version
        differing = other_course(self._applied_at, theirs, min(version, self._taken_tick))
        if differing:
            raise OtherDecisions(
                f"version {version} of {self._model} and this state, of tick {self._taken_tick}, were not learned with "
                f"the same decisions: {', '.join(differing)} took effect in one of them only"
            )

    def state(self) -> dict[str, Any]:
        """All state, exact, in JSON's types: as of the last tick that was taken or left out."""
        return {
            "taken_tick": self._taken_tick,
            "applied": [asdict(decision) for _, decision in sorted(self._applied.items())],
            "applied_at": dict(sorted(self._applied_at.items())),
            "late": sorted(self._late),
            "left_out": self.left_out,
            "bounds": None if self._gate is None else self._gate.state(),
        }

    def restore(self, state: Mapping[str, Any] | None, tick: int) -> None:
        """Go on from `state`, None for a checkpoint without one. tick: the last one that the model has folded."""
        if state is None:
            self._taken_tick = tick
            return
        self._taken_tick = state["taken_tick"]
        self._applied = {fields["id"]: Decision(**fields) for fields in state["applied"]}
        self._applied_at = dict(state["applied_at"])
        self._late, self.left_out = set(state["late"]), state["left_out"]
        if self._gate is None or state["bounds"] is None:
            return
        try:
            self._gate.restore(state["bounds"])
        except ValueError as error:
            self._gate = self._make_gate()
            self._log.warning("gate_begins_anew", reason=str(error))

    def rule(self, tick: int, coming: Sequence[AcceptedTick], known: Decisions, predict: Predict | None = None) -> bool:
        """Rule on the next tick with examples; False if it is held. known: the decisions on the log.

        coming: all accepted ticks up to it that are not folded. predict: predictions of a record by the model now, None
        if they are no probabilities. To be called again, for the same tick, until no model holds; then `took` follows.
        """
        if self._judged is None or self._judged[0] != tick:
            self._judged = tick, None if self._gate is None else self._gate.judge(tick, coming, predict)
        verdict, decision = self._judged[1], self._decision_at(tick, known)
        self._ruled = tick, self._ruling(tick, verdict, decision), decision
        return self._ruled[1] is not Ruling.HOLD

    def _ruling(self, tick: int, verdict: Verdict | None, decision: Decision | None) -> Ruling:
        if decision is not None:
            return Ruling.SKIP if decision.what == "skip" else Ruling.ACCEPT
        if verdict is not None and self.policy == HOLD:
            self._hold(tick, verdict)
            return Ruling.HOLD
        return Ruling.TAKE

    def _hold(self, tick: int, verdict: Verdict) -> None:
        if self.holding is not None:
            return
        self.message = verdict.message
        self.holding = _holding(tick, verdict)
        self._held_since_s = time.monotonic()
        self._log.error("gate_holds", reason=verdict.message, **_figures(tick, verdict), action=ACTION)

    def took(self, tick: int, accepted: Sequence[AcceptedTick]) -> None:
        """Note that a tick was folded or left out, as it was ruled; or that ticks without examples were passed."""
        ruled = self._ruled
        if ruled is None or ruled[0] != tick:
            self._pass(accepted)
            return
        _, ruling, decision = ruled
        if ruling is Ruling.TAKE:
            self._warn(tick, None if self._judged is None else self._judged[1])
        self._judged = self._ruled = None
        self._taken_tick = tick
        self._enter(ruling)
        if ruling is Ruling.SKIP:
            examples = sum(one.examples for one in accepted)
            self.left_out += examples
            self._metrics.inc(names.LEARNER_GATE_SKIPPED, examples)
        if decision is not None:
            self._apply(tick, decision)
        if self.holding is not None:
            self._log.info("gate_opens", tick=tick, seconds=round(time.monotonic() - self._held_since_s, 1))
            self.holding, self.message = None, ""

    def _warn(self, tick: int, verdict: Verdict | None) -> None:
        """Count a tick that was learned although it is out of bounds; log the first of a run of them."""
        bound = "" if verdict is None else verdict.bound
        if verdict is not None:
            self._metrics.inc(names.LEARNER_GATE_WARNINGS)
            if bound != self._warned:
                self._log.warning("gate_warns", reason=verdict.message, **_figures(tick, verdict))
        self._warned = bound

    def _pass(self, accepted: Sequence[AcceptedTick]) -> None:
        if self._gate is not None:
            for one in accepted:
                self._gate.count(one.mark)

    def _enter(self, ruling: Ruling) -> None:
        """Let the estimates take in the tick that was judged last, or leave it out."""
        if self._gate is None:
            return
        if ruling is Ruling.SKIP:
            self._gate.skip()
        elif ruling is Ruling.ACCEPT:
            self._gate.accept()
        else:
            self._gate.take()

    def leaves_out(self, tick: int) -> bool:
        """Whether the examples of this tick are left out by what was ruled."""
        return self._ruled is not None and self._ruled[:2] == (tick, Ruling.SKIP)

    def _apply(self, tick: int, decision: Decision) -> None:
        if decision.id in self._applied:
            return
        self._applied[decision.id] = decision
        self._applied_at[decision.id] = tick
        self._metrics.inc(names.LEARNER_GATE_DECISIONS, outcome=decision.what)
        self._log.info("gate_decision", tick=tick, **_said(decision))

    def _counting_of(self, known: Decisions) -> Decisions:
        """The decisions that count: those that did not come too late, and those that took effect before."""
        if known is not self._known:
            self._known = known
            self._late |= self._control().late_on(self._training_log, self._model) - set(self._applied)
            for decision in known:
                self._check_time(decision)
            self._counting = Decisions(one for one in (*known, *self._applied.values()) if one.id not in self._late)
        return self._counting

    def _decision_at(self, tick: int, known: Decisions) -> Decision | None:
        """The decision that counts for a tick. Of a tick that is published, only those that it was learned with do."""
        found = self._counting_of(known).at(tick)
        while found is not None and tick <= self._published and found.id not in {*self._published_at, *self._applied}:
            self._leave_out(found)
            self._known = None
            found = self._counting_of(known).at(tick)
        return found

    def _check_time(self, decision: Decision) -> None:
        """Leave out a decision whose first tick is folded already, unless it took effect then."""
        if decision.from_tick <= self._taken_tick and decision.id not in {*self._applied, *self._late}:
            self._leave_out(decision)

    def _leave_out(self, decision: Decision) -> None:
        self._late.add(decision.id)
        self._metrics.inc(names.LEARNER_GATE_DECISIONS, outcome="late")
        self._log.warning("gate_decision_late", tick=self._taken_tick, **_said(decision), action=TOO_LATE)

    def report(self) -> None:
        """Bring the metrics up to date."""
        held = self.holding is not None
        self._metrics.set(names.LEARNER_GATE_STATE, float(held))
        self._metrics.set(names.LEARNER_GATE_HELD, time.monotonic() - self._held_since_s if held else 0.0)


def _said(decision: Decision) -> dict[str, Any]:
    """A decision as fields of a log event."""
    return {
        "decision": decision.id,
        "what": decision.what,
        "from_tick": decision.from_tick,
        "to_tick": decision.to_tick,
        "who": decision.who,
        "why": decision.why,
    }


def _figures(tick: int, verdict: Verdict) -> dict[str, Any]:
    """A verdict as fields of a log event."""
    return {
        "tick": tick,
        "since_tick": verdict.since_tick,
        "bound": verdict.bound,
        "slice": verdict.slice,
        "found": verdict.found,
        "expected": verdict.expected,
        "low": verdict.low,
        "high": verdict.high,
    }


def _holding(tick: int, verdict: Verdict) -> Holding:
    numbers = {name: float(getattr(verdict, name)) for name in ("found", "expected", "low", "high")}
    return Holding(
        tick=tick,
        since_tick=verdict.since_tick,
        bound=verdict.bound,
        slice=verdict.slice,
        **{name: value if math.isfinite(value) else None for name, value in numbers.items()},
    )
