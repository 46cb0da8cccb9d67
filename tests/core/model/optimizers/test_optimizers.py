"""Optimizers: FTRL-Proximal's rules, and the registry."""

from __future__ import annotations

import math
from contextlib import suppress
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import make_loss
from stream_learner.core.model.optimizers import OPTIMIZERS, FtrlProximal, make_optimizer, sample_optimizer
from tests.core.model.example_records import Example, as_record
from tests.core.model.optimizers.optimizer_help import bits_of, some_examples, weights_of
from tests.oracles.arithmetic import sigmoid
from tests.oracles.fold import Ftrl

rates = st.floats(0.001, 10.0)
penalties = st.one_of(st.just(0.0), st.floats(0.0, 5.0))
NO_SCALARS = np.zeros(0)


def weight_of(learner: Learner, key: int) -> float:
    """A feature's weight as the model publishes it."""
    return float(learner.weights(learner.table.rows_of(np.array([key], np.uint64)).columns)[0])


@given(rates, penalties, penalties, penalties, st.lists(st.tuples(st.floats(-50, 50), st.floats(0, 1e6)), max_size=9))
@settings(deadline=None)
def test_weights_of_rows_have_the_bits_of_the_fold(
    alpha: float, beta: float, l1: float, l2: float, rows: list[tuple[float, float]]
) -> None:
    """The vectorised closed form is the one written out for a single row."""
    oracle = Ftrl(alpha, beta, l1, l2)
    oracle.rows = dict(enumerate(rows))
    columns = np.array(rows, np.float64).reshape(-1, 2)
    weights = FtrlProximal(alpha, beta, l1, l2).weights(columns, NO_SCALARS)
    assert weights.tolist() == [oracle.weight(i) for i in range(len(rows))]


def test_one_step_by_hand() -> None:
    """alpha 0.5, beta 1, no penalties, one feature of value 2, label 1: every number of Algorithm 1 by hand."""
    learner = Learner(FtrlProximal(alpha=0.5, beta=1.0, l1=0.0, l2=0.0))
    (margin,) = learner.fold(as_record([Example(((5, 2.0),), 1.0)]), 0)
    (row,) = learner.table.rows_of(np.array([5], np.uint64)).columns
    assert margin == 0.0  # q = 1/2, g = (1/2 - 1) 2 = -1, sigma = 1/0.5
    assert row.tolist() == [-1.0, 1.0]
    assert weight_of(learner, 5) == 1.0 / ((1.0 + 1.0) / 0.5)


def test_a_weight_goes_back_to_zero_once_z_is_within_l1() -> None:
    """Sparsity is a state, not an event: |z| <= l1 is weight 0 whenever it happens."""
    learner = Learner(FtrlProximal(alpha=1.0, beta=1.0, l1=0.45, l2=0.0))
    learner.fold(as_record([Example(((5, 1.0),), 1.0)]), 0)
    assert weight_of(learner, 5) > 0.0
    assert learner.nonzero == 1
    learner.fold(as_record([Example(((5, 1.0),), 0.0)]), 1)
    z, _ = learner.table.rows_of(np.array([5], np.uint64)).columns[0]
    assert 0.0 < abs(z) <= 0.45
    assert weight_of(learner, 5) == 0.0
    assert learner.nonzero == 0


@given(rates, st.floats(0.0, 3.0), st.integers(0, 2**32))
@settings(max_examples=30, deadline=None)
def test_without_penalties_it_is_gradient_descent_with_adaptive_rates(alpha: float, beta: float, seed: int) -> None:
    """With l1 = l2 = 0, step for step, w -= alpha g / (beta + sqrt(sum g^2)) (McMahan 2011)."""
    rng = np.random.default_rng(seed)
    learner = Learner(FtrlProximal(alpha, beta, 0.0, 0.0))
    weights, squares = np.zeros(3), np.zeros(3)
    for _ in range(30):
        x, y = rng.normal(size=3), float(rng.integers(2))
        learner.fold(as_record([Example(tuple(zip((7, 8, 9), x.tolist(), strict=True)), y)]), 0)
        g = (sigmoid(float(weights @ x)) - y) * x
        squares += g * g
        weights -= alpha * g / (beta + np.sqrt(squares))
    got = [weight_of(learner, key) for key in (7, 8, 9)]
    assert got == pytest.approx(weights.tolist(), rel=1e-7, abs=1e-9)


