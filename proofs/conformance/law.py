"""The types of laws and findings, and how a subject is held against the oracle of a paper."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import numpy as np

from proofs.conformance.subject import Features, Subject
from tests.oracles.optimizers import make, make_loss
from tests.oracles.optimizers.base import Example, Optimizer


class Finding(NamedTuple):
    """A law, whether it holds, and an example that shows it."""

    holds: bool
    seen: str


class Law(NamedTuple):
    """A statement of a paper that a program keeps or breaks. `check` raises NotOffered if the subject cannot be
    asked."""

    name: str
    says: str
    source: str
    check: Callable[[Subject], Finding]


def sparse_problem(rows: int = 200, dimension: int = 8, seed: int = 11) -> list[Example]:
    """Random examples of one to four features of any size and sign, labels -1 and 1, importances between 1/2 and 2."""
    rng = np.random.default_rng(seed)
    examples = []
    for _ in range(rows):
        chosen = rng.choice(dimension, size=int(rng.integers(1, 5)), replace=False) + 1
        x = {int(i): float(np.float32(rng.normal())) for i in sorted(chosen)}
        y = float(rng.choice([-1.0, 1.0]))
        examples.append(Example(x, y, float(np.float32(rng.uniform(0.5, 2.0)))))
    return examples


def paper(algorithm: str, loss: str, dimension: int = 9, **hyper: Any) -> Optimizer:
    """The dense oracle of an algorithm; features are numbered from 1."""
    return make(algorithm, dimension, make_loss(loss), **hyper)


def follows_the_paper(
    subject: Subject, algorithm: str, loss: str, examples: Iterable[Example], **hyper: float
) -> Finding:
    """Compare every margin before its update with the paper's."""
    machine, oracle = subject.make(algorithm, loss, **hyper), paper(algorithm, loss, **hyper)
    for number, (x, y, h) in enumerate(examples, 1):
        due, seen = oracle.predict(x), machine.margin(x)
        if not close(seen, due, subject.tolerance):
            return Finding(False, f"example {number}: margin {seen:.6g}, due {due:.6g}")
        machine.learn(x, y, h)
        oracle.update(x, y, h)
    return Finding(True, f"{number} margins within {subject.tolerance:g}")


def close(seen: float, due: float, tolerance: float) -> bool:
    """Whether two numbers are equal up to rounding, relative to 1 or the larger of them."""
    return math.isclose(seen, due, rel_tol=tolerance, abs_tol=tolerance)


def weight(machine: Any, feature: int) -> float:
    """The weight of one feature."""
    only: Features = {feature: 1.0}
    return float(machine.margin(only))
