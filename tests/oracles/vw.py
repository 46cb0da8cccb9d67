"""What Vowpal Wabbit 9.11 computes, step by step, in its own float32 or, for comparison, in float64.

In: a command line with the options below, lines of VW text. Out: the progressive loss that the tool prints, and
the predictions before each update. It follows "What VW 9.11 computes" of the algorithms' notes and nothing else;
powers, exponentials and logarithms are those of the machine's C library, which is what the tool calls.

- `Options`: the command line
- `Losses`: value, slope and importance-aware update of each loss
- `Descent`: adaptive, normalized, invariant updates in every combination
- `Proximal`, `Pistol`, `Coin`: `--ftrl`, `--pistol`, `--coin`
- `progressive`: examples, passes, holdout
"""

from __future__ import annotations

import argparse
import ctypes
import ctypes.util
import math
import shlex
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from tests.oracles.vw_text import Feature, Number, Real, VwExample, read_line

HOLDOUT_EVERY, PATIENCE = 10, 3


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(exit_on_error=False, allow_abbrev=False)
    for flag in ("sgd", "adaptive", "normalized", "invariant", "ftrl", "pistol", "coin", "holdout_off"):
        parser.add_argument(f"--{flag}", action="store_true")
    for name in ("power_t", "initial_t", "ftrl_alpha", "ftrl_beta"):
        parser.add_argument(f"--{name}", type=float)
    for name, value in (("l1", 0.0), ("l2", 0.0), ("quantile_tau", 0.5), ("decay_learning_rate", 1.0)):
        parser.add_argument(f"--{name}", type=float, default=value)
    parser.add_argument("-l", "--learning_rate", type=float)
    parser.add_argument("-b", "--bit_precision", type=int, default=18)
    parser.add_argument("-q", "--quadratic", action="append", default=[])
    for name, value in (("passes", 1), ("ngram", 1), ("skips", 0)):
        parser.add_argument(f"--{name}", type=int, default=value)
    parser.add_argument("--loss_function", default="squared")
    return parser


class Options:
    """A command line, with the defaults that depend on other options."""

    def __init__(self, command: str) -> None:
        self.given = _parser().parse_args(shlex.split(command))
        o = self.given
        chosen = o.adaptive or o.normalized or o.invariant or o.sgd
        self.adaptive, self.normalized, self.invariant = (
            (o.adaptive, o.normalized, o.invariant) if chosen else (True, True, True)
        )
        self.power_t = 0.5 if o.power_t is None else o.power_t
        both = self.adaptive and self.normalized
        self.eta = (0.5 if both else 10.0) if o.learning_rate is None else o.learning_rate
        plain = not (self.adaptive or self.normalized)
        self.initial_t = (1.0 if plain else 0.0) if o.initial_t is None else o.initial_t
        self.plain = plain


_LIBM = ctypes.CDLL(ctypes.util.find_library("m"))


def _libm(name: str, *arguments: Number) -> Number:
    """A function of the C library, in the type of its arguments: the one that the tool itself calls."""
    real = type(arguments[0])
    single = real is np.float32
    function = getattr(_LIBM, name + "f" if single else name)
    function.restype = ctypes.c_float if single else ctypes.c_double
    function.argtypes = [function.restype] * len(arguments)
    return real(function(*map(float, arguments)))


def lambert_minus(a: Number) -> Number:
    """About W(e^a) − a: one step of Newton's kind from a piecewise guess. Wrong, even in sign, for small steps."""
    x = float(a)
    w = 0.86 * x + 0.01 if x >= 1.0 else math.exp(0.8 * x - 0.65)
    r = x - math.log(w) - w if x >= 1.0 else 0.2 * x + 0.65 - w
    theta = 1.0 + w
    u = 2.0 * theta * (theta + 2.0 * r / 3.0)
    return type(a)(w * (1.0 + r / theta * (u - r) / (u - 2.0 * r)) - x)


