"""Optimizers on random sparse problems, folded by `Learner` and told by the dense oracle.

The oracle touches every coordinate at every step, so that what a lazy rule leaves for later is checked as well.
"""

from __future__ import annotations

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from stream_learner.core.model.fold import Learner
from stream_learner.core.model.losses import LOSSES, make_loss
from stream_learner.core.model.optimizers import make_optimizer
from tests.core.model.example_records import Example, as_record
from tests.oracles import optimizers as oracle_optimizers
from tests.oracles.optimizers.base import constant, powers, root
from tests.oracles.optimizers.losses import Loss as OracleLoss
from tests.oracles.optimizers.losses import Squared

LOSS_NAMES = tuple(LOSSES)
OPTIONS: dict[str, dict[str, float]] = {
    "quantile": {"tau": 0.7},
    "logarithmic": {"delta": 0.05},
    "hellinger": {"delta": 0.05},
}
DIMENSION = 12
TOLERANCE = 1e-9


class ClippedSquared(Squared):
    """(p - y)^2 with the prediction clipped to the range of the labels checked so far, and 0."""

    def __init__(self) -> None:
        super().__init__(factor=2.0)
        self.low = self.high = 0.0

    def check(self, y: float) -> None:
        super().check(y)
        self.low, self.high = min(self.low, y), max(self.high, y)

    def read(self, p: float) -> float:
        return min(max(p, self.low), self.high)


class Linear(OracleLoss):
    """y p: a game of given gradients."""

    name = "linear"

    def value(self, p: float, y: float) -> float:
        return y * p

    def slope(self, p: float, y: float) -> float:
        return y


def oracle_loss(name: str) -> OracleLoss:
    """The oracle's loss for one of ours, with the options used here."""
    if name == "squared":
        return ClippedSquared()
    if name == "linear":
        return Linear()
    theirs = {"half_squared": "squared", "logistic": "log_loss"}.get(name, name)
    return oracle_optimizers.make_loss(theirs, **OPTIONS.get(name, {}))


def oracle_for(name: str, loss: str, hyper: Mapping[str, Any], dimension: int = DIMENSION) -> Any:
    """The dense oracle with our hyper-parameters."""
    given = {key: value for key, value in hyper.items() if value is not None and key != "dimension"}
    if name == "ftrl_proximal_growing_l1":
        name, given["l1_grows"] = "ftrl_proximal", True
    eta = given.get("eta", 0.1)
    schedule = given.pop("schedule", "constant")
    power = {key: given.pop(key) for key in ("decay", "t0", "power") if key in given}
    if schedule != "constant":
        given["eta"] = root(eta) if schedule == "root" else powers(eta, **power)
    elif "eta" in given:
        given["eta"] = constant(eta) if name not in ("adagrad", "invariant") else eta
    return oracle_optimizers.make(name, dimension, oracle_loss(loss), **given)


def learner_for(name: str, loss: str, hyper: Mapping[str, Any]) -> Learner:
    """Our learner with the same."""
    return Learner(make_optimizer({"name": name, **hyper}), loss=make_loss(loss, **OPTIONS.get(loss, {})))


def key_of(coordinate: int) -> int:
    """The feature key of a coordinate of the oracle."""
    return (coordinate + 1) * 0x9E3779B97F4A7C15 % (1 << 64)


KEYS = np.array([key_of(i) for i in range(DIMENSION)], np.uint64)
COORDINATE_OF = {key_of(i): i for i in range(DIMENSION)}


def some_label(loss: str, rng: random.Random) -> float:
    """A label of the loss's domain, in either notation."""
    if loss in ("logistic", "hinge", "exponential", "logarithmic", "hellinger"):
        return rng.choice((1.0, 0.0, -1.0, 1.0))
    if loss == "poisson":
        return float(rng.randrange(5))
    return rng.gauss(0.3, 1.0)


