"""The snapshot protocol on random histories: the planner, the codec and the replica that production uses.

The log is a list per partition, compacted up to any point at any moment (tombstones go at once, the worst case).
The publisher crashes and comes back from a checkpoint; transactions are torn (a first part of a partition's records
becomes visible, the rest never); readers start, lag and die anywhere, and lose records. The oracle is the model as a
plain dict, remembered for every version.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np
import pytest

from stream_learner.core.snapshots import follower as follower_module
from stream_learner.core.snapshots.pages import PagePlanner, PagePolicy, Prefix, shard_prefix
from stream_learner.core.snapshots.records import VERSION_KEY, Stamp, VersionRecord, decode, publication
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.rows import WeightRows
from stream_learner.core.snapshots.table import Change
from tests.suite import share

CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "optimizer": {}, "inputs": {}, "metrics": {}}
UNIVERSE = [(i * 0x9E3779B97F4A7C15 + 0x1234567) % 2**64 for i in range(1, 97)]
Log = list[tuple[int, bytes, bytes | None]]


def rows_of(weights: dict[int, float], keys: Iterator[int] | list[int]) -> WeightRows:
    """Rows of these keys, sorted."""
    ordered = sorted(keys)
    values = [weights.get(key, 0.0) for key in ordered]
    return WeightRows(np.array(ordered, np.uint64), np.array(values, np.float32))


@dataclass
class Publisher:
    """A learner that only knows weights; its fold is the same again after a crash."""

    rng: random.Random
    shards: int
    policy: PagePolicy
    logs: list[Log]
    weights: dict[int, float] = field(default_factory=dict)
    unsent: set[int] = field(default_factory=set)
    tick: int = 0
    attempt: int = 0
    history: list[dict[int, float]] = field(default_factory=lambda: [{}])
    touched: list[set[int]] = field(default_factory=lambda: [set()])
    checkpoint: tuple[int, set[int]] = (0, set())
    published: int = -1

    def __post_init__(self) -> None:
        self.planners: list[PagePlanner[WeightRows]] = [
            PagePlanner(shard_prefix(shard, self.shards), self.policy) for shard in range(self.shards)
        ]

    def fold(self) -> None:
        """Go on by one tick; ticks that were folded before a crash give the same weights again."""
        self.tick += 1
        if self.tick == len(self.history):
            keys = self.rng.sample(UNIVERSE, self.rng.randrange(0, 9))
            change = {key: self.rng.choice([0.0, 1.0, 1.0]) * self.rng.random() for key in keys}
            before = self.history[-1]
            if self.policy.whole:
                before = {key: 0.875 * weight for key, weight in before.items()}
            self.history.append({**before, **change})
            self.touched.append(set(keys))
        self.weights = self.history[self.tick]
        self.unsent |= self.touched[self.tick]

    def crash(self) -> None:
        """Come back from the checkpoint: sequence and pages from the topic, fold until past its last version."""
        self.tick, unsent = self.checkpoint
        self.unsent = set(unsent)
        self.weights = self.history[self.tick]
        self.published = -1
        for shard, log in enumerate(self.logs):
            last = [value for _, key, value in log if key == VERSION_KEY]
            state = None
            if last:
                record = decode(VERSION_KEY, last[-1] or b"")
                assert isinstance(record, VersionRecord)
                state, self.published = record.state, max(self.published, record.stamp.version)
            self.planners[shard] = PagePlanner(shard_prefix(shard, self.shards), self.policy, state)

    def publication(self) -> list[list[tuple[bytes, bytes | None]]]:
        """Records of one publication, by shard."""
        self.attempt += 1
        self.plans = [planner.plan(*self._inputs(planner)) for planner in self.planners]
        return [
            list(
                publication(
                    plan,
                    Stamp(shard, self.shards, plan.sequence, self.attempt, self.tick),
                    0xD16E57 + self.tick,
                    CONTENT if shard == 0 else None,
                )
            )
            for shard, plan in enumerate(self.plans)
        ]

    def _inputs(self, planner: PagePlanner[WeightRows]):  # type: ignore[no-untyped-def]
        def rows_below(prefix: Prefix) -> WeightRows:
            return rows_of(self.weights, [k for k in self.weights if prefix.bits <= k <= prefix.last])

        root = planner.root
        return rows_of(self.weights, [k for k in self.unsent if root.bits <= k <= root.last]), rows_below

    def committed(self) -> None:
        """The publication is visible, and the learner knows."""
        for planner, plan in zip(self.planners, self.plans, strict=True):
            planner.commit(plan)
        self.unsent = set()
        self.published = self.tick


class World:
    """A topic, its publisher and its readers."""

    def __init__(self, seed: int, torn: float | None = None, *, moving: bool = False) -> None:
        rng = self.rng = random.Random(seed)
        self.shards = rng.choice([1, 1, 2, 4])
        self.logs: list[Log] = [[] for _ in range(self.shards)]
        self.ends = [0] * self.shards
        self.policy = PagePolicy(
            page_bytes=12 * rng.choice([2, 4, 8]),
            part_bytes=12 * rng.choice([2, 3, 100]),
            ring=rng.choice([8, 12, 24]),
            delta_share=rng.choice([0.0, 0.5, 2.0]),
            whole=moving,
        )
        self.publisher = Publisher(rng, self.shards, self.policy, self.logs)
        self.readers: list[Reader] = []
        self.torn = rng.choice([0.0, 0.0, 0.2]) if torn is None else torn
        self.checks = self.unready = 0

    def append(self, shard: int, records: list[tuple[bytes, bytes | None]]) -> None:
        for key, value in records:
            self.logs[shard].append((self.ends[shard], key, value))
            self.ends[shard] += 1
        self.ends[shard] += 1

    def publish(self) -> None:
        publisher, rng = self.publisher, self.rng
        if publisher.tick <= publisher.published:
            return
        batches = publisher.publication()
        if rng.random() < self.torn:
            whole = rng.randrange(self.shards) if rng.random() < 0.3 else -1
            for shard, records in enumerate(batches):
                cut = len(records) if shard == whole else rng.randrange(len(records))
                self.append(shard, records[:cut])
            publisher.crash()
            return
        for shard, records in enumerate(batches):
            self.append(shard, records)
        publisher.committed()

    def compact(self) -> None:
        for shard, log in enumerate(self.logs):
            upto = self.rng.randrange(len(log) + 1)
            last = {key: offset for offset, key, _ in log}
            self.logs[shard] = self.publisher.logs[shard] = [
                entry
                for place, entry in enumerate(log)
                if place >= upto or (last[entry[1]] == entry[0] and entry[2] is not None)
            ]

    def check(self, replica: Replica) -> None:
        """Check that the served rows are exactly those of the model at its version."""
        if replica.served is None:
            self.unready += 1
            return
        self.checks += 1
        self.unready += not replica.ready
        truth = self.publisher.history[replica.version]
        assert replica.digest == 0xD16E57 + replica.version
        got = {key: replica.weight(key) for key in UNIVERSE}
        assert got == {key: float(np.float32(truth.get(key, 0.0))) for key in UNIVERSE}

    def step(self) -> None:
        rng, publisher = self.rng, self.publisher
        for _ in range(rng.randrange(1, 4)):
            publisher.fold()
        if rng.random() < 0.3:
            publisher.checkpoint = (publisher.tick, set(publisher.unsent))
        if rng.random() < 0.06:
            publisher.crash()
        self.publish()
        if rng.random() < 0.15:
            self.compact()
        if rng.random() < 0.2 and len(self.readers) < 4:
            self.readers.append(Reader(self, loses=rng.random() < 0.2))
        for reader in list(self.readers):
            if rng.random() < 0.02:
                self.readers.remove(reader)
                continue
            reader.read(1.0 if rng.random() < 0.5 else rng.random())

    def settle(self) -> None:
        """Publish without faults long enough for every page to be written again."""
        self.torn = 0.0
        for _ in range(self.policy.ring + 8):
            self.publisher.fold()
            self.publish()


class Reader:
    """A scorer's replica with its positions."""

    def __init__(self, world: World, *, loses: bool = False) -> None:
        self.world, self.loses = world, loses
        self.positions = [0] * world.shards
        self.replica = Replica(list(world.ends))

    def read(self, share: float) -> None:
        """Read some records of some partitions, then see what is served."""
        rng = self.world.rng
        for shard in rng.sample(range(self.world.shards), self.world.shards):
            todo = [entry for entry in self.world.logs[shard] if entry[0] >= self.positions[shard]]
            for offset, key, value in todo[: max(1, int(len(todo) * share))]:
                self.positions[shard] = offset + 1
                if self.loses and rng.random() < 0.02:
                    continue
                if self.replica.take(shard, offset, key, value) is not None:
                    self.world.check(self.replica)
            if share == 1.0:
                self.positions[shard] = self.world.ends[shard]
                self.replica.reached(shard, self.world.ends[shard])
        self.world.check(self.replica)


