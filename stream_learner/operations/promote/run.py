"""`promote` and `rollback`: check a model, and point an alias at it.

No alias is pointed at a model that failed a check, unless that is forced; the record then says so.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from stream_learner.adapters.kafka import KafkaSettings
from stream_learner.config import Config
from stream_learner.core.control.records import ROLLBACK, Alias, Change
from stream_learner.errors import NotFound, PromotionRefused
from stream_learner.operations.promote.checks import Outcome, PromotionChecks, PromotionRequest
from stream_learner.roles.common.lifecycle import wall_clock_ms
from stream_learner.roles.control.topic import ControlTopic


def promote(
    config: Config,
    request: PromotionRequest,
    *,
    max_lag_ms: int,
    tolerance: float,
    clock_ms: Callable[[], int] = wall_clock_ms,
) -> Outcome:
    """Check a model, and point the alias at it if every check has passed or it is forced.

    max_lag_ms: how far its version may lie behind the clock, or behind the version of the model it replaces.
    tolerance: how much larger its log-loss may be, as a share. Raises TopicMissing without a control topic,
    DamagedLog or NewerFormat if the alias's record cannot be used.
    """
    control, alias = _begin(config, request.alias)
    outcome = Outcome(request, alias.model if alias is not None else None)
    checks = PromotionChecks(config, control, clock_ms)
    candidate = checks.complete(outcome, request.model)
    checks.publishing(outcome)
    checks.pinned(outcome)
    current = checks.described(outcome.before) if outcome.before not in (None, request.model) else None
    if candidate is not None:
        checks.fresh(outcome, candidate, current, max_lag_ms)
        if current is not None:
            checks.same_inputs(outcome, candidate, current)
        checks.not_worse(outcome, candidate, current, tolerance)
    return _finish(control, alias, outcome, clock_ms)


def rollback(config: Config, request: PromotionRequest, *, clock_ms: Callable[[], int] = wall_clock_ms) -> Outcome:
    """Point an alias back at the model before, or at `request.model` if that is not empty. The model need only be
    complete.

    Raises NotFound if there is no alias or no model before is known, and what `promote` raises.
    """
    control, alias = _begin(config, request.alias)
    if alias is None or alias.model is None:
        raise NotFound(
            f"there is no alias {request.alias}", action="`stream-learner alias list` shows those there are."
        )
    model = request.model or alias.previous
    if model is None:
        raise NotFound(
            f"alias {alias.name} has pointed at no model before {alias.model}", action="Give the model with --to."
        )
    request = replace(request, model=model, what=ROLLBACK)
    outcome = Outcome(request, alias.model)
    checks = PromotionChecks(config, control, clock_ms)
    checks.complete(outcome, model)
    checks.pinned(outcome, passed=None)
    return _finish(control, alias, outcome, clock_ms)


def refusal(outcome: Outcome) -> PromotionRefused | None:
    """The error to end with if checks failed and were not forced; it names them."""
    if not outcome.failed or outcome.request.forced:
        return None
    reasons = "; ".join(f"{check.name}: {check.detail}" for check in outcome.failed)
    return PromotionRefused(f"alias {outcome.request.alias} was not pointed at {outcome.request.model}: {reasons}")


def _begin(config: Config, name: str) -> tuple[ControlTopic, Alias | None]:
    control = ControlTopic(KafkaSettings(config.kafka_options()), config.control_topic)
    control.check(b"alias/" + name.encode())
    return control, control.state.aliases.get(name)


def _finish(control: ControlTopic, alias: Alias | None, outcome: Outcome, clock_ms: Callable[[], int]) -> Outcome:
    """Write the change, if it may be made."""
    request = outcome.request
    if refusal(outcome) is not None:
        return outcome
    if outcome.before == request.model:
        outcome.done = True
        outcome.notes.append(f"{request.alias} points at {request.model} already: nothing was written")
        return outcome
    if request.dry_run:
        outcome.notes.append("nothing was written: this was a dry run")
        return outcome
    change = Change(
        id=secrets.token_hex(8),
        what=request.what,
        who=request.who,
        when_ms=clock_ms(),
        from_model=outcome.before,
        to_model=request.model,
        forced=request.forced,
        note=request.note,
    )
    written = control.write(alias.changed(change) if alias is not None else Alias(request.alias, (change,)))
    for other in written.between:
        assert isinstance(other, Alias)  # records of one key are of one kind
        outcome.notes.append(
            f"{other.last.who} pointed {request.alias} at {other.model} in the meantime; the checks knew nothing of it"
        )
    outcome.done = isinstance(written.now, Alias) and written.now.last.id == change.id
    if not outcome.done and isinstance(written.now, Alias):
        outcome.notes.append(f"{written.now.last.who} has pointed {request.alias} at {written.now.model} since")
    return outcome
