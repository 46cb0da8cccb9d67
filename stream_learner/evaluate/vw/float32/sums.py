"""Vowpal Wabbit's `--ftrl`, `--pistol` and `--coin` in float32: weights made from sums of gradients.

The order of operations is the tool's and must stay. The equations are those of `core/model/optimizers/ftrl.py` and
`core/model/optimizers/scale_free.py`, with predictions clipped for every loss. Rows: FTRL-Proximal w, z, n; PiSTOL w,
theta, A, M; coin w, theta, A, M, W, L. An example that is only predicted uses the weights that the last steps stored.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.entries import F32, F64, I64, U64
from stream_learner.core.machine.kernels import kernel
from stream_learner.evaluate.vw.float32 import single
from stream_learner.evaluate.vw.float32.layout import (
    ALPHA,
    BETA,
    KIND,
    L1,
    L2,
    LOSS,
    MASK,
    TAU,
    TOTAL,
    N,
    clipped,
)
from stream_learner.evaluate.vw.float32.single import ONE, TWO, ZERO, Single, expf

FTRL, PISTOL, COIN = 1, 2, 3
_W, _THETA, _A, _M, _WEALTH, _LARGEST = range(6)


@kernel
def stored(keys: U64, values: F64, state: F32, switches: I64, scalars: F64) -> Single:
    """The clipped prediction with the stored weights."""
    mask = np.uint64(switches[MASK])
    p = ZERO
    for j in range(len(keys)):
        p = p + state[(keys[j] - np.uint64(1)) & mask, _W] * np.float32(values[j])
    return clipped(p, scalars)


@kernel
def _pistol_weight(theta: Single, a: Single, m: Single, alpha: Single, beta: Single) -> Single:
    c = ONE / (alpha * m * (a + m))
    return np.sqrt(a) * beta * theta * expf(theta * theta / TWO * c) * c


@kernel
def _bet(theta: Single, a: Single, m: Single, wealth: Single, largest: Single, alpha: Single) -> Single:
    reach = largest * m
    return (alpha + wealth) / (reach * (reach + a)) * theta if reach > ZERO else ZERO


@kernel
def _norm(scalars: F64) -> Single:
    """The average size of the examples."""
    return np.float32((scalars[N] + 1e-6) / scalars[TOTAL])


@kernel
def _fresh_pistol(keys: U64, values: F64, state: F32, numbers: F32, mask: np.uint64) -> Single:
    p = ZERO
    for j in range(len(keys)):
        slot, x = (keys[j] - np.uint64(1)) & mask, np.float32(values[j])
        m = max(state[slot, _M], abs(x))
        w = _pistol_weight(state[slot, _THETA], state[slot, _A], m, numbers[ALPHA], numbers[BETA])
        state[slot, _M] = m
        state[slot, _W] = w
        p = p + w * x
    return p


@kernel
def _fresh_coin(keys: U64, values: F64, h: Single, state: F32, numbers: F32, mask: np.uint64, scalars: F64) -> Single:
    p = n_x = ZERO
    for j in range(len(keys)):
        slot, x = (keys[j] - np.uint64(1)) & mask, np.float32(values[j])
        row = state[slot]
        m = max(row[_M], abs(x))
        p = p + _bet(row[_THETA], row[_A], m, row[_WEALTH], row[_LARGEST], numbers[ALPHA]) * x
        n_x = n_x + x * x / (m * m)
    scalars[N] += np.float64(h * n_x)
    scalars[TOTAL] += np.float64(h)
    return p / _norm(scalars)


@kernel
def fresh(keys: U64, values: F64, h: Single, state: F32, numbers: F32, switches: I64, scalars: F64) -> Single:
    """The clipped prediction of an example that is learned next: for PiSTOL and coin its values count in the scales."""
    mask = np.uint64(switches[MASK])
    if switches[KIND] == PISTOL:
        return clipped(_fresh_pistol(keys, values, state, numbers, mask), scalars)
    if switches[KIND] == COIN:
        return clipped(_fresh_coin(keys, values, h, state, numbers, mask, scalars), scalars)
    return stored(keys, values, state, switches, scalars)


@kernel
def _ftrl_step(row: F32, pull: Single, x: Single, numbers: F32) -> None:
    w, z, n, alpha, l1 = row[0], row[1], row[2], numbers[ALPHA], numbers[L1]
    g = pull * x
    n_next = n + g * g
    sigma = (np.sqrt(n_next) - np.sqrt(n)) / alpha
    z = z + (g - sigma * w)
    w = ZERO
    if abs(z) > l1:
        step = ONE / (numbers[L2] + (numbers[BETA] + np.sqrt(n_next)) / alpha)
        w = step * (ONE if z > ZERO else -ONE) * (l1 - abs(z))
    row[0], row[1], row[2] = w, z, n_next


@kernel
def _coin_step(row: F32, pull: Single, x: Single, numbers: F32, scalars: F64) -> None:
    row[_M] = max(row[_M], abs(x))
    if abs(pull) > row[_LARGEST]:
        row[_LARGEST] = max(abs(pull), numbers[BETA])
    w = _bet(row[_THETA], row[_A], row[_M], row[_WEALTH], row[_LARGEST], numbers[ALPHA])
    g = pull * x
    row[_THETA] = row[_THETA] - g
    row[_A] = row[_A] + abs(g)
    row[_WEALTH] = row[_WEALTH] - g * w
    row[_W] = w / _norm(scalars)


@kernel
def learn(
    keys: U64, values: F64, p: Single, y: Single, h: Single, state: F32, numbers: F32, switches: I64, scalars: F64
) -> None:
    """Learn from one example that was predicted with p."""
    mask, kind = np.uint64(switches[MASK]), switches[KIND]
    pull = single.slope(switches[LOSS], numbers[TAU], p, y) * h
    for j in range(len(keys)):
        row, x = state[(keys[j] - np.uint64(1)) & mask], np.float32(values[j])
        if kind == FTRL:
            _ftrl_step(row, pull, x, numbers)
        elif kind == PISTOL:
            row[_THETA] = row[_THETA] - pull * x
            row[_A] = row[_A] + abs(pull * x)
        else:
            _coin_step(row, pull, x, numbers, scalars)