def run(seed: int, steps: int, torn: float | None = None, *, moving: bool = False) -> World:
    """One history; at its end every reader, and one that starts then, is ready and right."""
    world = World(seed, torn, moving=moving)
    for _ in range(steps):
        world.step()
    world.settle()
    for reader in [*world.readers, Reader(world)]:
        reader.loses = False
        reader.read(1.0)
    world.settle()
    for reader in world.readers:
        reader.read(1.0)
        assert reader.replica.ready, (seed, reader.replica.why_not_ready)
        assert reader.replica.version == world.publisher.tick
    fresh = Reader(world)
    fresh.read(1.0)
    assert fresh.replica.ready, (seed, fresh.replica.why_not_ready)
    world.check(fresh.replica)
    return world


@share.seeds(12, thorough=48)
def test_every_version_served_is_exactly_the_model_at_that_version(seeds: range) -> None:
    """Over random histories no reader ever serves anything but the model at the version it names."""
    worlds = [run(seed, 15 + 5 * (seed % 12)) for seed in seeds]
    assert sum(world.checks for world in worlds) > 60 * len(seeds)
    assert sum(world.unready for world in worlds) > 1.5 * len(seeds)


@share.seeds(4, thorough=16)
def test_weights_that_move_untouched_are_right_at_every_version(seeds: range) -> None:
    """Where every weight changes between two publications, each is the whole model, to those who follow too."""
    worlds = [run(seed, 15 + 5 * (seed % 12), moving=True) for seed in seeds]
    assert sum(world.checks for world in worlds) > 40 * len(seeds)


@pytest.mark.parametrize("mutation", ["pages", "deltas", "attempts"])
def test_the_histories_find_a_reader_that_leaves_out_a_rule(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replica that forgets one part of the rule for readiness is caught by the same histories."""
    coverage = follower_module._Coverage
    if mutation == "pages":
        monkeypatch.setattr(coverage, "missing_page", lambda self, record: "")
    elif mutation == "deltas":
        monkeypatch.setattr(coverage, "missing_delta", lambda self, record, after: "")
    else:
        monkeypatch.setattr(coverage, "counts", lambda self, kept, record, after: True)
        monkeypatch.setattr(follower_module.Follower, "_settle", _let_everything_out)
    with pytest.raises((AssertionError, KeyError)):
        for seed in range(30, 200):
            run(seed, 25, torn=0.5)


def _let_everything_out(follower: follower_module.Follower, stamp: Stamp, *, is_last: bool) -> list[Change]:
    kept = list(follower._kept.values())
    follower._kept.clear()
    for record in kept:
        follower._coverage.add(record)
    return [follower_module._change(record) for record in kept]