def some_examples(loss: str, seed: int, *, count: int = 80, scale: float = 0.6) -> list[Example]:
    """Examples over `DIMENSION` coordinates, few at a time, of which half rest for long; importances with 0."""
    rng = random.Random(f"{loss} {seed}")
    examples = []
    for t in range(count):
        awake = DIMENSION if t % 20 < 3 else DIMENSION // 2
        chosen = rng.sample(range(awake), rng.randrange(0 if t % 9 == 4 else 1, 5))
        features = tuple((key_of(i), rng.gauss(0.0, scale) if rng.random() < 0.95 else 0.0) for i in chosen)
        importance = rng.choice((1.0, 1.0, rng.uniform(0.5, 2.0), rng.uniform(0.5, 2.0), 0.0))
        examples.append(Example(features, some_label(loss, rng), importance))
    return examples


def resting_examples(loss: str, seed: int, *, count: int = 400, scale: float = 0.6) -> list[Example]:
    """Two coordinates are in every other example; the others come up ever more rarely, the last hardly twice."""
    rng = random.Random(f"resting {loss} {seed}")
    examples = []
    for t in range(count):
        chosen = [i for i in range(DIMENSION) if rng.random() < (0.5 if i < 2 else 1.0 / (10.0 * i))]
        if t == DIMENSION:
            chosen = list(range(DIMENSION))
        features = tuple((key_of(i), rng.gauss(0.0, scale)) for i in chosen)
        importance = rng.choice((1.0, 1.0, rng.uniform(0.5, 2.0), 0.0))
        examples.append(Example(features, some_label(loss, rng), importance))
    return examples


def in_domain(loss: str, y: float) -> float:
    """The label as the oracle writes it."""
    if loss in ("hinge", "exponential"):
        return -1.0 if y == 0.0 else y
    if loss in ("logistic", "logarithmic", "hellinger"):
        return 0.0 if y == -1.0 else y
    return y


def oracle_margin(oracle: Any, loss: str, example: Example) -> float:
    """The oracle's prediction before it learns the example; then it learns it."""
    y = in_domain(loss, example.label)
    x = {COORDINATE_OF[key]: value for key, value in example.features}
    oracle.of.check(y)
    margin = float(oracle.predict(x, example.weight))
    oracle.update(x, y, example.weight)
    return margin


def weights_of(learner: Learner) -> NDArray[np.float64]:
    """The weights of all coordinates, of rows never touched too."""
    return learner.weights(learner.table.rows_of(KEYS).columns)


def played(name: str, hyper: Mapping[str, Any], gradients: Sequence[float]) -> tuple[Learner, list[float]]:
    """A learner of one feature that gets these gradients, and its weight after each."""
    learner, path = learner_for(name, "linear", hyper), []
    for g in gradients:
        learner.fold(as_record([Example(((key_of(0), 1.0),), g)]), 0)
        path.append(float(weights_of(learner)[0]))
    return learner, path


def assert_agrees(
    name: str,
    loss: str,
    hyper: Mapping[str, Any],
    seed: int = 0,
    *,
    passes: int = 1,
    examples: Sequence[Example] | None = None,
    tolerance: float = TOLERANCE,
) -> None:
    """Margins of every example, and all weights after every few, equal the oracle's."""
    learner, oracle = learner_for(name, loss, hyper), oracle_for(name, loss, hyper)
    stream = list(some_examples(loss, seed) if examples is None else examples)
    tick = 0
    for _ in range(passes):
        rest = stream
        while rest:
            part, rest = rest[: 1 + tick % 7], rest[1 + tick % 7 :]
            margins = learner.fold(as_record(part, shuffle=tick), tick)
            expected = [oracle_margin(oracle, loss, example) for example in part]
            assert margins.tolist() == pytest.approx(expected, rel=tolerance, abs=tolerance)
            assert weights_of(learner).tolist() == pytest.approx(
                oracle.weights().tolist(), rel=tolerance, abs=tolerance
            )
            tick += 1
        learner.end_pass()
        oracle.end_pass()
    assert learner.refused == 0
    assert np.abs(weights_of(learner)).max() > 0.0


