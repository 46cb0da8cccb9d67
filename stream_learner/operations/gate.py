"""`gate status`, `gate accept`, `gate skip`, `gate policy`: what the learner holds, and the operators' decisions on it.

A decision is a record of the control topic that is never changed. It is of the training log: every model that is
learned from it takes it, now and in every replay. So it must name ticks that none of them has folded; of models that
publish, the published version says how far they are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.config import Config
from stream_learner.core.control.gate_state import GateState
from stream_learner.core.control.records import Accepted, LogDecision
from stream_learner.core.control.state import ControlState
from stream_learner.core.gate.decisions import Decision, Decisions, What
from stream_learner.errors import DecisionRefused, NotFound, TopicMissing
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.control.topic import ControlTopic
from stream_learner.wording import moment_of

Fields = dict[str, Any]
DAY_MS = 86_400_000
LONGEST_TEXT = 2_000
NO_GATE_RECORD = (
    "the control topic has no record of its gate, so open is not sure: its learner has never held, may not write, "
    "or is down and its record was deleted; a learner that runs says by its readiness whether it holds"
)


@dataclass(frozen=True)
class DecisionRequest:
    """An operator's wish. from_tick: None for the tick that is held. to_tick: None for `from_tick`."""

    what: What
    from_tick: int | None
    to_tick: int | None
    reason: str
    who: str


def status(config: Config) -> Fields:
    """The state of a model's gates, and the decisions on its log, oldest first. Raises TopicMissing, NotFound.

    published: the version that scorers have.
    """
    state = _read(config).state
    version = _published(config, config.model)
    found = _gate_of(config, state)
    decisions = sorted(state.decisions_of(config.examples_topic), key=lambda one: (one.when_ms, one.id))
    late = state.late_on(config.examples_topic, config.model)
    counting = Decisions(one for one in decisions if one.id not in late)
    return {
        "model": config.model,
        "log": config.examples_topic,
        "policy": config.learner.gate if found is None else found.policy,
        "state": _state(found, version),
        **(_holding(config, found) if found is not None and found.holding is not None else {}),
        **_publication(config, found, version),
        "published": version if version >= 0 else None,
        "said_by": None if found is None else found.who,
        "said_at": None if found is None else moment_of(found.when_ms),
        "note": NO_GATE_RECORD if found is None else None,
        "decisions": [_row(config, decision, late, counting) for decision in decisions],
    }


def policy(config: Config) -> Fields:
    """The settings of the gate, as they are configured."""
    return {"model": config.model, "learner.gate": config.learner.gate, **config.shown()["gate"]}


def decide(config: Config, request: DecisionRequest, clock_ms: Callable[[], int] = wall_clock_ms) -> Fields:
    """Write a decision, once it is checked; one that is there already for these ticks is not written again.

    Raises DecisionRefused for what must not be decided, NotFound for an unknown model, TopicMissing.
    """
    control = _read(config)
    state = control.state
    _published(config, config.model)  # an unknown model is refused as that, not as one that holds nothing
    first, last = _span(config, request, state)
    _check_texts(request.reason, request.who)
    there = _there_already(config, request.what, first, last, state)
    if there is not None:
        return _decided(config, there, f"it was there already, by {there.who}: nothing was written")
    _check_dates(config, last, clock_ms())
    _check_held(config, state, first)
    for model, version in _versions(config, state):
        if first <= version:
            raise DecisionRefused(
                f"{model} has published version {version}, which has what was folded up to that tick: a decision from "
                f"tick {first} on is too late for it",
                action=f"Decide from tick {version + 1} on; or go back to before tick {first} with "
                "`stream-learner rewind`.",
            )
    decision = Decision.make(request.what, first, last, who=request.who, when_ms=clock_ms(), why=request.reason.strip())
    control.write(LogDecision(config.examples_topic, decision))
    return _decided(config, decision, _hint(config, state, decision))


