"""Compile every kernel before the first event needs it.

In: nothing. Out: compiled kernels, in memory and in numba's cache on disk.
This file must never leave out a kernel that a role runs: compiling one between two ticks would take seconds.
`compile_kernels` has those of FTRL-Proximal, the default; another optimizer needs `compile_optimizer` too.

Compiled the first time, the kernels take about `FIRST_TIME_S` on one core; loaded from the cache, about one second.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from stream_learner.core import (
    arithmetic,
    examples,
    feature_subset,
    hashing,
    id_table,
    join_kernel,
    json_array,
    learner,
    losses,
    replica,
)
from stream_learner.core.events import ClickDecoder, EventSpec, ImpressionDecoder
from stream_learner.core.feature_spec import FeatureSpec
from stream_learner.core.kernels import missing
from stream_learner.core.optimizers import OPTIMIZERS, Optimizer, sample_optimizer
from stream_learner.core.weights import WeightTable

FIRST_TIME_S = 30
"""About what the first compilation takes, for messages."""


def _decoders() -> None:
    """Compile the kernels that decode events."""
    spec = EventSpec(time="time")
    event = b'{"id":"a","time":1,"site":"x"}'
    bounds, times = np.array([0, len(event)]), np.ones(1, np.int64)
    ImpressionDecoder(spec, FeatureSpec()).decode(event, bounds, times)
    ClickDecoder(spec).decode(event, bounds, times)


def _table_growth(ncols: int = 2) -> None:
    """Compile what a weight table runs only when one of its sub-tables is full."""
    keys = np.arange(1, 4097, dtype=np.uint64) << np.uint64(40)
    WeightTable(ncols).load(keys, np.ones((len(keys), ncols)), np.zeros(len(keys), np.int64))


STEPS: tuple[tuple[str, Callable[[], None]], ...] = (
    ("hashing", hashing.warm),
    ("arithmetic", arithmetic.warm),
    ("losses", losses.warm),
    ("decoding", _decoders),
    ("join", id_table.warm),
    ("join", join_kernel.warm),
    ("training log", examples.warm),
    ("training log", feature_subset.warm),
    ("fold", learner.warm),
    ("fold", _table_growth),
    ("replica", replica.warm),
    ("requests", json_array.warm),
)
"""What is compiled, in this order, under the name of the part it belongs to."""


def compile_kernels(report: Callable[[str], None] = lambda part: None) -> None:
    """Load every kernel from the cache, or compile it; `report` gets the name of each part before it begins."""
    for part, warm in STEPS:
        report(part)
        warm()


def compile_optimizer(optimizer: Optimizer) -> None:
    """Load or compile what folding with an optimizer runs besides; nothing for FTRL-Proximal, which `STEPS` has."""
    learner.warm(optimizer)
    _table_growth(len(optimizer.columns))


def compile_everything() -> None:
    """Load or compile every kernel, those of every optimizer of a streaming learner too: for an image's cache."""
    compile_kernels()
    for name in OPTIMIZERS:
        compile_optimizer(sample_optimizer(name))


def is_compiled() -> bool:
    """Whether the kernels are likely to be in the cache, judged by the first of them, which is loaded or compiled."""
    hashing.warm()
    return missing() == 0
