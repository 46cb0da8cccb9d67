"""Laws of FTRL-Proximal, and the mistakes that public implementations are known for."""

from __future__ import annotations

import math

from proofs.conformance.law import Finding, Law, close, follows_the_paper, paper, sparse_problem, weight
from proofs.conformance.subject import Subject

PLAIN = {"alpha": 0.3, "beta": 1.0, "l1": 0.0, "l2": 0.0}
SPARSE = {"alpha": 0.5, "beta": 1.0, "l1": 1.0, "l2": 0.5}
NAME = "ftrl_proximal"


def algorithm_1(subject: Subject) -> Finding:
    """All margins of a random problem with L1 and L2, importances 1."""
    examples = [example._replace(h=1.0) for example in sparse_problem()]
    return follows_the_paper(subject, NAME, "logistic", examples, **SPARSE)


def importance(subject: Subject) -> Finding:
    """All margins of a problem with importances: an importance scales the gradient, whose square enters n."""
    return follows_the_paper(subject, NAME, "logistic", sparse_problem(), **SPARSE)


def newest_weights(subject: Subject) -> Finding:
    """The weight moves as soon as one example is learned."""
    machine = subject.make(NAME, "logistic", **PLAIN)
    machine.learn({1: 1.0}, 1.0)
    due, seen = float(_after_one({1: 1.0})), weight(machine, 1)
    return Finding(close(seen, due, subject.tolerance), f"the weight after one example is {seen:.6g}, due {due:.6g}")


def _after_one(x: dict[int, float]) -> float:
    oracle = paper(NAME, "logistic", **PLAIN)
    oracle.update(x, 1.0)
    return float(oracle.weights()[1])


def returns_to_zero(subject: Subject) -> Finding:
    """A weight becomes 0 again as soon as |z| <= l1."""
    machine, oracle = subject.make(NAME, "logistic", **SPARSE), paper(NAME, "logistic", **SPARSE)
    was_set = False
    for y in [1.0] * 6 + [-1.0] * 40:
        machine.learn({1: 1.0}, y)
        oracle.update({1: 1.0}, y)
        # One more example, of another feature: a program that writes weights late has written this weight by now.
        machine.learn({1: 0.0, 2: 1.0}, 1.0)
        was_set |= oracle.weights()[1] > 0.0
        if was_set and oracle.weights()[1] == 0.0:
            seen = weight(machine, 1)
            return Finding(seen == 0.0, f"|z| is under l1 again and the weight is {seen:.6g}, due 0")
    raise AssertionError("the paper's own weight never returned")


def shrinks(subject: Subject) -> Finding:
    """L1 pulls a weight towards 0: the penalty has the sign of z."""
    with_l1, without = (subject.make(NAME, "logistic", **{**PLAIN, "l1": l1}) for l1 in (0.2, 0.0))
    for machine in (with_l1, without):
        for _ in range(5):
            machine.learn({1: 1.0, 2: -1.0}, 1.0)
    pairs = [(weight(with_l1, i), weight(without, i)) for i in (1, 2)]
    holds = all(abs(a) < abs(b) and a * b > 0.0 for a, b in pairs)
    return Finding(holds, "; ".join(f"{a:.4g} with the penalty, {b:.4g} without" for a, b in pairs))


def restored(subject: Subject) -> Finding:
    """z and n are kept by a restart."""
    examples = sparse_problem()
    through, broken = (subject.make(NAME, "logistic", **SPARSE) for _ in range(2))
    for number, (x, y, h) in enumerate(examples):
        if number == len(examples) // 2:
            broken = broken.restored()
        through.learn(x, y, h)
        broken.learn(x, y, h)
    pairs = [(weight(through, i), weight(broken, i)) for i in range(1, 9)]
    worst = max(abs(a - b) for a, b in pairs)
    return Finding(worst == 0.0, f"weights after a restart in the middle differ by at most {worst:.3g}")


def zeros_change_nothing(subject: Subject) -> Finding:
    """Features with the value 0 change nothing."""
    sparse, dense = (subject.make(NAME, "logistic", **SPARSE) for _ in range(2))
    for x, y, h in sparse_problem():
        sparse.learn(x, y, h)
        dense.learn({i: x.get(i, 0.0) for i in range(1, 9)}, y, h)
    pairs = [(weight(sparse, i), weight(dense, i)) for i in range(1, 9)]
    worst = max(abs(a - b) for a, b in pairs)
    return Finding(all(close(a, b, subject.tolerance) for a, b in pairs), f"weights differ by at most {worst:.3g}")


def large_gradients(subject: Subject) -> Finding:
    """n adds the square of the whole gradient, however large: it is not clipped."""
    examples = [({1: 50.0}, 1.0, 3.0), ({1: 1.0}, -1.0, 1.0), ({1: 200.0}, -1.0, 2.0), ({1: 1.0}, 1.0, 1.0)]
    machine, oracle = subject.make(NAME, "logistic", **PLAIN), paper(NAME, "logistic", **PLAIN)
    for x, y, h in examples:
        machine.learn(x, y, h)
        oracle.update(x, y, h)
    machine.learn({2: 1.0}, 1.0)
    due, seen = float(oracle.weights()[1]), weight(machine, 1)
    return Finding(close(seen, due, subject.tolerance), f"the weight is {seen:.6g}, due {due:.6g}")


def per_coordinate(subject: Subject) -> Finding:
    """With l1 = l2 = 0 the step is alpha g / (beta + sqrt G2)."""
    machine = subject.make(NAME, "logistic", **PLAIN)
    w = squares = 0.0
    for number, y in enumerate([1.0, 1.0, -1.0, 1.0, -1.0, -1.0, 1.0] * 5, 1):
        if not close(weight(machine, 1), w, subject.tolerance):
            return Finding(False, f"before example {number} the weight is {weight(machine, 1):.6g}, due {w:.6g}")
        g = -y / (1.0 + math.exp(y * w))
        squares += g * g
        w -= PLAIN["alpha"] * g / (PLAIN["beta"] + math.sqrt(squares))
        machine.learn({1: 1.0}, y)
    return Finding(True, f"{number} steps")


LAWS = (
    Law("newest weights", "the next prediction knows of the last example", "[G] Alg. 1", newest_weights),
    Law("Algorithm 1", "every margin with L1 and L2 is the paper's", "[G] Alg. 1", algorithm_1),
    Law("importance", "importance scales the gradient", "[G] Alg. 1, [VW]", importance),
    Law("back to zero", "a weight is 0 again when |z| ≤ λ1 again", "[G] Alg. 1", returns_to_zero),
    Law("sign of L1", "the penalty pulls towards 0", "[G] Alg. 1", shrinks),
    Law("restart", "z and n outlive a restart", "[G] Alg. 1", restored),
    Law("written zeros", "dense and sparse examples are learned alike", "[G] Alg. 1", zeros_change_nothing),
    Law("large gradients", "nothing is clipped before it is squared into n", "[G] Alg. 1", large_gradients),
    Law("per coordinate", "with λ1 = λ2 = 0: w −= αg/(β + √G2)", "[G], [SM]", per_coordinate),
)
