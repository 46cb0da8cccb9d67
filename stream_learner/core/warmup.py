"""Compile every kernel of a role before its first event.

A role must find every kernel that it runs in one of its parts: compiling one between two ticks would take seconds.
Modules are imported inside the functions, so that a role imports and loads only what it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from stream_learner.core.machine.kernels import missing, one_compiler

if TYPE_CHECKING:
    from stream_learner.core.model.optimizers import Optimizer


class Part(NamedTuple):
    """Kernels that are compiled together. first_time_s: about how long that takes, for messages."""

    name: str
    first_time_s: float
    warm: Callable[[], None]


def _hashing() -> None:
    from stream_learner.core.machine import hashing, memory

    memory.warm()
    hashing.warm()


def _arithmetic() -> None:
    from stream_learner.core.machine import arithmetic
    from stream_learner.core.model import losses

    arithmetic.warm()
    losses.warm()


def _decoding() -> None:
    """Compile the kernels that decode impressions."""
    from stream_learner.core.events.decoders import EventSpec, ImpressionDecoder
    from stream_learner.core.events.feature_spec import FeatureSpec

    ImpressionDecoder(EventSpec(time="time"), FeatureSpec()).decode(*_event())


def _clicks() -> None:
    """Compile the kernels that decode clicks."""
    from stream_learner.core.events.decoders import ClickDecoder, EventSpec

    ClickDecoder(EventSpec(time="time")).decode(*_event())


def _event() -> tuple[bytes, np.ndarray, np.ndarray]:
    event = b'{"id":"a","time":1,"site":"x"}'
    return event, np.array([0, len(event)]), np.ones(1, np.int64)


def _join() -> None:
    from stream_learner.core.events import field_counts
    from stream_learner.core.join import click_memory, crowded, gather, labels, log_time
    from stream_learner.core.machine import id_table, records

    for module in (records, id_table, log_time, click_memory, labels, crowded, gather, field_counts):
        module.warm()


def _training_log() -> None:
    from stream_learner.core.log import examples

    examples.warm()


def _feature_subset() -> None:
    from stream_learner.core.log import subset

    subset.warm()


def _fold() -> None:
    """Compile the kernels of folding with FTRL-Proximal."""
    _fold_with(None)


def _fold_with(optimizer: Optimizer | None) -> None:
    from stream_learner.core.model import fold

    fold.warm(optimizer)
    _table_growth(2 if optimizer is None else len(optimizer.columns))


def _table_growth(ncols: int) -> None:
    """Compile the kernels that a weight table needs only when one of its sub-tables is full."""
    from stream_learner.core.model.table.rows import StateRows
    from stream_learner.core.model.table.table import WeightTable

    keys = np.arange(1, 4097, dtype=np.uint64) << np.uint64(40)
    WeightTable(ncols).load(StateRows(keys, np.ones((len(keys), ncols)), np.zeros(len(keys), np.int64)))


def _gate() -> None:
    from stream_learner.core.gate import sample, series

    sample.warm()
    series.warm()


def _replica() -> None:
    from stream_learner.core.snapshots import replica

    replica.warm()


def _requests() -> None:
    from stream_learner.core.events.fast import requests

    requests.warm()


HASHING = Part("hashing", 1.2, _hashing)
ARITHMETIC = Part("arithmetic", 1.5, _arithmetic)
DECODING = Part("decoding", 10.0, _decoding)
CLICKS = Part("clicks", 0.1, _clicks)
JOIN = Part("join", 4.5, _join)
TRAINING_LOG = Part("training log", 1.3, _training_log)
FEATURE_SUBSET = Part("feature subset", 0.5, _feature_subset)
FOLD = Part("fold", 8.0, _fold)
GATE = Part("gate", 2.3, _gate)
REPLICA = Part("replica", 3.2, _replica)
REQUESTS = Part("requests", 1.2, _requests)

PARTS: Final = (
    HASHING,
    ARITHMETIC,
    DECODING,
    CLICKS,
    JOIN,
    TRAINING_LOG,
    FEATURE_SUBSET,
    FOLD,
    GATE,
    REPLICA,
    REQUESTS,
)
"""All parts, in the order in which they are compiled; of optimizers only FTRL-Proximal."""

_READY: set[Part] = set()
"""The parts whose kernels this process has."""

ROLES: Final[dict[str, tuple[Part, ...]]] = {
    "joiner": (HASHING, DECODING, CLICKS, JOIN, TRAINING_LOG),
    "learner": (HASHING, TRAINING_LOG, FOLD, GATE),
    "scorer": (HASHING, DECODING, REPLICA),
    "serve": (HASHING, DECODING, REPLICA, REQUESTS),
    "backfill": (HASHING, DECODING, CLICKS, JOIN, TRAINING_LOG, FEATURE_SUBSET, FOLD, GATE),
}
"""The parts of each role. FOLD stands for the fold with the optimizers that the role is given."""


def parts_of(roles: Iterable[str], optimizers: Iterable[Optimizer] = ()) -> list[Part]:
    """The parts of all these roles together. optimizers: those they fold with; FTRL-Proximal by default."""
    wanted = {part for role in roles for part in ROLES[role]}
    found = [part for part in PARTS if part in wanted]
    given = {optimizer.name: optimizer for optimizer in optimizers}
    if FOLD in wanted and given:
        found.remove(FOLD)
        found += [fold_part(optimizer) for optimizer in given.values()]
    return found


def fold_part(optimizer: Optimizer) -> Part:
    """The kernels of folding with an optimizer."""
    return Part(f"fold with {optimizer.name}", FOLD.first_time_s, lambda: _fold_with(optimizer))


def every_part() -> list[Part]:
    """The parts of every role with every optimizer of a streaming learner, for the cache of an image."""
    from stream_learner.core.model.optimizers import OPTIMIZERS, sample_optimizer

    return [*PARTS, *(fold_part(sample_optimizer(name))._replace(first_time_s=2.0) for name in OPTIMIZERS)]


def compile_parts(parts: Iterable[Part], report: Callable[[Part], None] = lambda part: None) -> None:
    """Load the kernels of these parts from the cache, or compile them; `report` gets each part before it begins.

    If several processes miss kernels, one compiles and the others wait for it. Parts that it has are left out.
    """
    with one_compiler():
        for part in parts:
            if part not in _READY:
                report(part)
                part.warm()
                _READY.add(part)


def compile_kernels(report: Callable[[str], None] = lambda part: None) -> None:
    """`compile_parts` for every role, folding with FTRL-Proximal; `report` gets the name of each part."""
    compile_parts(PARTS, lambda part: report(part.name))


def compile_optimizer(optimizer: Optimizer) -> None:
    """`compile_parts` for folding with an optimizer."""
    compile_parts([fold_part(optimizer)])


FIRST_TIME_S = round(sum(part.first_time_s for part in PARTS))
"""About how long the first compilation for every role takes, for messages."""


def is_compiled() -> bool:
    """Whether the kernels are likely to be in the cache. Judges by those of hashing, and loads or compiles them."""
    _hashing()
    return missing() == 0
