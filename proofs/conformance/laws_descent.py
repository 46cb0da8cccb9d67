"""Laws of gradient descent, of importance-aware updates, and of losses."""

from __future__ import annotations

import numpy as np

from proofs.conformance.law import Finding, Law, close, follows_the_paper, paper, sparse_problem, weight
from proofs.conformance.subject import Subject

ETA = 0.1


def descent(loss: str) -> Law:
    """Plain gradient descent at a constant rate: value and slope of a loss."""

    def check(subject: Subject) -> Finding:
        examples = [example._replace(h=1.0) for example in sparse_problem()]
        if loss == "poisson":
            examples = [example._replace(y=example.y + 1.0) for example in examples]
        return follows_the_paper(subject, "ogd", loss, examples, eta=ETA)

    return Law(f"descent, {loss}", f"w −= ηg with the slope of the {loss} loss", "[SM] eq. 1, [VW]", check)


def first_adagrad_step(subject: Subject) -> Finding:
    """The sum of squares includes the current gradient, so the first step has length eta, whatever the feature."""
    steps = []
    for value in (1.0, 1e-3):
        machine = subject.make("adagrad", "logistic", eta=ETA)
        machine.learn({1: value}, 1.0)
        steps.append(weight(machine, 1))
    holds = all(close(step, ETA, 1e-3) for step in steps)
    return Finding(holds, f"first steps {steps[0]:.6g} and, of a feature of 0.001, {steps[1]:.6g}; due {ETA}")


def averaged(subject: Subject) -> Finding:
    """Gradients are taken at w_t; predictions use the mean."""
    examples = [example._replace(h=1.0) for example in sparse_problem()]
    return follows_the_paper(subject, "averaged", "logistic", examples, eta=ETA)


def replicated(loss: str) -> Law:
    """The law of importance: at a constant rate, importance a + b equals importance a, then b."""

    def check(subject: Subject) -> Finding:
        worst = 0.0
        rng = np.random.default_rng(5)
        for _ in range(20):
            once, twice = (subject.make("invariant", loss, eta=ETA) for _ in range(2))
            x = {1: float(np.float32(rng.normal())), 2: float(np.float32(rng.normal()))}
            a, b = (float(np.float32(h)) for h in rng.uniform(0.5, 8.0, 2))
            for machine in (once, twice):
                machine.learn({1: 1.0, 3: 1.0}, 1.0)
            once.learn(x, -1.0, a + b)
            twice.learn(x, -1.0, a)
            twice.learn(x, -1.0, b)
            worst = max(worst, *(abs(weight(once, i) - weight(twice, i)) for i in (1, 2)))
        limit = max(subject.tolerance, 1e-9)
        return Finding(worst <= limit, f"weights differ by at most {worst:.3g} over 20 pairs")

    return Law(f"invariance, {loss}", f"importance a + b is a, then b ({loss})", "[VW]", check)


def no_overshoot(subject: Subject) -> Finding:
    """The margin of an example never passes the point where its loss is 0, however large its importance."""
    machine = subject.make("invariant", "hinge", eta=ETA)
    machine.learn({1: 2.0}, 1.0, 1e6)
    seen = machine.margin({1: 2.0})
    return Finding(close(seen, 1.0, 1e-4), f"margin {seen:.6g} after importance 10⁶, due 1")


def small_steps(subject: Subject) -> Finding:
    """An invariant logistic step is a gradient step where h eta X is small, and never goes the wrong way."""
    wrong = []
    for exponent in np.arange(-5.75, -3.0, 0.25):
        machine = subject.make("invariant", "logistic", eta=1.0)
        oracle = paper("invariant", "logistic", eta=1.0)
        value = float(np.float32(np.sqrt(10.0**exponent)))
        machine.learn({1: value}, 1.0)
        oracle.update({1: value}, 1.0)
        due, seen = float(oracle.weights()[1]), weight(machine, 1)
        if not close(seen / due, 1.0, 0.05):
            wrong.append((exponent, seen / due))
    if not wrong:
        return Finding(True, "hηX from 10^-5.75 to 10^-3: all steps within 5 % of the exact ones")
    exponent, share = min(wrong, key=lambda pair: pair[1])
    return Finding(False, f"{len(wrong)} of 11 steps are off; at hηX = 10^{exponent:.2f} the step is {share:.2f} × due")


def scale_free(subject: Subject) -> Finding:
    """The default update does not depend on the unit of a feature."""
    one, other = (subject.make("vw", "logistic") for _ in range(2))
    units = {1: 1.0, 2: 1000.0, 3: 0.01}
    worst = 0.0
    rng = np.random.default_rng(3)
    for _ in range(100):
        x = {i: float(np.float32(rng.normal())) for i in units}
        scaled = {i: value * units[i] for i, value in x.items()}
        worst = max(worst, abs(one.margin(x) - other.margin(scaled)))
        y = float(rng.choice([-1.0, 1.0]))
        one.learn(x, y)
        other.learn(scaled, y)
    return Finding(worst <= 1e-3, f"margins differ by at most {worst:.2g} when features change their units")


LAWS = (
    *(descent(loss) for loss in ("logistic", "hinge", "poisson")),
    Law("AdaGrad's first step", "the current gradient is in G2", "[F], [VW], corrected", first_adagrad_step),
    Law("averaged SGD", "gradients at w_t, predictions with the mean", "[VW]", averaged),
    *(replicated(loss) for loss in ("logistic", "hinge", "squared", "quantile")),
    Law("no overshoot", "an invariant hinge step stops at yp = 1", "[VW]", no_overshoot),
    Law("small invariant steps", "a small invariant step is a gradient step", "[VW]", small_steps),
    Law("scale-free", "the default update is scale-free in each feature", "[VW]", scale_free),
)
