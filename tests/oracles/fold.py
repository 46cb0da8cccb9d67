"""The oracle's learner and scorer: examples in, the bits of the model out.

It folds one example after another over dicts and plain floats, as McMahan et al. 2013, Algorithm 1 reads, and must
share no code with the product.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from tests.oracles.arithmetic import (
    MASK,
    bits,
    dot,
    exp_documented,
    log1p_documented,
    log_loss,
    mix,
    sigmoid,
)
from tests.oracles.events import Features, Settings
from tests.oracles.join import Example


class Fold(NamedTuple):
    """The learner's state after all examples, and what it said on the way."""

    state: dict[int, tuple[float, float]]  # key -> (z, n)
    predictions: list[float]  # one an example, before its update; nan where it was refused
    log_loss_sum: float
    weight_sum: float
    folded: int
    refused: int

    @property
    def digest(self) -> str:
        """The model digest, as printed."""
        return model_digest(self.state, self.folded)


def weight_of(z: float, n: float, s: Settings) -> float:
    """The weight that (z, n) stands for, McMahan et al. 2013, Algorithm 1."""
    if abs(z) <= s["l1"]:
        return 0.0
    denominator = (s["beta"] + math.sqrt(n)) * (1.0 / s["alpha"]) + s["l2"]
    return 0.0 if denominator == 0.0 else -(z - math.copysign(s["l1"], z)) / denominator


class Ftrl:
    """FTRL-Proximal on logistic loss over a dictionary key -> (z, n), one example after the other."""

    def __init__(
        self, alpha: float, beta: float, l1: float, l2: float, exp: Callable[[float], float] = exp_documented
    ) -> None:
        self.s: Settings = {"alpha": alpha, "beta": beta, "l1": l1, "l2": l2}
        self.exp = exp
        self.rows: dict[int, tuple[float, float]] = {}
        self.touched: dict[int, int] = {}
        """The tick in which a row changed last."""
        self.examples = self.refused = 0

    def weight(self, key: int) -> float:
        """The weight of a feature now."""
        return weight_of(*self.rows.get(key, (0.0, 0.0)), self.s)

    def learn(self, features: Sequence[tuple[int, float]], y: float, h: float, tick: int) -> float:
        """Fold one example; returns the margin, NaN if it was refused. A label of -1 is read as 0."""
        y, inv_alpha = 0.0 if y == -1.0 else y, 1.0 / self.s["alpha"]
        weights = [self.weight(key) for key, _ in features]
        p = dot((w, x) for w, (_, x) in zip(weights, features, strict=True))
        fine = all(map(math.isfinite, (h, y, p))) and h >= 0 and 0 <= y <= 1
        d = h * (sigmoid(p, self.exp) - y) if fine else math.nan
        changed: dict[int, tuple[float, float]] = {}
        for (key, x), w in zip(features, weights, strict=True):
            g = d * x
            if g == 0.0:
                continue
            z, n = self.rows.get(key, (0.0, 0.0))
            n1 = n + g * g
            sigma = (math.sqrt(n1) - math.sqrt(n)) * inv_alpha
            changed[key] = (z + (g - sigma * w), n1)
        if not math.isfinite(d) or not all(math.isfinite(v) for row in changed.values() for v in row):
            self.refused += 1
            return math.nan
        self.examples += 1
        for key, row in changed.items():
            if row != self.rows.get(key, (0.0, 0.0)):
                self.rows[key], self.touched[key] = row, tick
        return p

    def digest(self) -> int:
        """The model's digest."""
        return _digest(self.rows, self.examples)


def fold(
    examples: Iterable[Example],
    s: Settings,
    exp: Callable[[float], float] = exp_documented,
    log1p: Callable[[float], float] = log1p_documented,
    before: Fold | None = None,
) -> Fold:
    """FTRL-Proximal over the examples of all partitions, in the order (tick, partition, sequence).

    before: the fold of earlier ticks that this one goes on from.
    """
    model = Ftrl(s["alpha"], s["beta"], s["l1"], s["l2"], exp)
    predictions: list[float] = []
    loss_sum = weight_sum = 0.0
    if before is not None:
        model.rows, model.examples, model.refused = dict(before.state), before.folded, before.refused
        loss_sum, weight_sum = before.log_loss_sum, before.weight_sum
    for e in sorted(examples, key=lambda e: (e.tick, e.partition)):  # stable: keeps the sequence
        p = model.learn(e.features, e.label, e.weight, e.tick)
        predictions.append(math.nan if math.isnan(p) else sigmoid(p, exp))
        if not math.isnan(p):
            loss_sum += e.weight * log_loss(p, e.label, exp, log1p)
            weight_sum += e.weight
    return Fold(model.rows, predictions, loss_sum, weight_sum, model.examples, model.refused)


def model_digest(state: Mapping[int, tuple[float, ...]], folded: int) -> str:
    """Sixteen hex digits that stand for every bit of the learner's state."""
    return f"{_digest(state, folded):016x}"


def _digest(state: Mapping[int, tuple[float, ...]], folded: int) -> int:
    rows_sum = 0
    for key, columns in state.items():
        if any(column != 0.0 for column in columns):
            h = mix(key)
            for column in columns:
                h = mix(h ^ bits(column))
            rows_sum = (rows_sum + h) & MASK
    return mix(rows_sum ^ mix(folded))


def published(state: dict[int, tuple[float, float]], s: Settings) -> dict[int, float]:
    """The model as a scorer holds it: non-zero weights in float32."""
    weights = {}
    for key, (z, n) in state.items():
        w = float(struct.unpack("<f", struct.pack("<f", weight_of(z, n, s)))[0])
        if w != 0.0:
            weights[key] = w
    return weights


def predict(weights: dict[int, float], event_features: Features) -> float:
    """A scorer's prediction for hashed features."""
    return sigmoid(dot((weights.get(key, 0.0), x) for key, x in event_features))
