"""The oracle's learner and scorer: examples in, the bits of the model out.

It folds one example after another over dicts and plain floats, as McMahan et al. 2013, Algorithm 1 reads, and must
share no code with the product.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterable, Mapping
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
    inv_alpha = 1.0 / s["alpha"]
    state: dict[int, tuple[float, float]] = {} if before is None else dict(before.state)
    predictions: list[float] = []
    loss_sum, weight_sum = (0.0, 0.0) if before is None else (before.log_loss_sum, before.weight_sum)
    folded, refused = (0, 0) if before is None else (before.folded, before.refused)
    for e in sorted(examples, key=lambda e: (e.tick, e.partition)):  # stable: keeps the sequence
        h, y = e.weight, e.label
        rows = [state.get(key, (0.0, 0.0)) for key, _ in e.features]
        weights = [weight_of(z, n, s) for z, n in rows]
        p = dot((w, x) for w, (_, x) in zip(weights, e.features, strict=True))
        fine = all(map(math.isfinite, (h, y, p))) and h >= 0 and 0 <= y <= 1
        q = sigmoid(p, exp) if fine else math.nan
        d = h * (q - y)
        changed: dict[int, tuple[float, float]] = {}
        for (key, x), (z, n), w in zip(e.features, rows, weights, strict=True):
            g = d * x
            if g == 0.0:
                continue
            n1 = n + g * g
            sigma = (math.sqrt(n1) - math.sqrt(n)) * inv_alpha
            changed[key] = (z + (g - sigma * w), n1)
        if not math.isfinite(d) or not all(math.isfinite(v) for row in changed.values() for v in row):
            refused += 1
            predictions.append(math.nan)
            continue
        state.update(changed)
        predictions.append(q)
        loss_sum += h * log_loss(p, y, exp, log1p)
        weight_sum += h
        folded += 1
    return Fold(state, predictions, loss_sum, weight_sum, folded, refused)


def model_digest(state: Mapping[int, tuple[float, ...]], folded: int) -> str:
    """Sixteen hex digits that stand for every bit of the learner's state."""
    rows_sum = 0
    for key, columns in state.items():
        if any(column != 0.0 for column in columns):
            h = mix(key)
            for column in columns:
                h = mix(h ^ bits(column))
            rows_sum = (rows_sum + h) & MASK
    return f"{mix(rows_sum ^ mix(folded)):016x}"


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
