"""Two models are compared by their progressive loss only where that is the same loss."""

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
