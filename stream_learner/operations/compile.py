"""`compile`: compile the kernels of roles and keep the machine code on disk, before any of them starts."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from stream_learner.adapters.kafka.canary import compare_consumers
from stream_learner.core.machine.kernels import MACHINE_CODE, missing
from stream_learner.core.model.optimizers import OPTIMIZERS, Optimizer, sample_optimizer
from stream_learner.core.parts import FOLD, JOIN, ROLES, every_part, parts_of
from stream_learner.errors import ConfigError
from stream_learner.roles.common.compile import load


class Compiled(NamedTuple):
    """The result. compiled: the number of kernels, by their types, that were not in the folder before."""

    compiled: int
    parts: int
    seconds: float
    folder: str


def compile_ahead(roles: Sequence[str], optimizers: Sequence[str]) -> Compiled:
    """Compile what these roles run, folding with these optimizers; without roles everything, with every optimizer.

    Where a joiner is among them, its consumer is compared with the ordinary one on known records. Raises ConfigError
    for an unknown optimizer, for one that none of the roles folds with, if new machine code cannot be kept, and if the
    consumers differ.
    """
    if optimizers and not any(FOLD in ROLES[role] for role in roles):
        folding = sorted(role for role, parts in ROLES.items() if FOLD in parts)
        raise ConfigError(
            f"no optimizer goes with {' and '.join(roles) or 'all roles'}: nothing is folded there",
            action=f"Name a role that folds ({', '.join(folding)}), or leave --optimizer out.",
        )
    chosen = [_optimizer(name) for name in optimizers]
    parts = parts_of(roles, chosen) if roles else every_part()
    began_s, before = time.monotonic(), missing()
    load(parts)
    compiled = missing() - before
    if compiled and MACHINE_CODE.unkept:
        raise ConfigError(
            f"machine code cannot be kept in {MACHINE_CODE.folder}: {MACHINE_CODE.unkept}",
            action="Set NUMBA_CACHE_DIR to a folder that can be written, here and for the roles.",
        )
    if JOIN in parts and (differs := compare_consumers()):
        raise ConfigError(
            f"librdkafka hands over records otherwise than this program reads them: {differs}",
            action="Install a version of confluent-kafka that docs/adr/0022 names, and report this one.",
        )
    return Compiled(compiled, len(parts), time.monotonic() - began_s, str(MACHINE_CODE.folder))


def _optimizer(name: str) -> Optimizer:
    if name not in OPTIMIZERS:
        raise ConfigError(f"there is no optimizer {name}", action=f"Name one of {', '.join(sorted(OPTIMIZERS))}.")
    return sample_optimizer(name)
