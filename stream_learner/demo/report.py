"""The report of a demo: one object for a program, one page for a person. Nothing is rounded until it adds up."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from stream_learner.core.log.balance import PRINTED, balance_lines
from stream_learner.core.log.marks import CLICK_OUTCOMES, IMPRESSION_OUTCOMES
from stream_learner.demo.scoreboard import Score
from stream_learner.demo.system import DemoResult, DemoStatus
from stream_learner.wording import count_of


@dataclass(frozen=True, slots=True)
class DemoLocation:
    """The model and the cluster of a demo. `bootstrap` None is the embedded broker; `config_file` is kept only on a
    cluster."""

    model: str
    bootstrap: str | None
    config_file: str


def balance(status: DemoStatus) -> dict[str, dict[str, int]]:
    """The outcome of every record sent: for both inputs `read` is the sum of all other counts.

    Records that no mark counts yet wait in the topics; they are in `read` and in `waiting`.
    """
    impressions, clicks = status.counts.impressions, status.counts.clicks
    return {
        "impressions": {
            "read": status.sent_impressions,
            **{PRINTED.get(field, field): getattr(impressions, field) for field in IMPRESSION_OUTCOMES},
            "waiting": status.sent_impressions - impressions.read,
        },
        "clicks": {
            "read": status.sent_clicks,
            **{PRINTED.get(field, field): getattr(clicks, field) for field in CLICK_OUTCOMES},
            "waiting": status.sent_clicks - clicks.read + clicks.waiting,
        },
    }


def problems(result: DemoResult) -> list[str]:
    """Everything that does not add up, a line each; empty after a correct demo."""
    found = list(result.problems)
    for side, counts in balance(result.status).items():
        outcomes = sum(counts.values()) - counts["read"]
        if outcomes != counts["read"] or counts["waiting"] < 0:
            found.append(f"{side} that were read: {counts['read']}, accounted for: {outcomes}, {counts}")
    return found


def as_object(result: DemoResult, location: DemoLocation) -> dict[str, Any]:
    """The object that `--json` prints; null for figures of nothing."""
    status, score = result.status, result.status.total
    p50_ms, p99_ms = status.freshness_ms or (None, None)
    return {
        **balance(status),
        "model": {
            "name": location.model,
            "version": status.version,
            "features": status.features,
            "nonzero": status.nonzero,
            "digest": result.digest,
        },
        "metrics": {
            "log_loss": score.log_loss,
            "best_log_loss": score.best_log_loss,
            "normalized_entropy": score.normalized_entropy,
            "auc": score.auc,
            "calibration": score.calibration,
        },
        "freshness_ms": {"p50": p50_ms, "p99": p99_ms},
        "seconds": round(status.seconds, 3),
    }


def as_text(result: DemoResult, location: DemoLocation) -> str:
    """The summary: how well the model learned, the balance, and what to do next."""
    wrong = problems(result)
    verdict = [f"NOT IN ORDER: {line}" for line in wrong] or [
        "Every record is accounted for, from the training log alone."
    ]
    lines = [
        *_model_lines(result, location),
        "",
        "The balance",
        *balance_lines(balance(result.status)),
        *(f"  {line}" for line in verdict),
        "",
        "What to do next",
        *(f"  {line}" for line in _next_lines(location)),
    ]
    return "\n".join(lines)


def number(value: float | None, form: str = ".4f") -> str:
    """A figure as text; a dash without one."""
    return "–" if value is None or math.isnan(value) else format(value, form)


def over_best(score: Score) -> str:
    """The distance of the log-loss from the best possible, as "+2.1 %"."""
    return "–" if score.excess is None else f"{100 * score.excess:+.1f} %"


def _model_lines(result: DemoResult, location: DemoLocation) -> Iterator[str]:
    status, total, recent = result.status, result.status.total, result.status.recent
    yield (
        f"stream-learner demo: {status.seconds:.1f} s, {count_of(status.sent_impressions, 'impression')}, "
        f"{count_of(status.sent_clicks, 'click')}, {count_of(status.learned, 'example')} learned"
    )
    yield ""
    yield f"Model {location.model}"
    if total.log_loss is None:
        yield "  nothing learned: the first examples come one window after the first impressions"
        return
    yield (
        f"  log-loss            {number(total.log_loss)}   best possible {number(total.best_log_loss)}: "
        f"{over_best(total)}; the last {count_of(recent.examples, 'example')} {over_best(recent)}"
    )
    yield (
        f"  normalized entropy  {number(total.normalized_entropy)}   "
        f"best possible {number(total.best_normalized_entropy)}"
    )
    yield f"  calibration         {number(total.calibration)}   predicted over observed clicks; 1 is best"
    yield f"  AUC                 {number(total.auc)}"
    if status.freshness_ms is not None:
        p50_ms, p99_ms = status.freshness_ms
        yield f"  freshness           {p50_ms} ms, p99 {p99_ms} ms, from a window's close to the scorer"
    yield (
        f"  version             {status.version}, {count_of(status.features, 'feature')}, {status.nonzero:,} "
        f"with a weight, digest {result.digest}"
    )


def _next_lines(location: DemoLocation) -> Iterator[str]:
    if location.bootstrap is None:
        yield "the same on your Kafka:   stream-learner demo --bootstrap-servers HOST:PORT"
        yield "your own events:          name your topics in configs/minimal.yaml, then"
        yield "                          stream-learner topics ensure -c configs/minimal.yaml"
        yield "                          stream-learner run -c configs/minimal.yaml"
        return
    yield f"look into the model:      stream-learner inspect weights -c {location.config_file}"
    yield f"predict:                  stream-learner score -c {location.config_file} EVENTS.jsonl"
    yield f"delete what it made:      {delete_command(location)}"


def delete_command(location: DemoLocation) -> str:
    """The command that deletes a demo's topics from a cluster."""
    pattern = location.model.replace(".", "\\.") + "\\..*"
    return f"kafka-topics.sh --bootstrap-server {location.bootstrap} --delete --topic '{pattern}'"
