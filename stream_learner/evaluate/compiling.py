"""Compiles what an evaluation runs before its clock starts, and says so if that takes time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

from stream_learner.core.model.optimizers import Optimizer
from stream_learner.core.parts import HASHING, TRAINING_LOG, compile_parts, fold_part

QUIET_S = 1.5
"""A compilation that takes less than this is not mentioned."""


@contextmanager
def notice_if_slow(say: Callable[[str], None], note: str) -> Iterator[None]:
    """Call `say` with the note if the `with` block takes longer than loading from the cache does."""
    timer = threading.Timer(QUIET_S, say, (note,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def compile_learners(optimizers: Iterable[Optimizer], say: Callable[[str], None]) -> None:
    """Load or compile the folds of these optimizers, and the kernels that make records."""
    with notice_if_slow(say, "compiling the learner, once on this machine; later starts take it from the cache"):
        compile_parts([HASHING, TRAINING_LOG, *map(fold_part, optimizers)])
