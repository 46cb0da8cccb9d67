"""A model is fresh where it lies little behind the clock, or little behind the model that it replaces."""

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