class Losses:
    """One loss in one number type. Labels and predictions come in that type, and so do all results."""

    def __init__(self, name: str, real: Real, tau: float) -> None:
        self.name, self.real, self.tau = name, real, real(tau)
        self.value: Callable[[Number, Number], Number] = getattr(self, f"_{name}_value")
        self.slope: Callable[[Number, Number], Number] = getattr(self, f"_{name}_slope")
        self.aware: Callable[[Number, Number, Number, Number], Number] = getattr(self, f"_{name}_aware")

    def first_range(self) -> tuple[float, float]:
        """The label range before the first label."""
        return (-50.0, 50.0) if self.name in ("logistic", "poisson") else (0.0, 0.0)

    def _squared_value(self, p: Number, y: Number) -> Number:
        return (p - y) * (p - y)

    def _squared_slope(self, p: Number, y: Number) -> Number:
        return self.real(2) * (p - y)

    def _squared_aware(self, p: Number, y: Number, e: Number, size: Number) -> Number:
        if float(e * size) < 1e-6:
            return self.real(2) * (y - p) * e
        return (y - p) * (self.real(1) - _libm("exp", self.real(-2) * e * size)) / size

    def _between(self, of: Callable[[Number], Number], y: Number) -> Number:
        """The mean over the labels 1 and −1 that has mean label y: the tool takes logistic labels between them."""
        if abs(y) == 1:
            return of(y)
        share = (y + self.real(1)) / self.real(2)
        return share * of(self.real(1)) + (self.real(1) - share) * of(self.real(-1))

    def _logistic_value(self, p: Number, y: Number) -> Number:
        return self._between(lambda one: _libm("log", self.real(1) + _libm("exp", -one * p)), y)

    def _logistic_slope(self, p: Number, y: Number) -> Number:
        return self._between(lambda one: -one / (self.real(1) + _libm("exp", one * p)), y)

    def _logistic_aware(self, p: Number, y: Number, e: Number, size: Number) -> Number:
        def aware(one: Number) -> Number:
            d = _libm("exp", one * p)
            if float(e * size) < 1e-6:
                return one * e / (self.real(1) + d)
            return -(one * lambert_minus(e * size + one * p + d) + p) / size

        return self._between(aware, y)

    def blunt(self, p: Number, y: Number, e: Number) -> Number:
        """The update that is not importance-aware: −e times the slope."""
        if self.name == "logistic":
            return self._between(lambda one: one * e / (self.real(1) + _libm("exp", one * p)), y)
        return -self.slope(p, y) * e

    def _hinge_value(self, p: Number, y: Number) -> Number:
        return max(self.real(0), self.real(1) - y * p)

    def _hinge_slope(self, p: Number, y: Number) -> Number:
        return -y if y * p < 1 else self.real(0)

    def _hinge_aware(self, p: Number, y: Number, e: Number, size: Number) -> Number:
        error = self.real(1) - y * p
        return y * (e if e * size < error else error / size)

    def _quantile_value(self, p: Number, y: Number) -> Number:
        return self.tau * (y - p) if y > p else (self.real(1) - self.tau) * (p - y)

    def _quantile_slope(self, p: Number, y: Number) -> Number:
        if y == p:
            return self.real(0)
        return -self.tau if y > p else self.real(1) - self.tau

    def _quantile_aware(self, p: Number, y: Number, e: Number, size: Number) -> Number:
        pull = -self._quantile_slope(p, y)
        return pull * e if abs(pull * (e * size)) < abs(y - p) else (y - p) / size

    def _bounded(self, p: Number) -> Number:
        return min(max(p, self.real(-44)), self.real(44))

    def _poisson_value(self, p: Number, y: Number) -> Number:
        q = self._bounded(p)
        log_y = _libm("log", y + self.real(1e-6))
        return self.real(2) * (y * (log_y - q) - (y - _libm("exp", q)))

    def _poisson_slope(self, p: Number, y: Number) -> Number:
        return _libm("exp", self._bounded(p)) - y

    def _poisson_aware(self, p: Number, y: Number, e: Number, size: Number) -> Number:
        mean = _libm("exp", self._bounded(p))
        if y > 0:
            reach = y * e * size
            if reach > 44:
                return (_libm("log", y) - self._bounded(p)) / size
            grown = mean * _libm("expm1", reach) / y
            return y * e - _libm("log1p", grown) / size
        return -_libm("log1p", mean * e * size) / size


