"""The entropic leader: equal to the dense oracle, over a sum that is exact whatever comes and goes."""

from __future__ import annotations

import math
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.machine.memory import address_of
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import exact_sum, make_optimizer
from tests.core.model.example_records import Example, as_record
from tests.core.model.optimizers.optimizer_help import (
    DIMENSION,
    LOSS_NAMES,
    assert_agrees,
    key_of,
    learner_for,
    oracle_for,
    oracle_margin,
    resting_examples,
    weights_of,
)

HYPER = {"strength": 2.0, "dimension": DIMENSION}


def limbs_of(numbers: np.ndarray) -> int:
    """The sum as the integer that it is."""
    return sum(int(limb) << (48 * i) for i, limb in enumerate(numbers[1:].tolist()))


def addend(x: float) -> int:
    """e^x, rounded as the sum has it, in its units."""
    m, k = exact_sum.exp_parts(x)
    scaled = Fraction(m) * Fraction(2) ** (k + exact_sum.UNIT)
    assert scaled.denominator == 1
    return int(scaled)


exponents = st.one_of(st.floats(-2000.0, 2000.0), st.floats(-3.0, 3.0), st.sampled_from([0.0, -2000.0, 2000.0]))


@settings(max_examples=60, deadline=None)
@given(st.lists(exponents, max_size=40), st.integers(0, 2**32))
def test_the_sum_is_the_exact_integer_at_every_step(xs: list[float], seed: int) -> None:
    """Whatever was added and taken away; what is read is right to 1e-15; in the end it is 0 in every limb."""
    rng, numbers, inside = random.Random(seed), np.zeros(exact_sum.SUM_SCALARS), list[float]()
    at, waiting = address_of(numbers), list(xs)
    while waiting or inside:
        if waiting and (not inside or rng.random() < 0.6):
            inside.append(waiting.pop())
            exact_sum.add(at, inside[-1], 1.0)
        else:
            exact_sum.add(at, inside.pop(rng.randrange(len(inside))), -1.0)
        exact = sum(addend(x) for x in inside)
        assert limbs_of(numbers) == exact
        assert all(0.0 <= limb < 2.0**48 for limb in numbers[1:])
        s, k = exact_sum.parts(at)
        assert abs(Fraction(s) * Fraction(2) ** (k + exact_sum.UNIT) - exact) <= Fraction(exact) / 10**15
        assert s == 0.0 if exact == 0 else 2.0**-48 <= s < 1.0
    assert not numbers.any()


def test_a_carry_runs_through_full_limbs_and_a_borrow_back() -> None:
    """From e^0, which is 2^16 in limb 61, up to limb 65."""
    numbers, full = np.zeros(exact_sum.SUM_SCALARS), 2.0**48
    numbers[0], numbers[1 + 61] = 65.0, full - 2.0**16
    numbers[1 + 62 : 1 + 65] = full - 1.0
    before, at = numbers.copy(), address_of(numbers)
    exact_sum.add(at, 0.0, 1.0)
    assert numbers.nonzero()[0].tolist() == [0, 1 + 65]
    assert numbers[[0, 1 + 65]].tolist() == [66.0, 1.0]
    exact_sum.add(at, 0.0, -1.0)
    assert numbers.tolist() == before.tolist()


@settings(max_examples=60, deadline=None)
@given(st.floats(-700.0, 700.0))
def test_an_addend_is_the_exponential(x: float) -> None:
    """To a relative 1e-15, beside the C library's."""
    m, k = exact_sum.exp_parts(x)
    assert math.ldexp(m, k) == pytest.approx(math.exp(x), rel=1e-15)


@pytest.mark.parametrize("loss", LOSS_NAMES)
def test_it_is_the_dense_oracle(loss: str) -> None:
    """Every prediction, and all weights after every few examples; untouched coordinates have their share."""
    assert_agrees("entropic", loss, HYPER)
    assert_agrees("entropic", loss, {**HYPER, "strength": 0.05}, examples=resting_examples(loss, 1, count=150))


def game(learner: Learner, *moves: tuple[int, float]) -> list[float]:
    """Gradients for single coordinates; the weights after them."""
    for coordinate, g in moves:
        learner.fold(as_record([Example(((key_of(coordinate), 1.0),), g)]), 0)
    return [float(w) for w in weights_of(learner)]


def test_weights_start_even_and_always_sum_to_one() -> None:
    """Over the declared dimension, of which the learner has seen three coordinates."""
    learner = learner_for("entropic", "linear", {"strength": 0.5, "dimension": 100})
    assert game(learner) == pytest.approx([0.01] * DIMENSION, rel=1e-14)
    weights = game(learner, (0, -3.0), (1, 4.0), (2, 0.25))
    assert math.fsum(weights[:3]) + 97 * weights[3] == pytest.approx(1.0, rel=1e-14)
    assert weights[0] == pytest.approx(math.exp(6.0) / (97.0 + math.exp(6.0) + math.exp(-8.0) + math.exp(-0.5)))


