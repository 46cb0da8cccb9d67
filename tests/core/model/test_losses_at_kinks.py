"""Losses where they have a kink: there only the table of `core/model/losses.py` says what the slope is."""

from __future__ import annotations

import pytest

from stream_learner.core.model import losses
from stream_learner.core.model.losses import HINGE, QUANTILE
from tests.core.model.optimizers.optimizer_help import OPTIONS, oracle_loss

TAU = OPTIONS["quantile"]["tau"]


@pytest.mark.parametrize("y", [-1.0, 1.0])
def test_an_example_exactly_on_the_margin_is_right(y: float) -> None:
    """Hinge: the slope is -y below the margin, and 0 from it on."""
    assert losses.slope(HINGE, 0.0, y, y) == oracle_loss("hinge").slope(y, y) == 0.0
    assert losses.slope(HINGE, 0.0, y * (1.0 - 2.0**-53), y) == -y


@pytest.mark.parametrize("y", [-2.5, 0.0, 4.0])
def test_a_quantile_that_is_met_exactly_stays(y: float) -> None:
    """Quantile: the slope is 0 at the label, -tau below it and 1 - tau above it."""
    assert losses.slope(QUANTILE, TAU, y, y) == oracle_loss("quantile").slope(y, y) == 0.0
    assert losses.slope(QUANTILE, TAU, y - 1.0, y) == -TAU
    assert losses.slope(QUANTILE, TAU, y + 1.0, y) == 1.0 - TAU