class Learner:
    """Label range, clipping, prediction. `learn` predicts and then, unless held out, updates."""

    def __init__(self, options: Options, real: Real) -> None:
        self.o, self.real = options, real
        self.loss = Losses(options.given.loss_function, real, options.given.quantile_tau)
        self.low, self.high = (real(bound) for bound in self.loss.first_range())

    def see_label(self, y: Number) -> None:
        """Step 1: predictions are clipped to the range of the labels seen."""
        self.low, self.high = min(self.low, y), max(self.high, y)

    def clipped(self, p: Number) -> Number:
        """The end of step 2."""
        return self.real(0) if math.isnan(p) else min(max(p, self.low), self.high)

    def learn(self, example: VwExample, held_out: bool) -> Number:
        """The prediction before the update."""
        raise NotImplementedError

    def end_pass(self) -> None:
        """End a pass over the data."""


class Descent(Learner):
    """The default and its parts: A adaptive, Z normalized, I invariant."""

    def __init__(self, options: Options, real: Real) -> None:
        super().__init__(options, real)
        self.q = real(options.power_t)
        self.t = options.initial_t
        self.eta = real(options.eta)
        if options.plain:
            self.eta = self.eta * _libm("pow", real(options.initial_t), self.q)
        self.n = self.total = float(options.initial_t)
        self.gravity, self.contraction = 0.0, 1.0
        self.m = real(1)
        self.state: dict[int, list[Number]] = {}

    def row(self, index: int) -> list[Number]:
        """w, G, s and the last r of an index."""
        zero = self.real(0)
        return self.state.setdefault(index, [zero, self.real(self.o.initial_t), zero, zero])

    def truncated(self, w: Number) -> Number:
        """S(w, γ). Logistic labels between −1 and 1 can turn γ negative: it then pushes away from 0, and 0 down."""
        gravity = self.real(self.gravity)
        if gravity == 0:
            return w
        if gravity < abs(w):
            return w - gravity if w > 0 else w + gravity
        return self.real(0)

    def learn(self, example: VwExample, held_out: bool) -> Number:
        y, h, features, _ = example
        p = self.real(0)
        for index, x in features:
            p = p + self.truncated(self.row(index)[0]) * x
        p = self.clipped(p * self.real(self.contraction))
        if held_out:
            return p
        if self.loss.value(p, y) > 0 and h != 0:
            d = self.loss.slope(p, y)
            size, m = self.measured(example, d)
            u = self.regularized(self.scalar(p, y, h, size), d)
            for index, x in features:
                row = self.row(index)
                row[0] = row[0] + u * m * (x if self.o.plain else x * row[3])
        self.t += float(h)
        return p

    def measured(self, example: VwExample, d: Number) -> tuple[Number, Number]:
        """Step 4: G and s move; X = Σ r_i x_i², and the multiplier m."""
        _, h, features, squares = example
        size, n_x = self.real(0), self.real(0)
        if self.o.plain:
            return squares, self.m
        pull = h * (d * d)
        if pull == 0:  # logistic loss with label 0, for one: no r moves, those of new features are 0, and X is 1
            return self.real(1), self.m
        for index, x in features:
            row = self.row(index)
            if self.o.adaptive:
                row[1] = row[1] + pull * (x * x)
            if self.o.normalized:
                self.rescale(row, abs(x))
                n_x = n_x + (x * x) / (row[2] * row[2])
            row[3] = self.rate(row)
            size = size + (x * x) * row[3]
        if self.o.normalized:
            self.n += float(h) * float(n_x)
            self.total += float(h)
            self.m = self.multiplier()
        return size * self.m, self.m

    def rescale(self, row: list[Number], x: Number) -> None:
        """s becomes the largest |x| seen, and w keeps its meaning."""
        if x <= row[2]:
            return
        if row[2] > 0:
            if self.q == 0.5:
                rho = row[2] / x
                row[0] = row[0] * (rho if self.o.adaptive else rho * rho)
            else:
                rho = x / row[2]
                row[0] = row[0] * _libm("pow", rho * rho, self.q - self.real(1))
        row[2] = x

    def rate(self, row: list[Number]) -> Number:
        """r_i by the table."""
        one = self.real(1)
        r = one
        if self.o.adaptive:
            r = one / np.sqrt(row[1]) if self.q == 0.5 else _libm("pow", row[1], -self.q)
        if self.o.normalized:
            if self.q == 0.5:
                inverse = one / row[2]
                r = r * inverse if self.o.adaptive else r * (inverse * inverse)
            else:
                r = r * _libm("pow", row[2] * row[2], self.q - one)
        return r

    def multiplier(self) -> Number:
        """m by the table."""
        if self.q == 0.5:
            mean = self.real(self.total) / self.real(self.n)
            return np.sqrt(mean) if self.o.adaptive else mean
        return _libm("pow", self.real(self.n) / self.real(self.total), self.q - self.real(1))

    def scalar(self, p: Number, y: Number, h: Number, size: Number) -> Number:
        """Step 5: u."""
        e = self.eta * h
        if not self.o.adaptive:
            e = e * _libm("pow", self.real(self.t + float(h)), -self.q)
        return self.loss.aware(p, y, e, size) if self.o.invariant else self.loss.blunt(p, y, e)

    def regularized(self, u: Number, d: Number) -> Number:
        """Step 6: contraction and gravity take the penalties."""
        l1, l2 = self.o.given.l1, self.o.given.l2
        if not (l1 or l2) or not abs(float(u)) > 1e-8:
            return u
        c = -float(u) / float(d) if abs(float(d)) > 1e-8 else 0.0
        self.contraction *= 1.0 - float(self.real(l2)) * c
        self.gravity += c * float(self.real(l1))
        return u / self.real(self.contraction)

    def end_pass(self) -> None:
        self.eta = self.eta * self.real(self.o.given.decay_learning_rate)


