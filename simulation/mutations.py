"""One step of a protocol taken away or weakened at a time: the histories must notice each.

In: the production code, patched while a mutation is on. Out: the seed that noticed, or none.
This file must never change anything for good, nor a line of the production code.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest import mock

from simulation import mutations_join, mutations_log, mutations_publication
from simulation.run import kind_of, run_history

RARE = frozenset({"publication 2: a torn publication's number is used again"})
"""What may take thousands of histories to notice."""
MISFITS = ("TypeError", "AttributeError", "NameError")
"""What a patch raises that is not made for the code as it is; that shows nothing."""
Patches = list[tuple[Any, str, Any]]


@dataclass(frozen=True)
class Mutation:
    """name: what is left out. kind: of the histories that must notice. patches: made when it is applied."""

    name: str
    kind: str
    patches: Callable[[], Patches]

    @property
    def is_rare(self) -> bool:
        """Whether it takes hundreds of histories to notice."""
        return self.name in RARE


MUTATIONS = [
    Mutation(name, kind, patches)
    for kind, module in (
        ("joining", mutations_log),
        ("joining", mutations_join),
        ("publishing", mutations_publication),
    )
    for name, patches in module.MUTATIONS.items()
]


@contextmanager
def applied(mutation: Mutation) -> Iterator[None]:
    """While this is open the step is gone."""
    with ExitStack() as stack:
        for target, name, value in mutation.patches():
            stack.enter_context(mock.patch.object(target, name, value))
        yield


@dataclass(frozen=True)
class Caught:
    """By which history a mutation was noticed, and how; seed -1, how "" if by none of `histories`."""

    name: str
    seed: int
    histories: int
    how: str


def hunt(mutation: Mutation, first_seed: int, histories: int) -> Caught:
    """Run histories of the mutation's kind until one notices. Raises TypeError if what it patches has changed."""
    tried = 0
    with applied(mutation):
        for seed in range(first_seed, first_seed + 100 * histories):
            if kind_of(seed) != mutation.kind:
                continue
            if tried == histories:
                break
            tried += 1
            outcome = run_history(seed)
            if outcome.failures:
                how = outcome.failures[0][1]
                if how.startswith(MISFITS):
                    raise TypeError(f"the mutation {mutation.name!r} does not fit the code any more: {how}")
                return Caught(mutation.name, seed, tried, how)
    return Caught(mutation.name, -1, tried, "")


def hunt_nth(place: int, *, seed: int, histories: int) -> Caught:
    """Hunt the mutation at a place of the list: what a process that was spawned can be sent."""
    return hunt(MUTATIONS[place], seed, histories)
