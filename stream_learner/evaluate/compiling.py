"""Compiles what an evaluation runs before its clock starts, and says so if that takes time."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager

import numpy as np

from stream_learner.core.log.examples import ExampleBatch
from stream_learner.core.model import fold
from stream_learner.core.model.optimizers import Optimizer
from stream_learner.evaluate.example_block import RecordMaker

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
    """Load or compile the folds of these optimizers, and the kernel that makes records."""
    with notice_if_slow(say, "compiling the learner, once on this machine; later starts take it from the cache"):
        one = np.ones(1)
        batch = ExampleBatch(
            np.zeros(1, np.int64), np.ones(1, np.uint64), one, one, np.array([0, 1]), np.ones(1, np.uint64), one
        )
        RecordMaker().records(batch)
        for optimizer in {type(optimizer): optimizer for optimizer in optimizers}.values():
            fold.warm(optimizer)
