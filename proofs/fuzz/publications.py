"""Small models and the records of their publications, torn attempts included, from which sequences of snapshot records
are cut."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

import numpy as np

from stream_learner.core.snapshots.pages import PagePlan, PagePlanner, PagePolicy, Prefix, shard_prefix
from stream_learner.core.snapshots.records import Stamp, publication
from stream_learner.core.snapshots.rows import WeightRows

CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "optimizer": {}, "inputs": {}, "metrics": {}}
UNIVERSE = [(i * 0x9E3779B97F4A7C15 + 0x1234567) % 2**64 for i in range(1, 33)]
Pair = tuple[bytes, bytes | None]
"""Key and value of a record; None deletes."""
RING = 8


@dataclass(frozen=True)
class Publication:
    """One publication: its records by shard. A torn one has digest 0 and no weights."""

    version: int
    digest: int
    weights: Mapping[int, float]
    records: list[list[Pair]]


class History:
    """The publications of one model, oldest first."""

    def __init__(self, seed: int, shards: int, count: int, *, torn: float, whole: bool) -> None:
        """count: publications to make. shards: of each. torn: the share that is torn. whole: see `PagePolicy`."""
        self._rng = Random(f"publications/{seed}")
        self.shards = shards
        policy = PagePolicy(page_bytes=96, part_bytes=60, ring=RING, whole=whole)
        self._planners = [PagePlanner(shard_prefix(shard, shards), policy) for shard in range(shards)]
        self._weights: dict[int, float] = {}
        self._unsent: set[int] = set()
        self._seed = seed
        self.publications = [self._next(number, torn if number > 1 else 0.0) for number in range(1, count + 1)]

    @property
    def truth(self) -> dict[int, Publication]:
        """The published weights, by digest."""
        return {each.digest: each for each in self.publications if each.digest}

    def _next(self, number: int, torn: float) -> Publication:
        rng = self._rng
        before = {key: weight / 2 for key, weight in self._weights.items()} if self._whole else self._weights
        changed = {key: rng.choice((0.0, 1.0, 1.0)) * rng.randrange(1, 999) / 8 for key in rng.sample(UNIVERSE, 7)}
        self._weights, self._unsent = {**before, **changed}, self._unsent | changed.keys()
        version, digest = 10 * number, 1_000_000 * self._seed + number
        plans = [self._plan(planner) for planner in self._planners]
        records = [self._records(shard, plan, number, version, digest) for shard, plan in enumerate(plans)]
        if rng.random() < torn:
            return self._torn(version, records, plans)
        for planner, plan in zip(self._planners, plans, strict=True):
            planner.commit(plan)
        self._unsent = set()
        weights = {key: float(np.float32(weight)) for key, weight in self._weights.items() if weight}
        return Publication(version, digest, weights, records)

    @property
    def _whole(self) -> bool:
        return self._planners[0].policy.whole

    def _records(self, shard: int, plan: PagePlan[WeightRows], attempt: int, version: int, digest: int) -> list[Pair]:
        stamp = Stamp(shard, self.shards, plan.sequence, attempt, version)
        return list(publication(plan, stamp, digest, CONTENT if shard == 0 else None))

    def _torn(self, version: int, records: list[list[Pair]], plans: list[PagePlan[WeightRows]]) -> Publication:
        """A torn publication: readers see the first records of each shard, and the publisher goes on as `after_torn`
        says."""
        seen = [shard[: self._rng.randrange(len(shard))] for shard in records]
        for shard, (planner, plan) in enumerate(zip(self._planners, plans, strict=True)):
            state = planner.state.after_torn(plan.sequence if seen[shard] else planner.state.sequence - 1)
            state = state if seen[shard] else planner.state
            self._planners[shard] = PagePlanner(planner.root, planner.policy, state)
        return Publication(version, 0, {}, seen)

    def _plan(self, planner: PagePlanner[WeightRows]) -> PagePlan[WeightRows]:
        def below(prefix: Prefix) -> WeightRows:
            return _rows(self._weights, [key for key in self._weights if prefix.bits <= key <= prefix.last])

        root = planner.root
        return planner.plan(_rows(self._weights, [k for k in self._unsent if root.bits <= k <= root.last]), below)


def _rows(weights: Mapping[int, float], keys: list[int]) -> WeightRows:
    ordered = sorted(keys)
    return WeightRows(np.array(ordered, np.uint64), np.array([weights[key] for key in ordered], np.float32))


def histories() -> list[History]:
    """The histories that sequences are cut from: one shard or two, with torn attempts, with weights that move."""
    return [
        History(1, 1, 26, torn=0.0, whole=False),
        History(2, 1, 30, torn=0.25, whole=False),
        History(3, 2, 26, torn=0.0, whole=False),
        History(4, 2, 30, torn=0.25, whole=False),
        History(5, 1, 24, torn=0.2, whole=True),
    ]
