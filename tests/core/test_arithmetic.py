"""exp, log1p and what is made of them: the documented bits, and close to the mathematics."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from stream_learner.core import arithmetic, losses
from tests.core import fold_oracle

finite = st.floats(allow_nan=False, allow_infinity=False)
unit = st.floats(0.0, 1.0)
TOLERANCE = 1e-15


@given(st.one_of(finite, st.floats(-720.0, 720.0)))
def test_exp_has_the_documented_bits(x: float) -> None:
    """The kernel and plain floats agree to the bit over the whole range."""
    assert arithmetic.exp(x) == fold_oracle.exp(x)


@given(st.floats(-707.0, 707.0))
def test_exp_is_accurate(x: float) -> None:
    """A relative error of at most 1e-15."""
    assert arithmetic.exp(x) == pytest.approx(math.exp(x), rel=TOLERANCE, abs=0.0)


def test_exp_is_clamped_where_a_double_ends() -> None:
    """Beyond +-708 nothing overflows and nothing is subnormal; infinity is clamped too, NaN stays."""
    assert arithmetic.exp(1e308) == arithmetic.exp(math.inf) == arithmetic.exp(708.0) < math.inf
    assert arithmetic.exp(-math.inf) == arithmetic.exp(-708.0) > 2.3e-308
    assert math.isnan(arithmetic.exp(math.nan))


@given(st.one_of(unit, st.floats(0.0, 1e4), st.floats(0.0, allow_infinity=False)))
def test_log1p_has_the_documented_bits_and_is_accurate(u: float) -> None:
    """The kernel and plain floats agree to the bit, and with the mathematics to 1e-15."""
    assert arithmetic.log1p(u) == fold_oracle.log1p(u)
    assert arithmetic.log1p(u) == pytest.approx(math.log1p(u), rel=TOLERANCE, abs=1e-300)


@given(finite)
def test_sigmoid_and_softplus_have_the_documented_bits(x: float) -> None:
    """The kernels and plain floats agree to the bit."""
    assert arithmetic.sigmoid(x) == fold_oracle.sigmoid(x)
    assert arithmetic.softplus(x) == fold_oracle.softplus(x)


@given(st.floats(-30.0, 30.0))
def test_softplus_is_minus_the_log_of_a_probability(x: float) -> None:
    """softplus(-x) = -log sigmoid(x)."""
    assert arithmetic.softplus(-x) == pytest.approx(-math.log(arithmetic.sigmoid(x)), rel=1e-12, abs=1e-13)


@given(st.floats(-700.0, 700.0), unit)
def test_the_logistic_loss_is_the_documented_sum(p: float, y: float) -> None:
    """Shared parts are computed once, without a change of bits; the slope is q - y."""
    assert losses.loss_value(losses.LOGISTIC, p, y) == fold_oracle.log_loss(p, y)
    assert losses.slope(losses.LOGISTIC, p, y) == fold_oracle.sigmoid(p) - y


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_the_squared_loss_has_vws_factor(p: float, y: float) -> None:
    """(p - y)^2 with slope 2 (p - y), and a margin clipped to the labels seen."""
    assert losses.loss_value(losses.SQUARED, p, y) == (p - y) * (p - y)
    assert losses.slope(losses.SQUARED, p, y) == 2.0 * (p - y)
    assert losses.margin_read(losses.SQUARED, p, min(0.0, y), max(0.0, y)) == min(max(p, min(0.0, y)), max(0.0, y))


@given(st.lists(st.floats(-1e10, 1e10), min_size=8, max_size=8))
def test_lanes_are_summed_by_the_documented_tree(lanes: list[float]) -> None:
    """The tree of eight lanes is that of the oracle's dot product with ones."""
    assert arithmetic.sum_lanes(*lanes) == fold_oracle.dot(lanes, [1.0] * 8)
