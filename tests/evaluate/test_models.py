"""A configuration on its way through the data measures what the dense oracle measures."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from stream_learner.evaluate.example_block import ExampleBlock
from stream_learner.evaluate.models import LearnerModel, Trial
from stream_learner.evaluate.request import PATIENCE, BestPass, PassPlan
from tests.core.model.optimizers.optimizer_help import in_domain, learner_for, oracle_for, oracle_loss
from tests.evaluate.evaluation_help import batch_of, example_blocks_of, generated
from tests.oracles.optimizers.base import Example, progressive

SETTINGS: list[tuple[str, str, dict[str, Any]]] = [
    ("ftrl_proximal", "logistic", {"alpha": 0.3, "beta": 0.5, "l1": 0.05, "l2": 0.1}),
    ("ogd", "hinge", {"eta": 0.2, "schedule": "power", "t0": 3.0, "power": 0.5, "decay": 0.7}),
    ("adagrad", "half_squared", {"eta": 0.4}),
    ("ogd", "hellinger", {"eta": 0.05}),
    ("invariant", "quantile", {"eta": 0.1}),
    ("normalized", "logistic", {"eta": 0.3}),
    ("averaged", "logarithmic", {"eta": 0.02}),
]
IDS = [f"{name}-{loss}" for name, loss, _ in SETTINGS]


def trial_of(name: str, loss: str, hyper: dict[str, Any], plan: PassPlan, *, learn: bool = True) -> Trial:
    """Ours."""
    model = LearnerModel(learner_for(name, loss, hyper))
    return Trial(name, model, plan, learn=learn)


def run(trial: Trial, blocks: Sequence[ExampleBlock]) -> dict[str, Any]:
    """All passes that the trial wants; its row without the time, which nobody can foretell."""
    while not trial.done:
        for block in blocks:
            trial.take(block)
        trial.end_pass()
    return {name: value for name, value in trial.figures().items() if name != "seconds"}


def in_domain_of(loss: str, examples: Sequence[Example]) -> list[Example]:
    """Labels as the oracle's loss writes them."""
    return [Example(example.x, in_domain(loss, example.y), example.h) for example in examples]


@pytest.mark.parametrize(("name", "loss", "hyper"), SETTINGS, ids=IDS)
@pytest.mark.parametrize("passes", [1, 3])
def test_the_row_is_that_of_the_oracle(name: str, loss: str, hyper: dict[str, Any], passes: int) -> None:
    """Average loss, mistakes and non-zero weights over one pass or several, with importances."""
    examples = generated(60)
    row = run(trial_of(name, loss, hyper, PassPlan(passes, holdout_off=True)), example_blocks_of(examples))
    oracle = oracle_for(name, loss, hyper)
    expected = progressive(oracle, in_domain_of(loss, examples), passes)
    assert row["examples"] == 60 * passes
    assert row["average_loss"] == pytest.approx(expected.average_loss, rel=1e-9)
    assert row["mistakes"] == (None if oracle.of.margin(0.5, 1.0) is None else expected.mistakes)
    assert row["nonzero"] == np.count_nonzero(np.abs(expected.weights) > 1e-12)


@pytest.mark.parametrize(("name", "loss", "hyper"), [SETTINGS[0], SETTINGS[1]], ids=IDS[:2])
def test_held_out_examples_are_measured_and_not_learned(name: str, loss: str, hyper: dict[str, Any]) -> None:
    """Of several passes, every 10th example is held out; the figures are those of the pass that was best on them."""
    examples = in_domain_of(loss, generated(83))
    row = run(trial_of(name, loss, hyper, PassPlan(6)), example_blocks_of(examples))
    oracle = oracle_for(name, loss, hyper)
    means, mistakes = [], []
    for _ in range(6):
        total = importance = wrong = 0.0
        for number, (x, y, h) in enumerate(examples, 1):
            if number % 10:
                oracle.update(x, y, h)
                continue
            p = oracle.predict(x, h)
            total, importance, wrong = (
                total + h * oracle.loss(p, y),
                importance + h,
                wrong + (oracle.of.margin(p, y) <= 0),
            )
        oracle.end_pass()
        means.append(total / importance)
        mistakes.append(wrong)
        if len(means) - 1 - int(np.argmin(means)) >= PATIENCE:
            break
    best = int(np.argmin(means))
    assert row["average_loss"] == pytest.approx(means[best], rel=1e-9)
    assert row["mistakes"] == mistakes[best]
    assert row["examples"] == 8


def test_passes_end_when_none_has_been_better_for_a_while() -> None:
    """Three passes in a row without improvement; without holdout all passes are made."""
    best = BestPass(PassPlan(20))
    losses = [0.5, 0.4, 0.45, 0.4, 0.41, 0.3]
    found = [best.finish(loss) for loss in losses if not best.done]
    assert found == [True, True, False, False, False] and best.done
    every = BestPass(PassPlan(5, holdout_off=True))
    for loss in losses[:5]:
        assert not every.done
        every.finish(loss)
    assert every.done


def test_portions_do_not_matter() -> None:
    """However examples are cut, figures and state have the same bits, held-out examples among them."""
    examples, plan = generated(100), PassPlan(3)
    trials = [trial_of(*SETTINGS[0], plan) for _ in range(3)]
    rows = [run(trial, example_blocks_of(examples, size)) for trial, size in zip(trials, (1, 7, 100), strict=True)]
    assert rows[0] == rows[1] == rows[2]
    assert len({trial.model.learner.digest() for trial in trials}) == 1  # type: ignore[attr-defined]


