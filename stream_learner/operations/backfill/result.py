"""The result of a backfill: the balance, from the training log alone, and the models as they were learned.

The balance must never use a count of a role: then it would not show what a role has lost.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from stream_learner.adapters.kafka import Admin, KafkaSettings
from stream_learner.core.log.balance import Balance, balance_lines
from stream_learner.errors import BrokenInvariant
from stream_learner.roles.common.log_reader import accepted_ticks
from stream_learner.roles.learner.model import LearnedModel
from stream_learner.wording import count_of

METRICS = ("log_loss", "normalized_entropy", "auc", "calibration")

PASSED_OVER: Final = "passed_over"
"""The part of a balance that tells of damaged records which were passed over."""
Counts = dict[str, dict[str, int]]


@dataclass(frozen=True)
class Learned:
    """A model at the end: what it is, and its progressive metrics."""

    model: dict[str, Any]
    metrics: dict[str, float | None]
    examples: int


@dataclass(frozen=True)
class Result:
    """The balance of all ticks, the models (the first is the one asked for), and the seconds it took."""

    balance: Counts
    models: Sequence[Learned]
    seconds: float


def balance_of(settings: KafkaSettings, admin: Admin, log_topic: str, until_tick: int) -> Counts:
    """The counts of all accepted marks up to a tick, in `Balance.to_dict`'s form.

    A mark of empty ticks that goes beyond it is left out. `passed_over` is there if damaged records were, with the
    examples that they held. Raises BrokenInvariant if the counts do not add up.
    """
    balance, lost = Balance(), 0
    for partition in range(admin.require([log_topic])[log_topic].partitions):
        for tick in accepted_ticks(settings, admin.offsets, log_topic, partition):
            if tick.mark.last_tick > until_tick:
                break
            balance.add(tick.mark)
            lost += tick.lost_examples
    if balance.problems:
        raise BrokenInvariant(f"{log_topic} does not add up: {'; '.join(balance.problems[:10])}")
    return {**balance.to_dict(), **({PASSED_OVER: {"examples": lost}} if lost else {})}


def learned_by(fold: LearnedModel) -> Learned:
    """A model as it is now."""
    learner, summary = fold.learner, fold.learner.progress.summary()
    model = {
        "name": fold.config.model,
        "version": fold.tick,
        "features": learner.table.count,
        "nonzero": learner.count_nonzero(),
        "digest": f"{learner.digest():016x}",
    }
    read = learner.examples + learner.refused + fold.gate.left_out
    return Learned(model, {name: summary[name] for name in METRICS}, read)


def check(result: Result, log_topic: str) -> None:
    """Raise BrokenInvariant if a model was folded from more or fewer examples than the log holds."""
    logged = result.balance["impressions"]["examples"] - result.balance.get(PASSED_OVER, {}).get("examples", 0)
    for learned in result.models:
        if learned.examples != logged:
            raise BrokenInvariant(
                f"{log_topic} holds {count_of(logged, 'example')} up to tick {learned.model['version']}, "
                f"{learned.examples} were folded into {learned.model['name']}"
            )


def as_object(result: Result) -> dict[str, Any]:
    """The object that `--json` prints; a metric is null if there was nothing to measure."""
    models = [{"model": learned.model, "metrics": learned.metrics} for learned in result.models]
    several = {"models": models} if len(models) > 1 else {}
    return {**result.balance, **models[0], **several, "seconds": round(result.seconds, 3)}


def as_text(result: Result) -> str:
    """The summary: the models, the balance."""
    lines = [line for learned in result.models for line in _model_lines(learned)]
    sums = {side: result.balance[side] for side in ("impressions", "clicks")}
    lost = result.balance.get(PASSED_OVER, {}).get("examples", 0)
    passed_over = [f"  passed over, in damaged records: {count_of(lost, 'example')}"] if lost else []
    return "\n".join([*lines, "The balance", *balance_lines(sums), *passed_over, f"took {result.seconds:.1f} s"])


def _model_lines(learned: Learned) -> Iterator[str]:
    model, metrics = learned.model, learned.metrics
    yield f"Model {model['name']}"
    yield f"  version             {model['version']}"
    yield f"  digest              {model['digest']}"
    yield f"  features            {model['features']:,}, {model['nonzero']:,} with a weight"
    yield f"  learned from        {count_of(learned.examples, 'example')}"
    for name, value in metrics.items():
        yield f"  {name.replace('_', '-') if name == 'log_loss' else name.replace('_', ' '):<20}{_figure(value)}"
    yield ""


def _figure(value: float | None) -> str:
    return "–" if value is None else f"{value:.4f}"
