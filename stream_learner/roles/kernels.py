"""Compile the kernels before a role starts, and say so where it takes time.

In: nothing. Out: compiled kernels, in memory and in the cache on disk.
This file must never be quiet for long: the first compilation takes some seconds.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable

from stream_learner.core.kernels import missing
from stream_learner.core.optimizers import Optimizer
from stream_learner.core.warmup import compile_kernels, compile_optimizer
from stream_learner.edges.telemetry import get_logger

QUIET_S = 1.5
"""What takes less than this is not worth a word."""
NOTE = "compiling the kernels, once on this machine; later starts take them from the cache"


def compile_with_message(say: Callable[[str], None] | None = None, optimizers: Iterable[Optimizer] = ()) -> float:
    """Load every kernel from the cache, or compile it; the seconds it took. `say` gets a message if compiling takes
    long; loading may, where other processes have the processors.

    optimizers: those that will be folded with; of the others only FTRL-Proximal is compiled.
    """
    tell = say or get_logger("kernels").warning
    missing_before, done = missing(), threading.Event()

    def watch() -> None:
        while not done.wait(QUIET_S):
            if missing() > missing_before:
                tell(NOTE)
                return

    began_s = time.monotonic()
    threading.Thread(target=watch, name="kernels-watch", daemon=True).start()
    try:
        compile_kernels()
        for optimizer in optimizers:
            compile_optimizer(optimizer)
    finally:
        done.set()
    return time.monotonic() - began_s
