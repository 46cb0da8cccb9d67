"""Losses: value, slope, labels, link, classes, told by the oracle; options and names."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.model import losses
from stream_learner.core.model.losses import DEFAULT_OPTIONS, HINGE, LOSSES, QUANTILE, Loss, make_loss
from tests.core.model.optimizers.optimizer_help import LOSS_NAMES, OPTIONS, in_domain, oracle_loss
from tests.oracles.optimizers.problems import off_kinks

margins = st.floats(-20.0, 20.0)
LABELS = {
    "logistic": (0.0, 1.0),
    "hinge": (-1.0, 1.0),
    "exponential": (-1.0, 1.0),
    "logarithmic": (0.0, 1.0),
    "hellinger": (0.0, 1.0),
    "poisson": (0.0, 1.0, 2.5, 7.0),
}
TAU = OPTIONS["quantile"]["tau"]
NUMBERS = (-2.5, -1.0, 0.0, 0.3, 4.0)


def ours(name: str) -> Loss:
    """Our loss with the options the oracle has here."""
    return make_loss(name, **OPTIONS.get(name, {}))


@pytest.mark.parametrize("name", LOSS_NAMES)
@given(p=margins)
@settings(max_examples=60, deadline=None)
def test_value_and_slope_are_the_oracles(name: str, p: float) -> None:
    """For every label of the domain, at the margin as it is read, which for squared is clipped to the labels."""
    loss = ours(name)
    for y in LABELS.get(name, NUMBERS):
        theirs = oracle_loss(name)
        theirs.check(y)
        read = losses.margin_read(loss.code, loss.option, p, min(0.0, y), max(0.0, y))
        assert read == theirs.read(p)
        value = losses.loss_value(loss.code, loss.option, read, y)
        assert value == pytest.approx(theirs.value(read, y), rel=1e-13, abs=1e-15)
        assert losses.slope(loss.code, loss.option, read, y) == pytest.approx(
            theirs.slope(read, y), rel=1e-13, abs=1e-15
        )
        assert losses.prediction(loss.code, read) == pytest.approx(theirs.mean(read), rel=1e-13)


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_the_slope_is_the_derivative_of_the_value(name: str) -> None:
    """By central differences, away from kinks, and from the bounds of a probability."""
    loss, theirs, step = ours(name), oracle_loss(name), 1e-6
    for p in (0.1, 0.35, 0.5001, 0.8):
        for y in LABELS.get(name, NUMBERS):
            if not off_kinks(theirs, p, y):
                continue
            low, high = (losses.loss_value(loss.code, loss.option, p + sign * step, y) for sign in (-1, 1))
            slope = losses.slope(loss.code, loss.option, p, y)
            assert slope == pytest.approx((high - low) / (2.0 * step), rel=1e-7, abs=1e-8)


def test_a_soft_label_weighs_both_sides_of_the_logistic_loss() -> None:
    """l(p, y) = y l(p, 1) + (1 - y) l(p, 0), and so its slope."""
    for function in (losses.loss_value, losses.slope):
        mixed = 0.3 * function(0, 0.0, 0.7, 1.0) + 0.7 * function(0, 0.0, 0.7, 0.0)
        assert function(0, 0.0, 0.7, 0.3) == pytest.approx(mixed, rel=1e-14)


READ = {
    "logistic": {-1.0: 0.0, 0.0: 0.0, 0.25: 0.25, 1.0: 1.0, -0.5: None, 1.5: None, 2.0: None},
    "hinge": {-1.0: -1.0, 0.0: -1.0, 1.0: 1.0, 0.5: None, 2.0: None},
    "logarithmic": {-1.0: 0.0, 0.0: 0.0, 1.0: 1.0, 0.5: None, 2.0: None},
    "poisson": {0.0: 0.0, 2.5: 2.5, -1.0: None, -1e-300: None},
    "squared": {-1.0: -1.0, 0.0: 0.0, 1e300: 1e300},
}
READ |= {"exponential": READ["hinge"], "hellinger": READ["logarithmic"]}
READ |= {"half_squared": READ["squared"], "quantile": READ["squared"], "linear": READ["squared"]}


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_labels_are_read_in_the_notation_of_the_loss(name: str) -> None:
    """-1 and 0 are the same negative; what is no label is NaN, and what is not finite is none."""
    for label, read in READ[name].items():
        got = losses.label_read(LOSSES[name], label)
        assert math.isnan(got) if read is None else got == read
    for label in (math.nan, math.inf, -math.inf):
        assert math.isnan(losses.label_read(LOSSES[name], label))


@pytest.mark.parametrize("name", LOSS_NAMES)
@given(p=st.one_of(margins, st.just(0.0), st.just(0.5)))
@settings(max_examples=30, deadline=None)
def test_mistakes_and_classes_are_the_oracles(name: str, p: float) -> None:
    """A mistake is a margin on the wrong side or on neither; losses over numbers know no classes."""
    loss, theirs = ours(name), oracle_loss(name)
    for label in (0.0, 1.0):
        y = in_domain(name, label)
        margin = theirs.margin(p, y)
        assert losses.mistake(loss.code, p, y) == (margin is not None and margin <= 0.0)
        positive = losses.class_of(loss.code, y)
        assert math.isnan(positive) if margin is None else positive == label


@pytest.mark.parametrize("name", ["logarithmic", "hellinger"])
def test_a_margin_that_is_a_probability_predicts_one_even_unread(name: str) -> None:
    """A scorer has the sum of its weights only, which updates can push out of [0, 1]."""
    code = losses.LOSSES[name]
    assert [losses.prediction(code, p) for p in (-0.25, 0.0, 0.4, 1.0, 1.5)] == [0.0, 0.0, 0.4, 1.0, 1.0]


def test_a_soft_label_is_partly_a_positive() -> None:
    """Figures that count positives count its share."""
    assert losses.class_of(losses.LOGISTIC, 0.25) == 0.25


@pytest.mark.parametrize("name", LOSS_NAMES)
def test_nan_stays_nan(name: str) -> None:
    """A margin that is not a number is neither clipped nor learned from."""
    loss = ours(name)
    read = losses.margin_read(loss.code, loss.option, math.nan, 0.0, 1.0)
    assert math.isnan(read)


def test_a_loss_survives_its_dictionary() -> None:
    """`to_dict` and `make_loss` are inverse; the text names the option where there is one."""
    for name in LOSS_NAMES:
        assert make_loss(**ours(name).to_dict()) == ours(name)
    assert str(make_loss("quantile", tau=0.9)) == "quantile(tau=0.9)"
    assert str(make_loss("hinge")) == "hinge"
    assert {name: make_loss(name).option for name in DEFAULT_OPTIONS} == DEFAULT_OPTIONS


@pytest.mark.parametrize(
    ("name", "options", "said"),
    [
        ("hing", {}, "did you mean 'hinge'"),
        ("0/1", {}, "known: logistic"),
        ("quantile", {"delta": 0.1}, "its option is 'tau'"),
        ("hinge", {"tau": 0.5}, "it has none"),
        ("quantile", {"tau": 1.0}, "between 0 and 1"),
        ("quantile", {"tau": math.nan}, "between 0 and 1"),
        ("hellinger", {"delta": 0.5}, "between 0 and 0.5"),
    ],
)
def test_what_is_no_loss_is_refused(name: str, options: dict[str, float], said: str) -> None:
    """With the nearest name, or the range."""
    with pytest.raises(ValueError, match=said):
        make_loss(name, **options)


def test_nothing_overflows_at_the_ends() -> None:
    """Margins far beyond what a model has: values and slopes are finite."""
    for name in ("logistic", "exponential", "poisson", "hinge"):
        loss = ours(name)
        for p in (-1e6, 1e6):
            for function in (losses.loss_value, losses.slope):
                assert np.isfinite(function(loss.code, loss.option, p, 1.0))


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
