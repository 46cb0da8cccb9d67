"""Compile the kernels before a role starts, and say so where it takes time.

In: nothing. Out: compiled kernels, in memory and in the cache on disk.
This file must never be quiet for long: the first compilation takes some seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from stream_learner.core.optimizers import Optimizer
from stream_learner.core.warmup import compile_kernels, compile_optimizer
from stream_learner.edges.telemetry import get_logger

QUIET_S = 1.5
"""Loading from the cache takes less than this; whatever takes longer compiles."""


def compile_with_message(say: Callable[[str], None] | None = None, optimizers: Iterable[Optimizer] = ()) -> float:
    """Load every kernel from the cache, or compile it; the seconds it took. `say` gets a message if it takes long.

    optimizers: those that will be folded with; of the others only FTRL-Proximal is compiled.
    """
    tell = say or get_logger("kernels").warning
    note = "compiling the kernels, once on this machine; later starts take them from the cache"
    timer = threading.Timer(QUIET_S, tell, (note,))
    timer.daemon = True
    began_s = time.monotonic()
    timer.start()
    try:
        compile_kernels()
        for optimizer in optimizers:
            compile_optimizer(optimizer)
    finally:
        timer.cancel()
    return time.monotonic() - began_s
