"""exp, log1p and what is made of them: the documented bits, and close to the mathematics."""

from __future__ import annotations

import math
from decimal import Decimal, getcontext

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stream_learner.core.machine import arithmetic
from stream_learner.core.model import losses
from tests.oracles import arithmetic as oracle

finite = st.floats(allow_nan=False, allow_infinity=False)
unit = st.floats(0.0, 1.0)
TOLERANCE = 1e-15


@given(st.one_of(finite, st.floats(-720.0, 720.0)))
def test_exp_has_the_documented_bits(x: float) -> None:
    """The kernel and plain floats agree to the bit over the whole range."""
    assert arithmetic.exp(x) == oracle.exp_documented(x)


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
    assert arithmetic.log1p(u) == oracle.log1p_documented(u)
    assert arithmetic.log1p(u) == pytest.approx(math.log1p(u), rel=TOLERANCE, abs=1e-300)


@given(st.one_of(st.floats(0.0, allow_infinity=False), st.floats(0.5, 2.0), st.floats(0.0, 1e-307)))
def test_log_is_accurate(v: float) -> None:
    """To 1e-15, near 1 and for subnormal numbers too."""
    expected = math.log(v) if v > 0.0 else -math.inf
    assert arithmetic.log(v) == pytest.approx(expected, rel=TOLERANCE, abs=0.0)


def test_log_ends_where_the_mathematics_does() -> None:
    """Below 0 there is no logarithm; infinity and NaN go through."""
    assert math.isnan(arithmetic.log(-1.0)) and math.isnan(arithmetic.log(math.nan))
    assert arithmetic.log(math.inf) == math.inf
    assert arithmetic.log1p(-1.0) == -math.inf and math.isnan(arithmetic.log1p(-1.5))


@given(st.one_of(st.floats(-1.0, 0.0, exclude_min=True), st.floats(-1e-10, 0.0)))
def test_log1p_of_negative_numbers_is_accurate(u: float) -> None:
    """Down to just above -1."""
    assert arithmetic.log1p(u) == pytest.approx(math.log1p(u), rel=TOLERANCE, abs=1e-300)


@given(st.one_of(st.floats(-700.0, 700.0), st.floats(-0.4, 0.4), st.floats(-1e-10, 1e-10)))
def test_expm1_is_accurate(x: float) -> None:
    """To 1e-15, without cancellation near 0."""
    assert arithmetic.expm1(x) == pytest.approx(math.expm1(x), rel=TOLERANCE, abs=0.0)


@given(st.floats(1e-6, 1e6), st.floats(-3.0, 3.0))
def test_power_is_accurate(x: float, y: float) -> None:
    """To 1e-14 at exponents |y log x| up to 41; exactly for a root and for the first power."""
    assert arithmetic.power(x, y) == pytest.approx(x**y, rel=1e-14, abs=0.0)
    assert (arithmetic.power(x, 0.5), arithmetic.power(x, 1.0), arithmetic.power(x, 0.0)) == (math.sqrt(x), x, 1.0)
    assert (arithmetic.power(0.0, 0.3), arithmetic.power(0.0, -0.3)) == (0.0, math.inf)


@example(1e-12, 709.0)
@example(1e-9, 708.5)
@given(st.floats(1e-12, 1e12), st.floats(-800.0, 800.0))
def test_log1p_of_scaled_does_not_overflow(b: float, m: float) -> None:
    """log(1 + b e^m) for a margin m of any size."""
    expected = math.log1p(b * math.exp(m)) if m < 650.0 else math.log(b) + m
    assert arithmetic.log1p_of_scaled(b, m) == pytest.approx(expected, rel=1e-12, abs=1e-290)
    assert arithmetic.log1p_of_scaled(0.0, m) == 0.0
    assert arithmetic.log1p_of_scaled(1e-300, 709.0) == pytest.approx(math.log1p(math.exp(709.0 + math.log(1e-300))))


@given(st.floats(-600.0, 600.0), st.floats(-9.0, 9.0))
def test_the_gain_of_a_margin_solves_its_equation(m: float, exponent: float) -> None:
    """d + e^m (e^d - 1) = b, checked with fifty digits: the root lies within 1e-13 of the answer."""
    getcontext().prec = 50
    b = 10.0**exponent
    d = Decimal(arithmetic.margin_gain(m, b))

    def reached(gain: Decimal) -> Decimal:
        risen = gain.exp() - 1 if gain > Decimal("1e-20") else gain + gain * gain / 2
        return gain + Decimal(m).exp() * risen

    assert reached(d * (1 - Decimal("1e-13"))) <= Decimal(b) <= reached(d * (1 + Decimal("1e-13")))


@given(finite)
def test_sigmoid_and_softplus_have_the_documented_bits(x: float) -> None:
    """The kernels and plain floats agree to the bit."""
    assert arithmetic.sigmoid(x) == oracle.sigmoid(x)
    assert arithmetic.softplus(x) == oracle.softplus(x)


@given(st.floats(-30.0, 30.0))
def test_softplus_is_minus_the_log_of_a_probability(x: float) -> None:
    """softplus(-x) = -log sigmoid(x)."""
    assert arithmetic.softplus(-x) == pytest.approx(-math.log(arithmetic.sigmoid(x)), rel=1e-12, abs=1e-13)


@given(st.floats(-700.0, 700.0), unit)
def test_the_logistic_loss_is_the_documented_sum(p: float, y: float) -> None:
    """Shared parts are computed once, without a change of bits; the slope is q - y."""
    assert losses.loss_value(losses.LOGISTIC, 0.0, p, y) == oracle.log_loss(p, y)
    assert losses.slope(losses.LOGISTIC, 0.0, p, y) == oracle.sigmoid(p) - y


@given(st.floats(-1e6, 1e6), st.floats(-1e6, 1e6))
def test_the_squared_loss_has_vws_factor(p: float, y: float) -> None:
    """(p - y)^2 with slope 2 (p - y), and a margin clipped to the labels seen."""
    assert losses.loss_value(losses.SQUARED, 0.0, p, y) == (p - y) * (p - y)
    assert losses.slope(losses.SQUARED, 0.0, p, y) == 2.0 * (p - y)
    low, high = min(0.0, y), max(0.0, y)
    assert losses.margin_read(losses.SQUARED, 0.0, p, low, high) == min(max(p, low), high)


@given(st.lists(st.floats(-1e10, 1e10), min_size=8, max_size=8))
def test_lanes_are_summed_by_the_documented_tree(lanes: list[float]) -> None:
    """The tree of eight lanes is that of the oracle's dot product with ones."""
    assert arithmetic.sum_lanes(*lanes) == oracle.dot(zip(lanes, [1.0] * 8, strict=True))