def test_examples_without_a_label_are_only_predicted() -> None:
    """They get a margin, count in no figure, and change nothing."""
    examples = generated(40)
    mixed = [Example(e.x, math.nan if i % 3 == 1 else e.y, e.h) for i, e in enumerate(examples)]
    (block,) = example_blocks_of(mixed, 40)
    block.labelled = np.array([not math.isnan(example.y) for example in mixed])
    trial = trial_of(*SETTINGS[0], PassPlan())
    row = run(trial, [block])
    kept = [example for example in mixed if not math.isnan(example.y)]
    plain = trial_of(*SETTINGS[0], PassPlan())
    assert run(plain, example_blocks_of(kept)) == row
    assert not np.isnan(trial.margins).any() and trial.refused == 0


def test_a_label_the_loss_does_not_know_is_counted_as_refused() -> None:
    """Such an example changes nothing, and is not part of the figures."""
    examples = generated(20)
    wrong = [*examples[:5], Example({0: 1.0}, 7.0), *examples[5:]]
    trial, plain = (trial_of(*SETTINGS[0], PassPlan()) for _ in range(2))
    assert run(trial, example_blocks_of(wrong)) == run(plain, example_blocks_of(examples))
    assert (trial.refused, plain.refused) == (1, 0)


def test_a_trial_that_only_predicts_changes_nothing() -> None:
    """As `--test` does: every prediction is that of the model as it was."""
    examples = generated(30)
    trial = trial_of(*SETTINGS[0], PassPlan())
    run(trial, example_blocks_of(examples))
    model = trial.model
    before = model.learner.digest()  # type: ignore[attr-defined]
    test = Trial("test", model, PassPlan(), learn=False)
    row = run(test, example_blocks_of(examples))
    assert model.learner.digest() == before  # type: ignore[attr-defined]
    assert row["examples"] == 30 and row["average_loss"] < trial.figures()["average_loss"]


@pytest.mark.parametrize("loss", ["hinge", "logarithmic", "hellinger", "logistic", "exponential"])
def test_auc_is_near_the_exact_one(loss: str) -> None:
    """Pairs compared one by one, ties half: margins of one bin count as ties, which moves it by little."""
    examples = [Example(e.x, e.y, 1.0) for e in generated(300)]
    trial = trial_of("ogd", loss, {"eta": 0.05}, PassPlan())
    blocks = example_blocks_of(examples, 300)
    row = run(trial, blocks)
    pairs = [
        (p > q) + 0.5 * (p == q)
        for p, a in zip(trial.margins, examples, strict=True)
        for q, b in zip(trial.margins, examples, strict=True)
        if a.y == 1.0 and b.y == 0.0
    ]
    assert row["auc"] == pytest.approx(np.mean(pairs), abs=0.01)


def test_log_loss_calibration_and_normalized_entropy_by_their_definitions() -> None:
    """Where the prediction is a probability; else they are null, and so are figures without examples."""
    examples = generated(80)
    for name, loss, hyper in SETTINGS:
        row = run(trial_of(name, loss, hyper, PassPlan()), example_blocks_of(examples))
        if loss not in ("logistic", "logarithmic", "hellinger"):
            assert row["log_loss"] is row["normalized_entropy"] is None
            continue
        oracle, link = oracle_for(name, loss, hyper), oracle_loss(loss)
        run_ = progressive(oracle, examples)
        q = [link.mean(p) for p in run_.predictions]
        h = [e.h for e in examples]
        clicks = sum(e.h * e.y for e in examples)
        log_loss = -sum(e.h * math.log(p if e.y else 1 - p) for e, p in zip(examples, q, strict=True)) / sum(h)
        rate = clicks / sum(h)
        entropy = -rate * math.log(rate) - (1 - rate) * math.log(1 - rate)
        assert row["log_loss"] == pytest.approx(log_loss, rel=1e-8)
        assert row["normalized_entropy"] == pytest.approx(log_loss / entropy, rel=1e-8)
        assert row["calibration"] == pytest.approx(sum(a * b for a, b in zip(h, q, strict=True)) / clicks, rel=1e-8)
    empty = run(trial_of(*SETTINGS[0], PassPlan()), [])
    assert empty["average_loss"] is empty["auc"] is empty["calibration"] is None and empty["mistakes"] == 0
    json.dumps(empty, allow_nan=False)


def test_the_curve_rises_exponentially_and_ends_with_the_whole() -> None:
    """Average losses at 1, 2, 3, … examples, each that of the examples so far."""
    examples = generated(200, weights=False)
    trial = trial_of(*SETTINGS[0], PassPlan())
    row = run(trial, example_blocks_of(examples))
    points = trial.curve()
    counts = [point.examples for point in points]
    assert counts[:4] == [1, 2, 3, 4] and counts[-1] == 200
    assert all(b <= math.ceil(1.19 * a) + 1 for a, b in itertools.pairwise(counts))
    losses = progressive(oracle_for(*SETTINGS[0][:2], SETTINGS[0][2]), examples).losses
    for before, point in zip([None, *points], points, strict=False):
        first = before.examples if before else 0
        assert point.average_loss == pytest.approx(np.mean(losses[: point.examples]), rel=1e-9)
        assert point.recent_loss == pytest.approx(np.mean(losses[first : point.examples]), rel=1e-9)
    assert points[-1].average_loss == row["average_loss"]


def test_an_example_with_more_features_than_a_dictionary_leaves_room_for_begins_a_record() -> None:
    """Blocks with more than 65,536 distinct keys become several records, in order."""
    wide = [Example(dict.fromkeys(range(start, start + 30000), 1.0), 1.0) for start in range(0, 120_000, 30_000)]
    (block,) = example_blocks_of(wide, 4)
    assert [len(record) for record in block.records] == [2, 2]
    keys = [record.keys[record.indices].tolist() for record in block.records]
    assert [key for part in keys for key in part] == batch_of(wide).keys.tolist()
