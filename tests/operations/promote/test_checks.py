"""Models are compared by the same loss only; a model is fresh by the clock, or beside the one it replaces."""

from __future__ import annotations

from typing import Any

import pytest

from stream_learner.config import Config
from stream_learner.operations.promote.checks import Outcome, PromotionChecks, PromotionRequest

CONFIG = Config.model_validate(
    {
        "model": "m",
        "kafka": {"bootstrap.servers": "nowhere:1"},
        "input": {"impressions": {"topic": "i"}, "clicks": {"topic": "c"}},
    }
)
NOW_MS, MOST_MS = 10_000_000, 60_000
SLICES = [
    {"start_ms": start, "importance": 10.0, "examples": 10, "average_loss": mean}
    for start, mean in ((0, 0.2), (1, 0.3), (2, 0.0))
]


def judged(candidate: dict[str, Any] | None, current: dict[str, Any] | None) -> tuple[bool | None, str]:
    """The check of two models with equal figures, that learn by these losses; None: as logistic is written."""
    outcome = Outcome(PromotionRequest("a", "new", "ann"), "old")
    models = [{"slices": SLICES, **({"loss": loss} if loss else {})} for loss in (candidate, current)]
    PromotionChecks(CONFIG, None, lambda: 0).not_worse(outcome, *models, 0.01)  # type: ignore[arg-type]
    (check,) = outcome.checks
    return check.passed, check.detail


@pytest.mark.parametrize(
    ("loss", "shown"),
    [(None, "log-loss 0.25000"), ({"name": "hinge"}, "hinge 0.25000"), ({"name": "quantile", "tau": 0.9}, "tau=0.9")],
)
def test_equal_losses_compare_under_their_name(loss: dict[str, Any] | None, shown: str) -> None:
    """A mean of hinge loss is not called a log-loss."""
    passed, detail = judged(loss, loss)
    assert passed and shown in detail


@pytest.mark.parametrize(
    ("candidate", "current"),
    [
        (None, {"name": "squared"}),
        ({"name": "quantile", "tau": 0.1}, {"name": "quantile", "tau": 0.9}),
        ({"name": "hellinger", "delta": 1e-9}, {"name": "hellinger", "delta": 0.1}),
    ],
)
def test_other_losses_or_options_do_not_compare(candidate: dict[str, Any] | None, current: dict[str, Any]) -> None:
    """Another quantile is another loss: the smaller mean says nothing."""
    passed, detail = judged(candidate, current)
    assert passed is False and "do not compare" in detail


def model(name: str, behind_ms: int) -> dict[str, Any]:
    """A model whose version's tick ended so long ago."""
    return {"name": name, "tick_ms": 1000, "version": (NOW_MS - behind_ms) // 1000 - 1}


@pytest.mark.parametrize(
    ("behind_ms", "current_behind_ms", "passed"),
    [
        (60_000, None, True),
        (61_000, None, False),
        (60_000, 0, True),
        (3_600_000, 3_600_000, True),
        (3_660_000, 3_600_000, True),
        (3_661_000, 3_600_000, False),
        (61_000, 0, False),
        (3_600_000, 7_200_000, True),
    ],
)
def test_either_measure_is_enough(behind_ms: int, current_behind_ms: int | None, passed: bool) -> None:
    """Traffic that has paused makes both old; then the new model may still take the old one's place."""
    outcome = Outcome(PromotionRequest("a", "new", "ann"), "old")
    current = None if current_behind_ms is None else model("old", current_behind_ms)
    checks = PromotionChecks(CONFIG, None, lambda: NOW_MS)  # type: ignore[arg-type]
    checks.fresh(outcome, model("new", behind_ms), current, MOST_MS)
    (check,) = outcome.checks
    assert (check.name, check.passed) == ("fresh", passed)
    assert ("at most 1m (--max-lag)" in check.detail) == (not passed)
    assert ("behind old" in check.detail) == (current is not None)
