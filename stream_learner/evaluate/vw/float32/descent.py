"""Vowpal Wabbit's default update and its parts in float32: adaptive (A), normalized (Z), invariant (I), combined
freely.

The order of operations is the tool's and must stay. `core/model/optimizers/vw.py` has the same update in float64, with
the formulas in full; the letters here are the same: rows (w, G, s, r), u the step, X the size, m the multiplier.

Source: [T] in the bibliography of `core.model.optimizers`.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.entries import F32, F64, I64, U64
from stream_learner.core.machine.kernels import kernel
from stream_learner.evaluate.vw.float32 import single
from stream_learner.evaluate.vw.float32.layout import (
    ADAPTIVE,
    CONTRACTION,
    ETA,
    GRAVITY,
    INVARIANT,
    L1,
    L2,
    LOSS,
    MASK,
    MULTIPLIER,
    NORMALIZED,
    POWER,
    TAU,
    TOTAL,
    N,
    T,
    clipped,
)
from stream_learner.evaluate.vw.float32.single import ONE, ZERO, Single, powf

HALF = np.float32(0.5)
_W, _G, _S, _R = range(4)


@kernel
def truncated(w: Single, gravity: Single) -> Single:
    """S(w, gamma): the weight moved toward 0 by gravity. A negative gravity moves it away from 0, and a weight of 0
    down."""
    if gravity == ZERO:
        return w
    if gravity < abs(w):
        return w - gravity if w > ZERO else w + gravity
    return ZERO


@kernel
def predict(keys: U64, values: F64, state: F32, switches: I64, scalars: F64) -> Single:
    """The prediction, clipped to the range of the labels seen."""
    mask, gravity = np.uint64(switches[MASK]), np.float32(scalars[GRAVITY])
    p = ZERO
    for j in range(len(keys)):
        w = state[(keys[j] - np.uint64(1)) & mask, _W]
        p = p + truncated(w, gravity) * np.float32(values[j])
    return clipped(p * np.float32(scalars[CONTRACTION]), scalars)


@kernel
def _rescaled(w: Single, s: Single, x: Single, q: Single, adaptive: bool) -> Single:
    """The w that means the same when the scale grows from s > 0 to x."""
    if q == HALF:
        rho = s / x
        return w * (rho if adaptive else rho * rho)
    rho = x / s
    return w * powf(rho * rho, q - ONE)


@kernel
def _rate(g: Single, s: Single, q: Single, adaptive: bool, normalized: bool) -> Single:
    """The rate r of a feature."""
    r = ONE
    if adaptive:
        r = ONE / np.sqrt(g) if q == HALF else powf(g, -q)
    if normalized:
        if q == HALF:
            inverse = ONE / s
            r = r * inverse if adaptive else r * (inverse * inverse)
        else:
            r = r * powf(s * s, q - ONE)
    return r


@kernel
def _multiplier(n: float, total: float, q: Single, adaptive: bool) -> Single:
    """The multiplier m: the correction of each step for the average size of the examples."""
    if q == HALF:
        mean = np.float32(total) / np.float32(n)
        return np.sqrt(mean) if adaptive else mean
    return powf(np.float32(n) / np.float32(total), q - ONE)


@kernel
def _measured(
    keys: U64, values: F64, d: Single, h: Single, state: F32, numbers: F32, switches: I64, scalars: F64
) -> Single:
    """Update G, s, N and T, compute r and m. Returns X."""
    pull = h * (d * d)
    if pull == ZERO:
        return ONE
    mask, q = np.uint64(switches[MASK]), numbers[POWER]
    adaptive, normalized = switches[ADAPTIVE] != 0, switches[NORMALIZED] != 0
    size = n_x = ZERO
    for j in range(len(keys)):
        slot, x = (keys[j] - np.uint64(1)) & mask, np.float32(values[j])
        if adaptive:
            state[slot, _G] = state[slot, _G] + pull * (x * x)
        if normalized:
            s, largest = state[slot, _S], abs(x)
            if largest > s:
                if s > ZERO:
                    state[slot, _W] = _rescaled(state[slot, _W], s, largest, q, adaptive)
                s = largest
                state[slot, _S] = s
            n_x = n_x + (x * x) / (s * s)
        r = _rate(state[slot, _G], state[slot, _S], q, adaptive, normalized)
        state[slot, _R] = r
        size = size + (x * x) * r
    if normalized:
        scalars[N] += np.float64(h) * np.float64(n_x)
        scalars[TOTAL] += np.float64(h)
        scalars[MULTIPLIER] = np.float64(_multiplier(scalars[N], scalars[TOTAL], q, adaptive))
    return size * np.float32(scalars[MULTIPLIER])


@kernel
def _regularized(u: Single, d: Single, numbers: F32, scalars: F64) -> Single:
    """Add the penalties to contraction and gravity. Returns u relative to the new contraction."""
    l1, l2 = numbers[L1], numbers[L2]
    if (l1 == ZERO and l2 == ZERO) or not abs(np.float64(u)) > 1e-8:
        return u
    c = -np.float64(u) / np.float64(d) if abs(np.float64(d)) > 1e-8 else 0.0
    scalars[CONTRACTION] *= 1.0 - np.float64(l2) * c
    scalars[GRAVITY] += c * np.float64(l1)
    return u / np.float32(scalars[CONTRACTION])


@kernel
def _squares(values: F64, first: int, ends: I64, end_at: int) -> Single:
    """The sum of x^2, added up by namespace first. The ends of this example's namespaces begin at ends[end_at]."""
    total = ZERO
    j, last = 0, len(values)
    while j < last:
        part = ZERO
        end = ends[end_at] - first
        end_at += 1
        while j < end:
            x = np.float32(values[j])
            part = part + x * x
            j += 1
        total = total + part
    return total


@kernel
def learn(
    keys: U64,
    values: F64,
    first: int,
    ends: I64,
    end_at: int,
    p: Single,
    y: Single,
    h: Single,
    state: F32,
    numbers: F32,
    switches: I64,
    scalars: F64,
) -> None:
    """Learn from one example that was predicted with p."""
    loss, tau, q = switches[LOSS], numbers[TAU], numbers[POWER]
    adaptive = switches[ADAPTIVE] != 0
    plain = not adaptive and switches[NORMALIZED] == 0
    if single.value(loss, tau, p, y) > ZERO and h != ZERO:
        d = single.slope(loss, tau, p, y)
        if plain:
            size = _squares(values, first, ends, end_at)
        else:
            size = _measured(keys, values, d, h, state, numbers, switches, scalars)
        e = np.float32(scalars[ETA]) * h
        if not adaptive:
            e = e * powf(np.float32(scalars[T] + np.float64(h)), -q)
        u = single.aware(loss, tau, p, y, e, size) if switches[INVARIANT] != 0 else single.step(loss, tau, p, y, e)
        u = _regularized(u, d, numbers, scalars)
        mask, m = np.uint64(switches[MASK]), np.float32(scalars[MULTIPLIER])
        for j in range(len(keys)):
            slot, x = (keys[j] - np.uint64(1)) & mask, np.float32(values[j])
            state[slot, _W] = state[slot, _W] + u * m * (x if plain else x * state[slot, _R])
    scalars[T] += np.float64(h)
