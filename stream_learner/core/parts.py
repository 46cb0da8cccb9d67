"""The kernels of each role, in parts. A role compiles its parts before its first event: to compile a kernel between two
ticks would take seconds.

A part names the modules whose entries (`machine.entries`) are compiled together; they are imported only then. Every
module that has entries is in a part.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

from stream_learner.core.machine.entries import compile_entries
from stream_learner.core.machine.kernels import missing, one_compiler

if TYPE_CHECKING:
    from stream_learner.core.model.optimizers import Optimizer


class Part(NamedTuple):
    """Kernels that are compiled together.

    first_time_s: about how long that takes, for messages. modules: below `core`. columns: of a row of the model.
    """

    name: str
    first_time_s: float
    modules: tuple[str, ...]
    columns: int = 2


_FOLD: Final = (
    "model.losses",
    "model.fold",
    "model.progress",
    "model.row_bound",
    "model.table.changes",
    "model.table.kernels",
)

HASHING = Part("hashing", 1.2, ("machine.memory", "machine.hashing"))
DECODING = Part("decoding", 10.0, ("machine.arithmetic", "events.fast.keys", "events.fast.scanner"))
AVRO = Part("avro", 3.0, ("events.fast.avro",))
JOIN = Part(
    "join",
    4.5,
    (
        "machine.records",
        "machine.id_table",
        "join.log_time",
        "join.click_memory",
        "join.labels",
        "join.crowded",
        "join.gather",
        "events.field_counts",
    ),
)
TRAINING_LOG = Part("training log", 1.3, ("log.dictionary", "log.examples", "log.field_bound"))
FEATURE_SUBSET = Part("feature subset", 0.5, ("log.subset",))
FOLD = Part("fold", 8.0, (*_FOLD, "model.optimizers.ftrl"))
GATE = Part("gate", 2.3, ("machine.arithmetic", "gate.sample", "gate.steps"))
REPLICA = Part("replica", 3.2, ("snapshots.kernels", "snapshots.event_kernels"))
REQUESTS = Part("requests", 1.2, ("events.fast.requests",))

PARTS: Final = (HASHING, DECODING, AVRO, JOIN, TRAINING_LOG, FEATURE_SUBSET, FOLD, GATE, REPLICA, REQUESTS)
"""All parts, in the order in which they are compiled; of optimizers only FTRL-Proximal."""

_READY: set[Part] = set()
"""The parts whose kernels this process has."""

ROLES: Final[dict[str, tuple[Part, ...]]] = {
    "joiner": (HASHING, DECODING, JOIN, TRAINING_LOG),
    "learner": (HASHING, TRAINING_LOG, FOLD, GATE),
    "scorer": (HASHING, DECODING, REPLICA),
    "serve": (HASHING, DECODING, REPLICA, REQUESTS),
    "backfill": (HASHING, DECODING, JOIN, TRAINING_LOG, FEATURE_SUBSET, FOLD, GATE),
    "avro": (AVRO,),
}
"""The parts of each role, and of inputs in Avro besides. FOLD stands for the fold with the optimizers that the role is
given.
"""


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
    from stream_learner.core.model.optimizers import fold_of

    own = type(fold_of(optimizer)).__module__.removeprefix(f"{__package__}.")
    return Part(f"fold with {optimizer.name}", FOLD.first_time_s, (*_FOLD, own), len(optimizer.columns))


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
                compile_entries((f"{__package__}.{module}" for module in part.modules), part.columns)
                _READY.add(part)


def compile_kernels(report: Callable[[str], None] = lambda part: None) -> None:
    """`compile_parts` for every role, folding with FTRL-Proximal; `report` gets the name of each part."""
    compile_parts(PARTS, lambda part: report(part.name))


FIRST_TIME_S = round(sum(part.first_time_s for part in PARTS))
"""About how long the first compilation for every role takes, for messages."""


def is_compiled() -> bool:
    """Whether the kernels are likely to be in the cache. Judges by those of hashing, and loads or compiles them."""
    compile_parts([HASHING])
    return missing() == 0
