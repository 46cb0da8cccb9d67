"""The tool's default update in float64, through the learner, against the slow oracle in float64, example by example."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers.vw import VwDescent
from stream_learner.core.model.optimizers.vw_losses import lambert_minus
from stream_learner.evaluate.example_block import RecordMaker
from stream_learner.evaluate.formats.vw.parser import VwText, VwTextOptions
from tests.evaluate.vw.live import generated
from tests.oracles import vw as oracle_vw
from tests.oracles.vw import progressive

PARTS = list(product((False, True), repeat=3))
NAMES = ("adaptive", "normalized", "invariant")
EXTRAS = [
    {},
    {"power_t": 0.3},
    {"power_t": 1.0, "initial_t": 3.0},
    {"l1": 0.001, "l2": 0.01},
]


def records(text: bytes, logistic: bool = False) -> list[ExampleRecord]:
    """The lines as records, each occurrence of a feature for itself."""
    parsed = VwText(VwTextOptions(hashing="vw", repeats=True)).parse(text, 1)
    found = RecordMaker().records(parsed.batch)
    for record in found:
        record.label = (record.label + 1.0) / 2.0 if logistic else record.label
    return found


def command_of(parts: tuple[bool, bool, bool], loss: str, extra: dict[str, float]) -> str:
    """The command line for the tool."""
    flags = [f"--{name}" for name, on in zip(NAMES, parts, strict=True) if on] or ["--sgd"]
    return " ".join([*flags, "-l 0.3 --loss_function", loss, *(f"--{k} {v}" for k, v in extra.items())])


@pytest.mark.parametrize("loss", ["squared", "logistic", "hinge", "quantile", "poisson"])
@pytest.mark.parametrize("parts", PARTS)
def test_predictions_are_the_oracles(parts: tuple[bool, bool, bool], loss: str) -> None:
    """With importances, repeated features, all rates and penalties; to 1e-9."""
    text = generated(counts=loss == "poisson")
    lines = text.decode("ascii").splitlines()
    for extra in EXTRAS:
        optimizer = VwDescent(**dict(zip(NAMES, parts, strict=True)), eta=0.3, **extra)  # type: ignore[arg-type]
        learner = Learner(optimizer, loss=loss)
        expected = progressive(command_of(parts, loss, extra), lines, np.float64).predictions
        if not np.isfinite(expected).all() or np.abs(expected).max() > 40.0:
            continue  # plain Poisson steps run away
        (record,) = records(text, loss == "logistic")
        np.testing.assert_allclose(learner.fold(record, 0), expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("l1", [0.0, 0.01])
def test_weights_predict_what_the_fold_predicts(l1: float) -> None:
    """The sum of published weights times values, before clipping."""
    learner = Learner(VwDescent(l1=l1, l2=l1), loss="squared")
    (record,) = records(generated())
    learner.fold(record, 0)
    table = {int(k): c for rows in learner.table.items() for k, c in zip(rows.keys, rows.columns, strict=True)}
    weight = dict(zip(table, learner.weights(np.array(list(table.values()))), strict=True))
    (asked,) = records(b"1 |a w1:0.01 w2:0.02\n")
    (margin,) = learner.fold(asked, 0, learned=np.zeros(1, np.bool_))
    values = np.ones(len(asked.indices))
    values[asked.positions] = asked.values
    keys = asked.keys[asked.indices].tolist()
    assert margin == pytest.approx(sum(weight.get(k, 0.0) * x for k, x in zip(keys, values, strict=True)), rel=1e-12)


def test_a_refused_example_changes_nothing() -> None:
    """A label that is no number, and a value whose square is infinite: state and digest stay."""
    learner = Learner(VwDescent(), loss="squared")
    (record,) = records(generated())
    learner.fold(record, 0)
    before = learner.digest_full(), learner.state_scalars()["scalars"]
    for text in (b"1 |a w1 w2:1e200\n", b"1e300 1e10 |a w1 w1\n"):
        (bad,) = records(text)
        assert np.isnan(learner.fold(bad, 0)).all()
    bad.label = np.array([np.nan])
    assert np.isnan(learner.fold(bad, 0)).all()
    learned_keys = {int(k) for rows in learner.table.items() for k in rows.keys}
    assert learner.state_scalars()["scalars"] == before[1]
    assert learned_keys >= set(record.keys.tolist())
    assert learner.refused == 3


def test_the_rate_decays_with_passes() -> None:
    """The rate decays once for each pass, as the tool's does."""
    text = generated()
    command = "--passes 3 --holdout_off --decay_learning_rate 0.5"
    expected = progressive(command, text.decode("ascii").splitlines(), np.float64).predictions
    learner = Learner(VwDescent(decay=0.5), loss="squared")
    (record,) = records(text)
    found = []
    for _ in range(3):
        found.extend(learner.fold(record, 0).tolist())
        learner.end_pass()
    np.testing.assert_allclose(found, expected, rtol=1e-9, atol=1e-9)


def test_the_approximation_of_lambert_is_the_tools() -> None:
    """On both sides of its change of formula."""
    for a in (-30.0, -1.0, 0.5, 0.999, 1.0, 3.0, 200.0):
        assert lambert_minus(a) == pytest.approx(float(oracle_vw.lambert_minus(np.float64(a))), rel=1e-13, abs=1e-13)


def test_numbers_out_of_range_are_refused() -> None:
    """By name."""
    for name, value in (("eta", 0.0), ("l1", -1.0), ("power_t", float("nan")), ("initial_t", -1.0), ("decay", 0.0)):
        with pytest.raises(ValueError, match=name):
            VwDescent(**{name: value})  # type: ignore[arg-type]