class Proximal(Learner):
    """`--ftrl`: FTRL-Proximal with g = h·d·x."""

    alpha, beta = 0.5, 1.0

    def __init__(self, options: Options, real: Real) -> None:
        super().__init__(options, real)
        given = options.given
        self.a = real(self.alpha if given.ftrl_alpha is None else given.ftrl_alpha)
        self.b = real(self.beta if given.ftrl_beta is None else given.ftrl_beta)
        self.l1, self.l2 = real(given.l1), real(given.l2)
        self.state: dict[int, list[Number]] = {}

    def row(self, index: int) -> list[Number]:
        """w, z, n of an index; in the classes below w, θ, A, M, and for `--coin` W, L."""
        return self.state.setdefault(index, [self.real(0)] * 6)

    def learn(self, example: VwExample, held_out: bool) -> Number:
        y, h, features, _ = example
        p = self.clipped(self.stored(features) if held_out else self.fresh(features, h))
        if not held_out:
            pull = self.loss.slope(p, y) * h
            for index, x in features:
                self.step(self.row(index), pull, x)
        return p

    def stored(self, features: Sequence[Feature]) -> Number:
        """The prediction with the weights as the last update left them: what a held-out example gets."""
        p = self.real(0)
        for index, x in features:
            p = p + self.row(index)[0] * x
        return p

    def fresh(self, features: Sequence[Feature], h: Number) -> Number:
        """The prediction of an example that will be learned."""
        return self.stored(features)

    def step(self, row: list[Number], pull: Number, x: Number) -> None:
        """One coordinate."""
        w, z, n = row[:3]
        g = pull * x
        n_next = n + g * g
        sigma = (np.sqrt(n_next) - np.sqrt(n)) / self.a
        z = z + (g - sigma * w)
        row[:3] = self.real(0), z, n_next
        if abs(z) > self.l1:
            step = self.real(1) / (self.l2 + (self.b + np.sqrt(n_next)) / self.a)
            row[0] = step * np.sign(z) * (self.l1 - abs(z))