def test_an_untouched_feature_has_weight_zero_whatever_the_parameters() -> None:
    """0/0 with beta = l2 = 0 and n = 0 is weight 0, and so is the first prediction."""
    optimizer = FtrlProximal(alpha=1.0, beta=0.0, l1=0.0, l2=0.0)
    assert optimizer.weights(np.zeros((1, 2)), NO_SCALARS).tolist() == [0.0]
    learner = Learner(optimizer)
    assert learner.fold(as_record([Example(((5, 1.0),), 1.0)] * 2), 0)[0] == 0.0
    assert math.isfinite(weight_of(learner, 5))


@pytest.mark.parametrize(
    "values",
    [{"alpha": 0.0}, {"alpha": 1e-320}, {"alpha": math.nan}, {"beta": -1.0}, {"l1": math.inf}, {"l2": -0.5}],
)
def test_hyper_parameters_that_cannot_work_are_refused(values: dict[str, float]) -> None:
    """Each is named with its value."""
    (name,) = values
    with pytest.raises(ValueError, match=name):
        FtrlProximal(**values)


def test_an_optimizer_survives_its_dictionary() -> None:
    """`to_dict` and `make_optimizer` are inverse."""
    optimizer = FtrlProximal(alpha=0.3, beta=0.0, l1=2.0, l2=0.125)
    assert make_optimizer(optimizer.to_dict()) == optimizer
    assert optimizer.to_dict()["name"] == "ftrl_proximal"


def test_unknown_names_are_answered_with_the_nearest_known_one() -> None:
    """An optimizer or hyper-parameter that is misspelt."""
    with pytest.raises(ValueError, match="did you mean 'ftrl_proximal'"):
        make_optimizer({"name": "ftlr_proximal"})
    with pytest.raises(ValueError, match="did you mean 'alpha'"):
        make_optimizer({"name": "ftrl_proximal", "aplha": 0.1})
    with pytest.raises(ValueError, match="unknown optimizer None"):
        make_optimizer({})


def in_whole_numbers(name: str) -> dict[str, Any]:
    """Settings of an optimizer in which every number is an integer, as a command line may give them."""
    found = sample_optimizer(name).to_dict()
    for key, value in found.items():
        if isinstance(value, float):
            for whole in (2, 1, 3, -1, 0):
                with suppress(ValueError):
                    make_optimizer({**found, key: whole})
                    found[key] = whole
                    break
    assert not any(isinstance(value, float) and math.isfinite(value) for value in found.values())
    return found


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_whole_numbers_are_numbers(name: str) -> None:
    """`eta=1` is `eta=1.0`: the same rows, weights and predictions to the bit."""
    whole = in_whole_numbers(name)
    fractions = {
        key: float(value) if type(value) is int and key in FLOATS[name] else value for key, value in whole.items()
    }
    bits = []
    for numbers in (whole, fractions):
        optimizer = make_optimizer(numbers)
        loss = (optimizer.losses or ("logistic",))[0]
        learner = Learner(optimizer, loss=make_loss(loss))
        margins = [learner.fold(as_record([one]), 0).tobytes() for one in some_examples(loss, 3)]
        bits.append((margins, bits_of(learner)[0], weights_of(learner).tobytes()))
    assert bits[0] == bits[1]


FLOATS = {
    name: {key for key, value in sample_optimizer(name).to_dict().items() if isinstance(value, float)}
    for name in OPTIMIZERS
}
