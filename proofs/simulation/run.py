"""Runs histories, one or many, in some processes: counts what happened, and keeps the seeds that broke a law."""

from __future__ import annotations

import gc
import multiprocessing
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from proofs.simulation import joiners, laws, publishers

PUBLISHING_EVERY = 8
"""One seed in eight makes a history of publishers and scorers, which takes longer; the others one of joiners."""
CHUNK = 50


@dataclass
class Outcome:
    """histories: how many of each kind. seen: how often each thing happened in them. failures: seed and broken law."""

    histories: Counter[str] = field(default_factory=Counter)
    seen: Counter[str] = field(default_factory=Counter)
    failures: list[tuple[int, str]] = field(default_factory=list)

    def add(self, other: Outcome) -> None:
        """Add the outcome of other histories."""
        self.histories.update(other.histories)
        self.seen.update(other.seen)
        self.failures += other.failures


def kind_of(seed: int) -> str:
    """The kind of history that a seed makes."""
    return "publishing" if seed % PUBLISHING_EVERY == 0 else "joining"


def run_history(seed: int, *, trace: bool = False) -> Outcome:
    """Run one history, a function of its seed alone. Any exception in it is a failure."""
    outcome = Outcome(Counter({kind_of(seed): 1}))
    try:
        if kind_of(seed) == "joining":
            world = joiners.World(seed, trace)
            outcome.seen = world.seen
            world.run()
            laws.check(world)
        else:
            topic = publishers.World(seed, trace)
            outcome.seen = topic.seen
            topic.run()
    except Exception as error:  # noqa: BLE001 -- a mistake of any kind is what the histories are there to find
        outcome.failures.append((seed, f"{type(error).__name__}: {error}"))
    return outcome


def _run_chunk(seeds: range) -> Outcome:
    outcome = Outcome()
    for seed in seeds:
        outcome.add(run_history(seed))
    return outcome


def run_histories(first_seed: int, histories: int, jobs: int) -> Iterator[Outcome]:
    """Run histories in `jobs` processes; yields an outcome for every few of them."""
    chunks = _chunks(first_seed, histories)
    if jobs == 1:
        yield from map(_run_chunk, chunks)
        return
    with multiprocessing.get_context("spawn").Pool(jobs, initializer=gc.freeze) as pool:
        yield from pool.imap_unordered(_run_chunk, chunks)


def _chunks(first_seed: int, histories: int) -> Iterable[range]:
    end = first_seed + histories
    return (range(start, min(start + CHUNK, end)) for start in range(first_seed, end, CHUNK))