class Pistol(Proximal):
    """`--pistol`: w is made anew for each example that will be learned, after M knows of it."""

    alpha, beta = 1.0, 0.5

    def fresh(self, features: Sequence[Feature], h: Number) -> Number:
        p = self.real(0)
        for index, x in features:
            row = self.row(index)
            row[3] = max(row[3], abs(x))
            row[0] = self.weight(*row[1:4])
            p = p + row[0] * x
        return p

    def weight(self, theta: Number, a: Number, m: Number) -> Number:
        """w = β√A·θ·e^(θ²c/2)·c."""
        c = self.real(1) / (self.a * m * (a + m))
        return np.sqrt(a) * self.b * theta * _libm("exp", theta * theta / self.real(2) * c) * c

    def step(self, row: list[Number], pull: Number, x: Number) -> None:
        row[1] = row[1] - pull * x
        row[2] = row[2] + abs(pull * x)


class Coin(Proximal):
    """`--coin`: bets, divided by the average squared norm of the examples."""

    alpha, beta = 4.0, 1.0

    def __init__(self, options: Options, real: Real) -> None:
        super().__init__(options, real)
        self.n = self.total = 0.0

    def bet(self, row: list[Number], m: Number) -> Number:
        """(α + W)θ/(LM(LM + A)), 0 if LM = 0."""
        _, theta, a, _, wealth, largest = row
        reach = largest * m
        return (self.a + wealth) / (reach * (reach + a)) * theta if reach > 0 else self.real(0)

    def norm(self) -> Number:
        """(N + 1e−6)/T."""
        return self.real((self.n + 1e-6) / self.total)

    def fresh(self, features: Sequence[Feature], h: Number) -> Number:
        p, n_x = self.real(0), self.real(0)
        for index, x in features:
            row = self.row(index)
            m = max(row[3], abs(x))
            p = p + self.bet(row, m) * x
            n_x = n_x + x * x / (m * m)
        self.n += float(h * n_x)
        self.total += float(h)
        return p / self.norm()

    def step(self, row: list[Number], pull: Number, x: Number) -> None:
        row[3] = max(row[3], abs(x))
        if abs(pull) > row[5]:
            row[5] = max(abs(pull), self.b)
        w, g = self.bet(row, row[3]), pull * x
        row[1] = row[1] - g
        row[2] = row[2] + abs(g)
        row[4] = row[4] - g * w
        row[0] = w / self.norm()


class VwRun(NamedTuple):
    """The tool's output: the average loss (of the best pass's holdout, if any), and predictions in order."""

    average_loss: float
    predictions: list[float]


def learner_of(options: Options, real: Real) -> Learner:
    """The learner that the command line asks for, in `real` arithmetic."""
    given = options.given
    for chosen, kind in ((given.ftrl, Proximal), (given.pistol, Pistol), (given.coin, Coin)):
        if chosen:
            return kind(options, real)
    return Descent(options, real)


def progressive(command: str, lines: Sequence[str], real: Real = np.float32) -> VwRun:
    """Runs the command line over the lines, in `real` arithmetic."""
    options = Options(command)
    given = options.given
    examples = [read_line(line, real, given.bit_precision, given.ngram, given.skips, given.quadratic) for line in lines]
    learner = learner_of(options, real)
    holdout = given.passes > 1 and not given.holdout_off
    sums, importances = {False: 0.0, True: 0.0}, {False: 0.0, True: 0.0}
    best, waited, predictions = math.inf, 0, []
    with np.errstate(all="ignore"):
        for _ in range(given.passes):
            sums[True] = importances[True] = 0.0
            for number, example in enumerate(examples, 1):
                held_out = holdout and number % HOLDOUT_EVERY == 0
                learner.see_label(example.label)
                p = learner.learn(example, held_out)
                predictions.append(float(p))
                sums[held_out] += float(learner.loss.value(p, example.label) * example.importance)
                importances[held_out] += float(example.importance)
            learner.end_pass()
            if holdout:
                mean = float(real(sums[True] / importances[True]))
                best, waited = (mean, 0) if mean < best else (best, waited + 1)
                if waited >= PATIENCE:
                    break
    return VwRun(best if holdout else sums[False] / importances[False], predictions)
