"""Losses of Vowpal Wabbit in float32: value, slope and importance-aware step.

Prediction p, label y, rate e, size X and all results are float32. Logistic labels between -1 and 1 mean the average
over both labels with that mean. `lambert_minus` is the tool's approximation of Lambert's W, which is wrong, even in
sign, for small steps.
"""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numba import types

from stream_learner.core.machine.kernels import kernel

Single: TypeAlias = np.float32

expf = types.ExternalFunction("expf", types.float32(types.float32))
logf = types.ExternalFunction("logf", types.float32(types.float32))
log1pf = types.ExternalFunction("log1pf", types.float32(types.float32))
expm1f = types.ExternalFunction("expm1f", types.float32(types.float32))
powf = types.ExternalFunction("powf", types.float32(types.float32, types.float32))
_exp = types.ExternalFunction("exp", types.float64(types.float64))
_log = types.ExternalFunction("log", types.float64(types.float64))

SQUARED, LOGISTIC, HINGE, QUANTILE, POISSON = range(5)
"""Codes, in the order of `settings.LOSSES`."""

ZERO, ONE, TWO = np.float32(0), np.float32(1), np.float32(2)
MINUS_ONE = np.float32(-1)
_MINUS_TWO = np.float32(-2)
_LIMIT = np.float32(44)
_MINUS_LIMIT = np.float32(-44)
_SMALL = np.float32(1e-6)


@kernel
def lambert_minus(a: Single) -> Single:
    """An approximation of W(e^a) - a by one step of an iteration for W; in float64 inside, as the tool does it."""
    x = np.float64(a)
    if x >= 1.0:
        w = 0.86 * x + 0.01
        r = x - _log(w) - w
    else:
        w = _exp(0.8 * x - 0.65)
        r = 0.2 * x + 0.65 - w
    theta = 1.0 + w
    u = 2.0 * theta * (theta + 2.0 * r / 3.0)
    return np.float32(w * (1.0 + r / theta * (u - r) / (u - 2.0 * r)) - x)


@kernel
def _bounded(p: Single) -> Single:
    return min(max(p, _MINUS_LIMIT), _LIMIT)


@kernel
def _logistic_value(p: Single, y: Single) -> Single:
    return logf(ONE + expf(-y * p))


@kernel
def _logistic_slope(p: Single, y: Single) -> Single:
    return -y / (ONE + expf(y * p))


@kernel
def _logistic_step(p: Single, y: Single, e: Single) -> Single:
    return y * e / (ONE + expf(y * p))


@kernel
def _logistic_aware(p: Single, y: Single, e: Single, size: Single) -> Single:
    d = expf(y * p)
    if np.float64(e * size) < 1e-6:
        return y * e / (ONE + d)
    return -(y * lambert_minus(e * size + y * p + d) + p) / size


@kernel
def value(loss: int, tau: Single, p: Single, y: Single) -> Single:
    """The loss as the tool prints it, for importance 1."""
    if loss == SQUARED:
        return (p - y) * (p - y)
    if loss == LOGISTIC:
        if abs(y) == ONE:
            return _logistic_value(p, y)
        share = (y + ONE) / TWO
        return share * _logistic_value(p, ONE) + (ONE - share) * _logistic_value(p, MINUS_ONE)
    if loss == HINGE:
        return max(ZERO, ONE - y * p)
    if loss == QUANTILE:
        return tau * (y - p) if y > p else (ONE - tau) * (p - y)
    q = _bounded(p)
    return TWO * (y * (logf(y + _SMALL) - q) - (y - expf(q)))


@kernel
def slope(loss: int, tau: Single, p: Single, y: Single) -> Single:
    """The derivative of the loss by p."""
    if loss == SQUARED:
        return TWO * (p - y)
    if loss == LOGISTIC:
        if abs(y) == ONE:
            return _logistic_slope(p, y)
        share = (y + ONE) / TWO
        return share * _logistic_slope(p, ONE) + (ONE - share) * _logistic_slope(p, MINUS_ONE)
    if loss == HINGE:
        return -y if y * p < ONE else ZERO
    if loss == QUANTILE:
        if y == p:
            return ZERO
        return -tau if y > p else ONE - tau
    return expf(_bounded(p)) - y


@kernel
def step(loss: int, tau: Single, p: Single, y: Single, e: Single) -> Single:
    """The step that is not importance-aware: -e times the slope."""
    if loss == LOGISTIC:
        if abs(y) == ONE:
            return _logistic_step(p, y, e)
        share = (y + ONE) / TWO
        return share * _logistic_step(p, ONE, e) + (ONE - share) * _logistic_step(p, MINUS_ONE, e)
    return -slope(loss, tau, p, y) * e


@kernel
def _poisson_aware(p: Single, y: Single, e: Single, size: Single) -> Single:
    mean = expf(_bounded(p))
    if y > ZERO:
        reach = y * e * size
        if reach > _LIMIT:
            return (logf(y) - _bounded(p)) / size
        return y * e - log1pf(mean * expm1f(reach) / y) / size
    return -log1pf(mean * e * size) / size


@kernel
def aware(loss: int, tau: Single, p: Single, y: Single, e: Single, size: Single) -> Single:
    """The importance-aware step: how far the prediction moves over X, for rate times importance e."""
    if loss == SQUARED:
        if np.float64(e * size) < 1e-6:
            return TWO * (y - p) * e
        return (y - p) * (ONE - expf(_MINUS_TWO * e * size)) / size
    if loss == LOGISTIC:
        if abs(y) == ONE:
            return _logistic_aware(p, y, e, size)
        share = (y + ONE) / TWO
        return share * _logistic_aware(p, ONE, e, size) + (ONE - share) * _logistic_aware(p, MINUS_ONE, e, size)
    if loss == HINGE:
        error = ONE - y * p
        return y * (e if e * size < error else error / size)
    if loss == QUANTILE:
        pull = -slope(loss, tau, p, y)
        return pull * e if abs(pull * (e * size)) < abs(y - p) else (y - p) / size
    return _poisson_aware(p, y, e, size)