def accept_publication(config: Config, reason: str, who: str, clock_ms: Callable[[], int] = wall_clock_ms) -> Fields:
    """Let the learner publish what it holds back (`snapshots.gate`): beyond the version that scorers have now.

    Raises DecisionRefused without a reason, NotFound for an unknown model or where nothing is held so, TopicMissing.
    """
    control = _read(config)
    _check_texts(reason, who)
    version = _published(config, config.model)
    found = _gate_of(config, control.state)
    if found is None or found.publication is None:
        raise NotFound(
            f"the learner of {config.model} does not say that it holds the model before its publication",
            action="Look at `stream-learner gate status`; what is not held cannot be accepted beforehand.",
        )
    control.write(Accepted(config.model, version, who, clock_ms(), reason.strip()))
    return {"model": config.model, "accepted_after_version": version, "who": who, "why": reason.strip()}


def _read(config: Config) -> ControlTopic:
    return ControlTopic(KafkaSettings(config.kafka_options()), config.control_topic)


def _gate_of(config: Config, state: ControlState) -> GateState | None:
    """The last report of the configured model's learner about its gate on this log."""
    found = state.gates.get(config.model)
    return found if found is not None and found.log == config.examples_topic else None


def _span(config: Config, request: DecisionRequest, state: ControlState) -> tuple[int, int]:
    """The ticks that a decision is about."""
    first, last = request.from_tick, request.to_tick
    if first is None:
        found = _gate_of(config, state)
        if found is None or found.holding is None:
            raise DecisionRefused(
                f"the learner of {config.model} holds no tick, and --from says none",
                action="Look at `stream-learner gate status`, and give the ticks with --from and --to.",
            )
        first = found.holding.tick
    last = first if last is None else last
    if not 0 <= first <= last:
        raise DecisionRefused(f"from tick {first} to tick {last} is no span of ticks")
    return first, last


def _there_already(config: Config, what: What, first: int, last: int, state: ControlState) -> Decision | None:
    """The decision that says the same of these ticks already, None if none does.

    Raises DecisionRefused for an accept of ticks that are skipped: it would never take effect.
    """
    topic = config.examples_topic
    late = state.late_on(topic, config.model)
    counting = Decisions(one for one in state.decisions_of(topic) if one.id not in late)
    there = counting.covering(first, last)
    if there is not None and there.what == "skip" and what == "accept":
        raise DecisionRefused(
            f"decision {there.id} of {there.who} skips tick {there.from_tick} to {there.to_tick}: a skip counts before "
            "an accept",
            action="Decide about other ticks; a decision is never taken back.",
        )
    return there if there is not None and there.what == what else None


