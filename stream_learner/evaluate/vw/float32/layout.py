"""What the kernels of the float32 arithmetic share: places in their arrays, and what every kind does alike.

In: nothing. Out: places, and the clipping of a prediction.
This file must never hold anything that changes.
"""

from __future__ import annotations

import numpy as np

from stream_learner.core.machine.kernels import kernel
from stream_learner.evaluate.vw.float32 import single
from stream_learner.evaluate.vw.float32.single import ZERO

# float32 numbers that stay
POWER, L1, L2, ALPHA, BETA, TAU = range(6)
# switches, int64
KIND, LOSS, ADAPTIVE, NORMALIZED, INVARIANT, BOUNDED, MASK = range(7)
# float64 numbers that change; eta, m, low and high are float32 values
T, N, TOTAL, GRAVITY, CONTRACTION, ETA, MULTIPLIER, LOW, HIGH = range(9)
LOSS_SUM, IMPORTANCE_SUM, HELD_LOSS_SUM, HELD_IMPORTANCE_SUM = range(9, 13)
SCALARS = 13


@kernel
def see_label(y, switches, scalars):  # type: ignore[no-untyped-def]
    """Predictions are clipped to the range of the labels seen, unless bounds were given."""
    if switches[BOUNDED] == 0:
        scalars[LOW] = min(scalars[LOW], np.float64(y))
        scalars[HIGH] = max(scalars[HIGH], np.float64(y))


@kernel
def clipped(p, scalars):  # type: ignore[no-untyped-def]
    """A prediction within the range; NaN becomes 0."""
    if p != p:
        return ZERO
    return min(max(p, np.float32(scalars[LOW])), np.float32(scalars[HIGH]))


@kernel
def measure(p, y, h, learned, switches, numbers, scalars):  # type: ignore[no-untyped-def]
    """Add an example to the loss of what is learned, or of what is held out."""
    loss = np.float64(single.value(switches[LOSS], numbers[TAU], p, y) * h)
    place = LOSS_SUM if learned else HELD_LOSS_SUM
    scalars[place] += loss
    scalars[place + 1] += np.float64(h)
