"""Random problems that keep off ties and kinks.

In: a seed. Out: losses, sparse examples with importance, gradients. Continuous values make exact ties improbable;
labels follow each loss's domain.
"""

from __future__ import annotations

import numpy as np

from tests.oracles.optimizers.base import Example, Vector
from tests.oracles.optimizers.losses import LOSSES, Loss, Quantile, make_loss

LOSS_NAMES = sorted(LOSSES)


def some_loss(name: str, rng: np.random.Generator) -> Loss:
    """The loss, with random options where it has any."""
    if name == "squared":
        return make_loss(name, factor=float(rng.choice([1.0, 2.0])))
    if name == "quantile":
        return make_loss(name, tau=float(rng.uniform(0.1, 0.9)))
    if name in ("logarithmic", "hellinger"):
        return make_loss(name, delta=1e-3)
    return make_loss(name)


def some_label(loss: Loss, rng: np.random.Generator) -> float:
    """A label of the loss's domain."""
    if loss.name in ("logistic", "hinge", "exponential"):
        return float(rng.choice([-1.0, 1.0]))
    if loss.name in ("log_loss", "logarithmic", "hellinger"):
        return float(rng.choice([0.0, 1.0]))
    if loss.name == "poisson":
        return float(rng.integers(0, 5))
    return float(rng.normal())


def some_prediction(loss: Loss, rng: np.random.Generator) -> float:
    """A prediction that the loss can read, away from its bounds."""
    if loss.name in ("logarithmic", "hellinger"):
        return float(rng.uniform(0.1, 0.9))
    return float(rng.normal() * 2.0)


def some_examples(loss: Loss, rng: np.random.Generator, rows: int, dimension: int) -> list[Example]:
    """Sparse examples with importances between ½ and 2."""
    examples = []
    for _ in range(rows):
        chosen = rng.choice(dimension, size=int(rng.integers(1, dimension + 1)), replace=False)
        x = {int(i): float(rng.normal()) for i in chosen}
        examples.append(Example(x, some_label(loss, rng), float(rng.uniform(0.5, 2.0))))
    return examples


def some_gradients(rng: np.random.Generator, rounds: int, dimension: int) -> list[Vector]:
    """Gradients of which about a third of the coordinates are 0."""
    g = rng.normal(size=(rounds, dimension))
    return list(np.where(rng.uniform(size=g.shape) < 0.3, 0.0, g))


def off_kinks(loss: Loss, p: float, y: float, margin: float = 1e-3) -> bool:
    """Whether a small step from p stays on one side of the loss's kink."""
    if loss.name == "hinge":
        return abs(1.0 - y * p) > margin
    return not isinstance(loss, Quantile) or abs(p - y) > margin