def bits_of(learner: Learner) -> tuple[Any, ...]:
    """Everything that must not depend on how a learner came by its examples."""
    rows = {int(k): tuple(c) for p in learner.table.items() for k, c in zip(p.keys, p.columns.tolist(), strict=True)}
    return rows, learner.digest(), learner.state_scalars(), weights_of(learner).tolist()


def folded(make: Callable[[], Learner], examples: Sequence[Example], size: int) -> Learner:
    """A learner that took the examples in records of `size`, each dictionary in another order."""
    learner = make()
    for start in range(0, len(examples), size):
        learner.fold(as_record(list(examples[start : start + size]), shuffle=start), 0)
    return learner


def assert_cuts_change_nothing(name: str, loss: str, hyper: Mapping[str, Any]) -> None:
    """Records of 1, 7 and all examples: the same bits."""
    examples = some_examples(loss, 5)
    whole, *others = (folded(lambda: learner_for(name, loss, hyper), examples, size) for size in (1000, 7, 1))
    for other in others:
        assert bits_of(other) == bits_of(whole)
    assert whole.digest() == whole.digest_full()


def assert_restores(name: str, loss: str, hyper: Mapping[str, Any]) -> None:
    """State through JSON and rows through `load`, in the middle: the same bits at the end."""
    examples = some_examples(loss, 6)
    straight = folded(lambda: learner_for(name, loss, hyper), examples, 11)
    before = folded(lambda: learner_for(name, loss, hyper), examples[:44], 11)
    after = learner_for(name, loss, hyper)
    for rows in before.table.items():
        after.table.load(rows)
    after.restore(json.loads(json.dumps(before.state_scalars())))
    assert weights_of(after).tolist() == weights_of(before).tolist()
    for start in range(44, len(examples), 11):
        after.fold(as_record(examples[start : start + 11]), 0)
    assert bits_of(after) == bits_of(straight)


BAD_EXAMPLES = (
    Example(((key_of(0), 1.0), (key_of(1), math.nan)), 1.0),
    Example(((key_of(0), 1.0), (key_of(1), math.inf)), 1.0),
    Example(((key_of(8), -math.inf), (key_of(1), 1.0)), 1.0),
    Example(((key_of(2), 3.0), (key_of(9), 1.0)), math.nan),
    Example(((key_of(2), 3.0), (key_of(9), 1.0)), 1.0, -1.0),
    Example(((key_of(2), 3.0), (key_of(9), 1.0)), 1.0, math.nan),
    Example(((key_of(2), 3.0), (key_of(9), 1.0)), 1.0, math.inf),
)


def assert_refused_change_nothing(name: str, loss: str, hyper: Mapping[str, Any]) -> None:
    """Examples that are not finite leave rows, scalars and digest as they are, to the bit, and are counted."""
    good = some_examples(loss, 7, count=30)
    undisturbed = folded(lambda: learner_for(name, loss, hyper), good, 10)
    disturbed = learner_for(name, loss, hyper)
    for start in range(0, 30, 10):
        part = good[start : start + 10]
        margins = disturbed.fold(as_record([*part[:5], *BAD_EXAMPLES, *part[5:]]), 0)
        assert np.isnan(margins).tolist() == [False] * 5 + [True] * len(BAD_EXAMPLES) + [False] * 5
    assert disturbed.refused == 3 * len(BAD_EXAMPLES)
    rows, digest, scalars, weights = bits_of(disturbed)
    expected_rows, expected_digest, expected_scalars, expected_weights = bits_of(undisturbed)
    assert (rows, digest, weights) == (expected_rows, expected_digest, expected_weights)
    assert scalars["scalars"] == expected_scalars["scalars"]
