"""Predictions of a record by a model that is being learned: those of the fold, and nothing changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from stream_learner.core.machine.arithmetic import sigmoid
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import OPTIMIZERS, sample_optimizer
from tests.core.model.example_records import Example, as_record, random_examples

FOLDED, SHOWN = 120, 30
EXAMPLES = [e for e in random_examples(3 * (FOLDED + SHOWN), 11) if e.features and np.isfinite(e.label + e.weight)]
EXAMPLES = [e for e in EXAMPLES if 0.0 <= e.label <= 1.0 and e.weight >= 0.0][: FOLDED + SHOWN]
LOGISTIC = [name for name in OPTIMIZERS if sample_optimizer(name).losses is None]


def learned(name: str) -> Learner:
    learner = Learner(sample_optimizer(name))
    learner.fold(as_record(EXAMPLES[:FOLDED], tick=1), 1)
    return learner


def everything(learner: Learner) -> Any:
    rows = [(part.keys.tolist(), part.columns.tolist(), part.touched.tolist()) for part in learner.table.items()]
    return learner.state_scalars(), learner.digest_full(), rows, learner.table.bytes, learner.table.count


@pytest.mark.parametrize("name", LOGISTIC)
def test_a_prediction_is_that_of_the_fold(name: str) -> None:
    """Of each example by itself what the fold would predict it with, by every optimizer; new keys stay unknown."""
    learner = learned(name)
    before = everything(learner)
    stranger = Example(((1, 1.0), (2, 3.0)), 1.0)
    shown = [*EXAMPLES[FOLDED:], stranger]
    found = learner.predict(as_record(shown, shuffle=3))
    assert everything(learner) == before
    wanted = [sigmoid(float(learned(name).fold(as_record([one], tick=2), 2)[0])) for one in shown]
    agree = [a == b or np.isnan(b) for a, b in zip(found.tolist(), wanted, strict=True)]  # NaN: it was refused
    assert all(agree) and len(found) == len(shown) and np.isfinite(wanted).any()


def test_a_record_without_a_feature_is_predicted_by_nothing() -> None:
    """One half; a model without a row predicts so too."""
    record = as_record([Example((), 1.0)])
    assert learned("ftrl_proximal").predict(record).tolist() == [0.5]
    assert Learner(sample_optimizer("ftrl_proximal")).predict(as_record(EXAMPLES[:1])).tolist() == [0.5]