def test_it_multiplies_and_normalizes() -> None:
    """Exponentiated gradient: w <- w e^(-g / lambda) / Z."""
    learner = learner_for("entropic", "linear", HYPER)
    rng, w = random.Random(3), np.full(DIMENSION, 1.0 / DIMENSION)
    for _ in range(200):
        i, g = rng.randrange(DIMENSION), rng.gauss(0.0, 3.0)
        w[i] *= math.exp(-g / HYPER["strength"])
        w /= w.sum()
        assert game(learner, (i, g)) == pytest.approx(w.tolist(), rel=1e-9)


@pytest.mark.parametrize("far", [300.0, 700.0, 1500.0, 1999.0])
def test_what_came_and_went_leaves_nothing_behind(far: float) -> None:
    """A coordinate that had the whole simplex, e^far times all the rest, and lost it: the shares are what they were."""
    learner = learner_for("entropic", "linear", {"strength": 1.0, "dimension": DIMENSION})
    before = game(learner, (0, 0.5), (1, -1.25))
    scalars = learner.state_scalars()["scalars"][2:]
    assert game(learner, (5, -far))[5] == 1.0
    assert learner.state_scalars()["scalars"][2:] != scalars
    assert game(learner, (5, far)) == before
    assert learner.state_scalars()["scalars"][2:] == scalars


def test_all_coordinates_may_be_far_away_together() -> None:
    """Only differences count, once every coordinate of the dimension was named."""
    for shift in (-1900.0, 900.0, 1900.0):
        learner, near = (learner_for("entropic", "linear", {"strength": 1.0, "dimension": 3}) for _ in range(2))
        moves = [(0, 0.0), (1, 1.5), (2, -7.0)]
        expected = game(near, *moves)[:3]
        assert game(learner, *((i, shift + g) for i, g in moves))[:3] == pytest.approx(expected, rel=1e-12)


def test_a_sum_of_gradients_is_held_at_two_thousand_times_the_strength() -> None:
    """A sum beyond the bound is held at it, and the first gradient of the other sign takes it back."""
    learner = learner_for("entropic", "linear", {"strength": 0.5, "dimension": 2})
    assert game(learner, (0, 1e6), (1, -1e6))[:2] == [0.0, 1.0]
    columns = learner.table.rows_of(np.array([key_of(0), key_of(1)], np.uint64)).columns
    assert columns.tolist() == [[1000.0], [-1000.0]]
    assert learner.refused == 0
    assert game(learner, (0, -1000.0), (1, 1000.0))[:2] == [0.5, 0.5]


def test_more_features_than_the_dimension_are_refused() -> None:
    """The example that brings in one too many changes nothing, and the others go on."""
    learner = learner_for("entropic", "linear", {"strength": 1.0, "dimension": 2})
    before = game(learner, (0, 0.5), (1, -0.5))
    one_too_many = Example(((key_of(0), 1.0), (key_of(7), 1.0)), 1.0)
    assert np.isnan(learner.fold(as_record([one_too_many]), 0)).all()
    assert [float(w) for w in weights_of(learner)] == before
    assert before[7] == 0.0
    assert learner.refused == 1
    assert game(learner, (0, -0.5), (7, 1.0))[7] == pytest.approx(math.exp(-1.0) / (math.exp(-1.0) + math.exp(0.5)))


def test_it_agrees_with_the_oracle_where_shares_are_smaller_than_any_double() -> None:
    """Exponents of many hundreds, up and down again."""
    hyper = {"strength": 0.03, "dimension": DIMENSION}
    learner, oracle = learner_for("entropic", "linear", hyper), oracle_for("entropic", "linear", hyper)
    rng = random.Random(8)
    for _ in range(300):
        i, g = rng.randrange(4), rng.gauss(0.0, 4.0)
        got = game(learner, (i, g))
        oracle_margin(oracle, "linear", Example(((key_of(i), 1.0),), g))
        assert got == pytest.approx(oracle.weights().tolist(), rel=1e-9, abs=1e-290)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"dimension": 5}, "needs strength"),
        ({"strength": 1.0}, "needs dimension"),
        ({"strength": 0.0, "dimension": 5}, "strength"),
        ({"strength": 1.0, "dimension": 0}, "dimension"),
        ({"strength": 1.0, "dimension": 2.5}, "dimension"),
    ],
)
def test_hyper_parameters_that_cannot_work_are_refused(given: dict[str, Any], said: str) -> None:
    """Each is named."""
    with pytest.raises(ValueError, match=said):
        make_optimizer({"name": "entropic", **given})
