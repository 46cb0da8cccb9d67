"""Holds what an incident has left against the oracle: the log, the learner's state, and a learner that starts anew."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from proofs.chaos import check
from proofs.chaos.incidents.world import World
from tests.e2e.checks import state_of
from tests.e2e.site import running, wait_until
from tests.e2e.training_log import plain_examples
from tests.oracles import loop


def verdict(world: World) -> list[str]:
    """All differences; empty if everything is as it must be."""
    site, s = world.site, world.site.scenario.settings
    problems: list[str] = []
    joined = site.scenario.expected()
    for log, expected in zip(site.logs(), joined, strict=True):
        problems += check.log_differences(log.partition, log.examples(), plain_examples(expected.examples))
    examples = chain.from_iterable(expected.examples for expected in joined)
    learned = [e for e in examples if not any(first <= e.tick <= last for first, last in world.skipped)]
    return problems + list(_model_differences(world, loop.fold(learned, s)))


def _model_differences(world: World, wanted: loop.Fold) -> Iterator[str]:
    """The rows are the oracle's; so is the digest unless decisions are bound into it. A learner that folds the log
    again comes to the same digest in any case."""
    digests: dict[str, str] = {}
    folders = {"the learner": world.disk.path / "state", "a learner that began anew": world.folder / "anew"}
    for who, folder in folders.items():
        alone = {"publish": False, "copies": False, "state_dir": str(folder)}
        role = world.site.learner(world.site.changed(learner=alone))
        with running(role):
            wait_until(lambda role=role: role.tick >= world.site.last_tick(), f"{who} has folded every tick")  # type: ignore[misc]
        digests[who] = f"{role.learner.digest_full():016x}"
        bare = digests[who] if not world.skipped else wanted.digest
        yield from check.model_differences(who, state_of(role.learner), bare, wanted)
    if len(set(digests.values())) > 1:
        yield f"digests differ: {digests}"
    world.seen["digest"] = digests["the learner"]
