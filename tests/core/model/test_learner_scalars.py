"""State that is in no row: the label range and the optimizers' scalars, what moves them, and what the digest says."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import LOSSES
from stream_learner.core.model.optimizers import OPTIMIZERS, make_optimizer, sample_optimizer
from tests.core.model.example_records import Example, as_record

CLIPPING = [("ogd", "squared"), ("vw", "squared"), ("vw", "quantile"), ("vw", "hinge"), ("vw", "poisson")]
OTHERS = [("vw", "logistic"), *(("ogd", loss) for loss in LOSSES if loss != "squared")]
GIVEN = {"entropic": {"name": "entropic", "strength": 2.0, "dimension": 9}}


def examples(label: float = 1.0) -> list[Example]:
    """A few that every loss learns from."""
    return [Example(((key, 0.5 * key), (key + 1, 1.0)), label, 1.0) for key in (1, 2, 3, 1)]


def folded(name: str, loss: str, first_label: float) -> Learner:
    """A learner that met a label of importance 0, and then the same examples as any other."""
    learner = Learner(sample_optimizer(name), loss=loss)
    learned_label = 2.0 if loss == "poisson" else 1.0
    learner.fold(as_record([Example((), first_label, 0.0), *examples(learned_label)]), 0)
    return learner


@pytest.mark.parametrize(("name", "loss"), CLIPPING)
def test_the_digest_knows_the_label_range_where_margins_are_clipped_to_it(name: str, loss: str) -> None:
    """Equal rows, equal counts: yet the two would predict differently, and their digests differ."""
    narrow, wide = folded(name, loss, 1.0), folded(name, loss, 900.0)
    assert rows_of(narrow) == rows_of(wide)
    asked = as_record([Example(((1, 9_999.0), (3, 9_999.0)), math.nan, 1.0)])
    margins = [float(one.fold(asked, 0, learned=np.zeros(1, np.bool_))[0]) for one in (narrow, wide)]
    assert margins[0] != margins[1]
    assert narrow.digest() != wide.digest()
    assert (narrow.digest(), wide.digest()) == (narrow.digest_full(), wide.digest_full())


@pytest.mark.parametrize(("name", "loss"), OTHERS)
def test_the_digest_is_of_nothing_that_no_prediction_depends_on(name: str, loss: str) -> None:
    """The range of labels is no part of the model for losses that do not clip: so digests stay what they were."""
    zeros, ones = folded(name, loss, 0.0), folded(name, loss, 1.0)
    zeros._scalars[:2] = -7.0, 7.0
    assert rows_of(zeros) == rows_of(ones)
    assert zeros.digest() == ones.digest()


@pytest.mark.parametrize("name", OPTIMIZERS)
@pytest.mark.parametrize("label", [math.nan, 30.0])
def test_an_example_that_is_only_predicted_changes_no_state(name: str, label: float) -> None:
    """However large its values, known feature or new; a label it has counts in the label range and nowhere else."""
    optimizer = make_optimizer(GIVEN.get(name, sample_optimizer(name).to_dict()))
    learner = Learner(optimizer, loss=(optimizer.losses or ("squared",))[0])
    learner.fold(as_record(examples()), 0)
    before = everything(learner)
    margins = learner.fold(
        as_record([Example(((1, 80.0), (4, -3.0), (77, 5.0)), label, 2.0)]), 0, learned=np.zeros(1, np.bool_)
    )
    after = everything(learner)
    assert np.isfinite(margins).all()
    assert after[0] == before[0] and after[1:] == before[1:]
    if math.isnan(label):
        assert learner.state_scalars()["scalars"][:2] == [(0.0).hex(), (1.0).hex()]


def everything(learner: Learner) -> tuple[Any, ...]:
    """All state but the label range."""
    state = learner.state_scalars()
    kept = {name: value for name, value in state.items() if name not in ("scalars", "digest")}
    return rows_of(learner), kept, state["scalars"][2:], learner.count_nonzero()


def rows_of(learner: Learner) -> list[Any]:
    """Every row, to the bit."""
    return [(part.keys.tolist(), part.columns.tobytes(), part.touched.tolist()) for part in learner.table.items()]
