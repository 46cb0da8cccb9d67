"""The arrays that the kernels of the float32 arithmetic share, by index; the range of labels; the losses summed."""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.entries import F32, F64, I64
from stream_learner.core.machine.kernels import kernel
from stream_learner.evaluate.vw.float32 import single
from stream_learner.evaluate.vw.float32.single import ZERO, Single

# Indices of `numbers`: float32, constant.
POWER, L1, L2, ALPHA, BETA, TAU = range(6)
# Indices of `switches`: int64, constant.
KIND, LOSS, ADAPTIVE, NORMALIZED, INVARIANT, BOUNDED, MASK = range(7)
# Indices of `scalars`: float64, changed by each example; eta, m, low and high hold float32 values.
T, N, TOTAL, GRAVITY, CONTRACTION, ETA, MULTIPLIER, LOW, HIGH = range(9)
LOSS_SUM, IMPORTANCE_SUM, HELD_LOSS_SUM, HELD_IMPORTANCE_SUM = range(9, 13)
SCALARS = 13


@kernel
def see_label(y: Single, switches: I64, scalars: F64) -> None:
    """Widen the range that predictions are clipped to by a label, unless bounds were given."""
    if switches[BOUNDED] == 0:
        scalars[LOW] = min(scalars[LOW], np.float64(y))
        scalars[HIGH] = max(scalars[HIGH], np.float64(y))


@kernel
def clipped(p: Single, scalars: F64) -> Single:
    """The prediction clipped to the range; 0 for NaN."""
    if p != p:
        return ZERO
    return min(max(p, np.float32(scalars[LOW])), np.float32(scalars[HIGH]))


@kernel
def measure(p: Single, y: Single, h: Single, learned: bool, switches: I64, numbers: F32, scalars: F64) -> None:
    """Add an example's loss to the sum of the examples learned from, or of those held out."""
    loss = np.float64(single.value(switches[LOSS], numbers[TAU], p, y) * h)
    place = LOSS_SUM if learned else HELD_LOSS_SUM
    scalars[place] += loss
    scalars[place + 1] += np.float64(h)