def _check_texts(reason: str, who: str) -> None:
    if not reason.strip():
        raise DecisionRefused(
            "a decision needs a reason", action="Give it with --reason; it is kept with the decision."
        )
    for name, text in (("reason", reason), ("who", who)):
        if len(text) > LONGEST_TEXT:
            raise DecisionRefused(f"--{name} has {len(text)} characters; a decision keeps at most {LONGEST_TEXT}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DecisionRefused(f"--{name} is not text in UTF-8: {text!r}") from error


def _check_held(config: Config, state: ControlState, first: int) -> None:
    """Refuse ticks before one that is held: they are folded."""
    for gate in state.gates.values():
        if gate.log == config.examples_topic and gate.holding is not None and first < gate.holding.tick:
            held = gate.holding.tick
            raise DecisionRefused(
                f"{gate.model} has folded all up to tick {held}, which it holds: a decision from tick {first} on is "
                "too late for it",
                action=f"Decide from tick {held} on; or go back to before tick {first} with `stream-learner rewind`.",
            )


def _check_dates(config: Config, last: int, now_ms: int) -> None:
    """Refuse ticks of the far future: most likely they are milliseconds or seconds, not ticks."""
    tick_ms = config.join.tick_ms
    if last * tick_ms > now_ms + DAY_MS:
        raise DecisionRefused(
            f"tick {last} is more than a day ahead: now it is tick {now_ms // tick_ms}",
            action=f"Give ticks, of {tick_ms} ms each since 1970; decide about later ones when they come.",
        )


def _versions(config: Config, state: ControlState) -> Iterator[tuple[str, int]]:
    """Every model known to be learned from this log, with its published version, -1 for none.

    What was published before a model was taken back, and nothing since, does not count: it is learned again.
    """
    topic = config.examples_topic
    others = sorted(model for model, gate in state.gates.items() if gate.log == topic and model != config.model)
    yield config.model, _counting(state, config.model, _published(config, config.model))
    for model in others:
        try:
            yield model, _counting(state, model, _published(config, model))
        except NotFound:
            continue  # it is gone


def _counting(state: ControlState, model: str, version: int) -> int:
    """The last tick that a model has folded for good, by the version it has published and by its last rewind."""
    found = state.rewinds.get(model)
    last = None if found is None else found.history[-1]
    return version if last is None or version > last.from_tick else min(version, last.to_tick)


def _published(config: Config, model: str) -> int:
    """The latest version of a model in its snapshot topic, -1 if there is none. Raises NotFound."""
    settings = KafkaSettings(config.kafka_options())
    topic = config.snapshots_topic if model == config.model else f"{model}.snapshots"
    admin = Admin(settings)
    try:
        shards = admin.require([topic])[topic].partitions
    except TopicMissing as error:
        raise NotFound(f"there is no model {model}: {error.message}", action="Check the name.") from error
    return read_last_publication(settings, admin.offsets, topic, shards).latest


def _hint(config: Config, state: ControlState, decision: Decision) -> str:
    """The effect of the decision."""
    held = [
        (gate.model, gate.holding.tick)
        for gate in state.gates.values()
        if gate.log == config.examples_topic and gate.holding is not None
    ]
    outside = [f"{model} at tick {tick}" for model, tick in held if not decision.covers(tick)]
    if outside:
        return f"it is not about what is held: {', '.join(outside)}"
    if not held:
        return (
            "no learner holds: one that has folded its first tick meanwhile leaves it out, and says so; "
            "leader and standbys are sure to decide alike only about ticks that are not joined yet"
        )
    return f"held by {', '.join(model for model, _ in held)}, which goes on within a second once its learner runs"


def _decided(config: Config, decision: Decision, hint: str) -> Fields:
    return {
        "decision": decision.id,
        "what": decision.what,
        "log": config.examples_topic,
        "from_tick": decision.from_tick,
        "to_tick": decision.to_tick,
        "from": _tick_time(config, decision.from_tick),
        "until": _tick_time(config, decision.to_tick + 1),
        "who": decision.who,
        "why": decision.why,
        "hint": hint,
    }


def _holding(config: Config, found: GateState) -> Fields:
    held = found.holding
    assert held is not None
    return {
        "tick": held.tick,
        "since_tick": held.since_tick,
        "since": _tick_time(config, held.since_tick),
        "bound": held.bound,
        "slice": held.slice or None,
        "found": held.found,
        "expected": held.expected,
        "low": held.low,
        "high": held.high,
        "message": found.note,
    }


def _state(found: GateState | None, version: int) -> str:
    """What the gates do with the model. Nothing that holds, or may, is called open."""
    if found is None:
        return "not published" if version < 0 else "open"
    if found.holding is not None:
        return "held"
    return "held before its publication" if found.publication is not None else "open"


def _publication(config: Config, found: GateState | None, version: int) -> Fields:
    """Whether the model is held before its publication, since when, and why."""
    held = None if found is None else found.publication
    since_tick = None if held is None or held.tick < 0 else held.tick
    return {
        "publication": "held" if held is not None else "not published" if found is None and version < 0 else "open",
        "publication_since_tick": since_tick,
        "publication_since": None if since_tick is None else _tick_time(config, since_tick),
        "publication_bound": None if held is None else held.bound,
        "publication_reason": None if held is None else held.reason,
    }


def _row(config: Config, decision: Decision, late: frozenset[str], counting: Decisions) -> Fields:
    instead = counting.instead_of(decision)
    return {
        "decision": decision.id,
        "what": decision.what,
        "from_tick": decision.from_tick,
        "to_tick": decision.to_tick,
        "from": _tick_time(config, decision.from_tick),
        "who": decision.who,
        "when": moment_of(decision.when_ms),
        "why": decision.why,
        "late": decision.id in late,
        "covered_by": None if instead is None else instead.id,
    }


def _tick_time(config: Config, tick: int) -> str:
    """The time at which a tick begins."""
    return moment_of(tick * config.join.tick_ms)
