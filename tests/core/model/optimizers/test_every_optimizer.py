"""What every optimizer keeps: it is its dense oracle, its state is whole, and neither cuts nor refused examples show.

A file for each family beside this one has its cases, and what only that family does.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from stream_learner.core.model.optimizers import make_optimizer
from tests.core.model.optimizers import (
    test_optimizers_baselines,
    test_optimizers_entropic,
    test_optimizers_gradient,
    test_optimizers_leader,
    test_optimizers_scale_free,
    test_optimizers_sparse,
)
from tests.core.model.optimizers.optimizer_help import (
    LOSS_NAMES,
    assert_agrees,
    assert_cuts_change_nothing,
    assert_refused_change_nothing,
    assert_restores,
)

Case = tuple[str, dict[str, Any]]
CASES: tuple[Case, ...] = (
    *test_optimizers_gradient.CASES,
    *test_optimizers_leader.CASES,
    *test_optimizers_sparse.CASES,
    *test_optimizers_scale_free.CASES,
    *test_optimizers_baselines.CASES,
    ("entropic", test_optimizers_entropic.HYPER),
)
ONE_OF_EACH = dict(reversed(CASES)).items()


def with_losses(cases: Iterable[Case], losses: Sequence[str]) -> list[tuple[str, dict[str, Any], str]]:
    """Each case with each of these losses, or with the one that its optimizer has."""
    return [
        (name, hyper, loss)
        for name, hyper in cases
        for loss in (["hinge"] if name in test_optimizers_baselines.NAMES else losses)
        if (name, loss) != ("invariant", "linear")  # a linear loss has no label that such a step could stop at
    ]


@pytest.mark.parametrize(("name", "hyper", "loss"), with_losses(CASES, LOSS_NAMES))
def test_it_is_the_dense_oracle(name: str, hyper: dict[str, Any], loss: str) -> None:
    """Every prediction, and all weights after every few examples, for each loss, with importances, also 0, in a box."""
    assert_agrees(name, loss, hyper)


@pytest.mark.parametrize(("name", "hyper", "loss"), with_losses(ONE_OF_EACH, ["logistic", "squared", "hellinger"]))
def test_how_examples_are_cut_into_records_changes_no_bit(name: str, hyper: dict[str, Any], loss: str) -> None:
    """Rows, scalars, digest, metrics."""
    assert_cuts_change_nothing(name, loss, hyper)


@pytest.mark.parametrize(("name", "hyper", "loss"), with_losses(ONE_OF_EACH, ["quantile", "squared"]))
def test_a_restored_learner_goes_on_with_the_same_bits(name: str, hyper: dict[str, Any], loss: str) -> None:
    """Columns and scalars are the whole state; so it is with an option of the loss and its label range."""
    assert_restores(name, loss, hyper)


@pytest.mark.parametrize(("name", "hyper", "loss"), with_losses(ONE_OF_EACH, ["logistic", "half_squared", "hinge"]))
def test_a_refused_example_changes_no_bit(name: str, hyper: dict[str, Any], loss: str) -> None:
    """A value, a label or an importance that is not finite, a negative importance: neither row, sum nor clock moves."""
    assert_refused_change_nothing(name, loss, hyper)


@pytest.mark.parametrize(("name", "hyper"), CASES)
def test_an_optimizer_survives_its_dictionary(name: str, hyper: dict[str, Any]) -> None:
    """`to_dict` and `make_optimizer` are inverse, through JSON."""
    optimizer = make_optimizer({"name": name, **hyper})
    assert make_optimizer(json.loads(json.dumps(optimizer.to_dict()))) == optimizer
