"""Mutations: the production code with one step of a protocol taken away or weakened, which the histories must notice.

A mutation patches names in memory, and only while it is applied. It replaces what one step calls, by name: it never
tells steps apart by the words of a message, for then another wording leaves the step in.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from proofs.simulation import mutations_join, mutations_log, mutations_publication
from proofs.simulation.patches import Patches, patched
from proofs.simulation.run import kind_of, run_history

RARE = frozenset({"publication 2: a torn publication's number is used again"})
"""Mutations that may take thousands of histories to notice."""
MISFITS = ("TypeError", "AttributeError", "NameError")
"""Errors of a patch that does not fit the present code; they show nothing about the step."""


@dataclass(frozen=True)
class Mutation:
    """name: the step that is left out. kind: the histories that must notice. patches: target, attribute, value; made
    anew whenever the mutation is applied.
    """

    name: str
    kind: str
    patches: Callable[[], Patches]

    @property
    def is_rare(self) -> bool:
        """Whether it may take thousands of histories to notice."""
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
    """Apply a mutation while this is open."""
    with patched(mutation.patches()):
        yield


@dataclass(frozen=True)
class Caught:
    """The result of a hunt. seed: of the history that noticed, -1 if none did. histories: how many were tried. how: the
    broken law, "" for none.
    """

    name: str
    seed: int
    histories: int
    how: str


def hunt(mutation: Mutation, first_seed: int, histories: int) -> Caught:
    """Run histories of the mutation's kind until one notices. Raises TypeError if it does not fit the code."""
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
    """Hunt the mutation at an index of the list: a spawned process can be sent an index, but no mutation."""
    return hunt(MUTATIONS[place], seed, histories)
