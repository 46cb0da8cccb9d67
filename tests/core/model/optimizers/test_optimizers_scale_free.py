"""PiSTOL and coin betting, by the fold: equal to the dense oracle, and what they are said to be blind to."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from stream_learner.core.model.optimizers import make_optimizer
from tests.core.model.example_records import Example, as_record
from tests.core.model.optimizers.optimizer_help import (
    assert_agrees,
    key_of,
    learner_for,
    resting_examples,
    some_examples,
    weights_of,
)

CASES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("pistol", {}),
    ("pistol", {"alpha": 3.0, "beta": 0.2}),
    ("coin", {}),
    ("coin", {"alpha": 2.0, "beta": 0.3}),
)
NAMES = ("pistol", "coin")


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
@pytest.mark.parametrize(("name", "hyper"), CASES)
def test_rows_that_rest_for_long_are_read_as_they_are_now(name: str, hyper: dict[str, Any], loss: str) -> None:
    """The average size of an example, which coin betting divides by, goes on without them."""
    assert_agrees(name, loss, hyper, examples=resting_examples(loss, 1))


def in_units(examples: list[Example], unit: Callable[[int], float]) -> list[Example]:
    """The examples with each feature in other units."""
    return [Example(tuple((k, x * unit(k)) for k, x in e.features), e.label, e.weight) for e in examples]


def margins_of(name: str, examples: list[Example]) -> list[float]:
    """The margin of each example's prediction."""
    return [float(m) for m in learner_for(name, "logistic", {}).fold(as_record(examples), 0)]


def test_coin_betting_does_not_see_the_units_of_a_feature() -> None:
    """Every feature multiplied by its own power of two: the same predictions."""
    examples = some_examples("logistic", 3)
    margins = margins_of("coin", examples)
    scaled = margins_of("coin", in_units(examples, lambda key: 2.0 ** (key % 23 - 11)))
    assert scaled == pytest.approx(margins, rel=1e-12, abs=1e-14)
    assert max(abs(m) for m in margins) > 0.1


def test_pistol_sees_the_root_of_a_unit() -> None:
    """A first weight times its value grows with it; that is how the formula reads."""
    pair = [Example(((key_of(0), 1.0),), 1.0), Example(((key_of(0), 1.0),), 0.0)]
    assert margins_of("pistol", in_units(pair, lambda _: 16.0))[1] == pytest.approx(4.0 * margins_of("pistol", pair)[1])


def test_pistol_by_hand() -> None:
    """Two examples of one feature, alpha 1, beta 1/2: the formula with numbers."""
    learner = learner_for("pistol", "linear", {})
    margins = learner.fold(as_record([Example(((key_of(0), 2.0),), -0.75), Example(((key_of(0), 1.0),), 0.5, 2.0)]), 0)
    theta = a = 1.5
    c = 1.0 / (2.0 * (a + 2.0))
    assert margins.tolist() == [0.0, pytest.approx(0.5 * math.sqrt(a) * theta * math.exp(theta**2 * c / 2.0) * c)]
    theta, a = 0.5, 2.5
    c = 1.0 / (2.0 * (a + 2.0))
    assert weights_of(learner)[0] == pytest.approx(0.5 * math.sqrt(a) * theta * math.exp(theta**2 * c / 2.0) * c)


def test_coin_by_hand() -> None:
    """Two examples of one feature: alpha 4, beta 1, the wealth won, and the average size of an example."""
    learner = learner_for("coin", "linear", {})
    learner.fold(as_record([Example(((key_of(0), 2.0),), -3.0)]), 0)
    size = (1.0 + 1e-6) / 1.0
    w = 4.0 * 6.0 / (3.0 * 2.0 * (3.0 * 2.0 + 6.0)) / size
    assert weights_of(learner)[0] == pytest.approx(w, rel=1e-15)
    (margin,) = learner.fold(as_record([Example(((key_of(0), 1.0),), 1.0, 0.5)]), 0)
    bet, size = 1.0 / 3.0, (1.0 + 0.5 * 0.25 + 1e-6) / 1.5
    assert margin == pytest.approx(bet / size, rel=1e-15)
    theta, a, wealth = 5.5, 6.5, -0.5 * bet
    assert weights_of(learner)[0] == pytest.approx((4.0 + wealth) * theta / (6.0 * (6.0 + a)) / size, rel=1e-14)


@pytest.mark.parametrize("name", NAMES)
def test_nothing_is_learned_from_importance_zero(name: str) -> None:
    """No weight, no 0/0: neither before the first example that counts nor after it."""
    learner = learner_for(name, "logistic", {})
    idle = Example(((key_of(0), 3.0), (key_of(1), 0.0)), 1.0, 0.0)
    assert learner.fold(as_record([idle, idle]), 0).tolist() == [0.0, 0.0]
    assert not weights_of(learner).any()
    assert learner.refused == 0


def test_an_example_whose_weight_would_not_be_finite_is_refused() -> None:
    """PiSTOL's e^(theta^2 c / 2) after a gradient of 2000; one of 1000 is still a number."""
    learner = learner_for("pistol", "linear", {})
    run_away, far = (Example(((key_of(0), 1.0), (key_of(1), 1.0)), y) for y in (-2000.0, -1000.0))
    assert np.isnan(learner.fold(as_record([run_away]), 0)).all()
    assert (learner.refused, learner.table.count, learner.digest()) == (
        1,
        0,
        learner_for("pistol", "linear", {}).digest(),
    )
    assert learner.fold(as_record([far]), 0).tolist() == [0.0]
    assert 1e200 < weights_of(learner)[0] < math.inf


def test_which_weights_move_by_themselves() -> None:
    """Weights of coin betting change by the average size of examples."""
    assert [make_optimizer({"name": name}).moves for name in NAMES] == [False, True]
    learner = learner_for("coin", "linear", {})
    learner.fold(as_record([Example(((key_of(0), 1.0),), -1.0)]), 0)
    before = weights_of(learner)[0]
    learner.fold(as_record([Example((), 0.0)]), 0)
    assert weights_of(learner)[0] == pytest.approx(2.0 * before, rel=1e-5)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("given", [{"alpha": 0.0}, {"alpha": math.inf}, {"beta": 0.0}, {"beta": math.nan}])
def test_hyper_parameters_that_cannot_work_are_refused(name: str, given: dict[str, Any]) -> None:
    """Each is named."""
    (hyper,) = given
    with pytest.raises(ValueError, match=hyper):
        make_optimizer({"name": name, **given})
