"""Histories of publishers and scorers: learners that crash, fence each other and tear transactions; replicas that begin
anywhere.

A learner is the production `Learner` and `Publication`, a scorer the production `Replica`. The oracle remembers for
every tick the weights as they were when it was first folded; it never looks into a record of the topic. A broken law is
an AssertionError.
"""

from __future__ import annotations

import random
from collections import Counter
from dataclasses import dataclass
from functools import partial
from itertools import count
from typing import Any

import numpy as np

from proofs.simulation.evidence import law
from proofs.simulation.kafka import Calm, Coordinator, Died, Log, Queries, Reader, TransactionalPublisher
from stream_learner.adapters.kafka import TopicAndPartition
from stream_learner.core.log.examples import ExampleRecord
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers.ftrl import FtrlProximal
from stream_learner.core.model.table.rows import StateRows
from stream_learner.core.snapshots.pages import PagePolicy, Prefix
from stream_learner.core.snapshots.replica import Replica
from stream_learner.core.snapshots.rows import WeightRows
from stream_learner.errors import BrokerUnreachable, Fenced, RetryLater
from stream_learner.roles.common.last_publication import read_last_publication
from stream_learner.roles.learner.publication import Publication

TOPIC = "snapshots"
CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "inputs": {}, "metrics": {}}
TORN_SHARES = (0.0, 0.1, 0.3)
"""One of these is the share of commits that fail in a history."""
UNIVERSE = np.sort(np.array([(i * 0x9E3779B97F4A7C15 + 0x1234567) % 2**64 for i in range(1, 33)], np.uint64))


@dataclass
class Checkpoint:
    """A learner's durable state as of a tick."""

    tick: int = -1
    rows: StateRows | None = None
    state: dict[str, Any] | None = None


class _Publication(Publication):
    """Looks only at keys of `UNIVERSE` when it scans the table: the real scan of every page takes longer."""

    def _rows_of(self, prefix: Prefix) -> WeightRows:
        rows = self._learner.table.rows_of(UNIVERSE)
        there = (rows.touched >= 0) & (rows.keys >= prefix.bits) & (rows.keys <= prefix.last)
        return self._weights(rows.where(there))


class Machine:
    """A machine on which a learner runs, with its disk."""

    def __init__(self) -> None:
        self.disk = Checkpoint()


class Process:
    """One learner process, which folds, checkpoints and publishes."""

    def __init__(self, world: World, machine: Machine) -> None:
        self.world, self.machine, self.rng = world, machine, world.rng
        self.logs = world.logs
        self.below = world.rng.randrange
        self.fragile = 0.0
        self.paused = False
        self.begun = False
        self.tick = machine.disk.tick
        self.learner = Learner(FtrlProximal(l1=world.l1))
        rows, state = machine.disk.rows, machine.disk.state
        if rows is not None and state is not None:
            self.learner.table.load(rows)
            self.learner.restore(state)
        kind = Publication if world.scans_table else _Publication
        self.publication = kind(
            self,  # type: ignore[arg-type]
            Queries(self),  # type: ignore[arg-type]
            topic=TOPIC,
            transactional_id="publisher",
            shards=world.shards,
            policy=world.policy,
            learner=self.learner,
            new_publisher=lambda client, _: TransactionalPublisher(self, world.coordinator),  # type: ignore[arg-type,return-value]
            read_last=partial(read_last_publication, new_reader=Reader),
            new_attempt_id=self.new_attempt_id,
        )

    def new_attempt_id(self) -> int:
        """A number that is another each time."""
        return self.rng.getrandbits(64)

    def edge(self, name: str) -> None:
        """Called at every call to a broker: raises an error or death, or does nothing."""
        world = self.world
        if world.quiet:
            return
        roll = self.rng.random()
        if roll < self.fragile:
            world.seen["crashes"] += 1
            world.seen[f"crashes in {name}"] += 1
            raise Died
        if roll > 0.99 and name != "committed":
            world.seen["broker errors"] += 1
            raise BrokerUnreachable("no answer")

    def stale_end(self, place: TopicAndPartition, end: int) -> int:
        """Ends are as they are."""
        return end

    def commit_fate(self) -> str:
        """The end of a commit: done, aborted, torn, or unknown to the publisher."""
        if self.world.quiet or self.rng.random() > self.world.torn_share:
            return "done"
        fate = self.rng.choice(("aborted", "unknown, done", "unknown, open", "torn", "torn"))
        self.world.seen[f"publications {fate}"] += 1
        return fate

    def turn(self) -> None:
        """Fold some ticks, perhaps checkpoint, perhaps publish. Raises Fenced and Died."""
        rng = self.rng
        for _ in range(rng.randrange(1, 4)):
            self.fold()
        if rng.random() < 0.3:
            self.checkpoint()
        if rng.random() < 0.7 or self.world.quiet:
            self.publish()

    def fold(self) -> None:
        """Fold the next tick; the world checks that the state is the same whoever folds it."""
        self.tick += 1
        for record in self.world.records_of(self.tick):
            self.learner.fold(record, self.tick)
        self.world.note(self.tick, self.learner)

    def checkpoint(self) -> None:
        """Write to the disk what a crash leaves."""
        learner = self.learner
        learner.table.take_changed_for_checkpoint(self.tick)
        rows = learner.table.rows_of(UNIVERSE)
        kept = rows.where(rows.touched >= 0)
        self.machine.disk = Checkpoint(self.tick, kept, learner.state_scalars())

    def publish(self) -> None:
        """Take steps 1 to 4 of the publication, as far as they succeed."""
        try:
            if not self.begun:
                self.publication.begin()
                self.begun = True
            if self.publication.may_publish(self.tick):
                content = {**CONTENT, **self.learner.kind()}
                self.publication.publish(self.tick, self.machine.disk.tick, content)
                self.world.seen["publications"] += 1
                self.world.published = self.tick
        except RetryLater:
            self.world.seen["publications to be tried again"] += 1


class Scorer:
    """A replica and its readers, as a scorer has them."""

    def __init__(self, world: World) -> None:
        self.world, self.logs = world, world.logs
        calm = Calm(world.logs)
        places = [(TOPIC, shard) for shard in range(world.shards)]
        queries = Queries(calm)
        ends, starts = queries.last_stable_offsets(places), queries.earliest(places)
        self.replica = Replica([ends[place] for place in places], topic=TOPIC)
        self.readers = [Reader(self, *place, starts[place], with_keys=True) for place in places]
        self.version = -1
        self.at_least = world.published

    def edge(self, name: str) -> None:
        """Do nothing: reads never fail."""

    def below(self, limit: int) -> int:
        """A random number, so that readers read some of the records; the largest once trouble is over."""
        return limit - 1 if self.world.quiet else self.world.rng.randrange(limit)

    def stale_end(self, place: TopicAndPartition, end: int) -> int:
        """Ends are as they are."""
        return end

    def read(self) -> None:
        """Read some records of every shard; check what is served after each record."""
        for shard in self.world.rng.sample(range(len(self.readers)), len(self.readers)):
            reader = self.readers[shard]
            batch = reader.read(self.world.rng.choice((1, 3, 100)))
            if batch is None:
                self.replica.reached(shard, reader.position)
            else:
                for offset, key, value in zip(batch.offsets.tolist(), batch.keys or (), batch.values, strict=True):
                    if self.replica.take(shard, offset, key, value) is not None:
                        self.check()
            self.check()

    def check(self) -> None:
        """The replica serves exactly the model at its version; versions never go back."""
        replica, world = self.replica, self.world
        if replica.served is None:
            world.seen["answers not ready"] += 1
            return
        law(replica.version >= self.version, f"version {replica.version} after {self.version}")
        if replica.version == self.version:
            return
        law(self.version >= 0 or replica.version >= self.at_least, "served before the end as it was at the start")
        self.version = replica.version
        world.seen["versions served"] += 1
        weights, digest = world.truth[replica.version]
        law(replica.digest == digest, f"another digest at version {replica.version}")
        found = [replica.weight(int(key)) for key in UNIVERSE]
        law(found == weights, f"other weights at version {replica.version}")

    def read_all(self) -> None:
        """Read to the end of every shard."""
        end = [(reader, self.world.logs[TOPIC, reader.partition]) for reader in self.readers]
        while any(reader.position < log.stable for reader, log in end):
            self.read()
        self.read()


class World:
    """A topic, learners that publish to it, scorers that follow it."""

    def __init__(self, seed: int, trace: bool = False) -> None:
        rng = self.rng = random.Random(seed)
        self.trace = trace
        self.quiet = False
        self.seen: Counter[str] = Counter()
        self.shards = rng.choice((1, 1, 2, 4))
        self.l1 = rng.choice((0.0, 0.1))
        self.scans_table = rng.random() < 0.05
        self.published = -1
        self.torn_share = rng.choice(TORN_SHARES)
        order = count()
        self.logs: dict[TopicAndPartition, Log] = {(TOPIC, shard): Log(order) for shard in range(self.shards)}
        self.coordinator = Coordinator(self.logs)
        self.policy = PagePolicy(
            page_bytes=12 * rng.choice((2, 4, 8)),
            part_bytes=12 * rng.choice((2, 3, 100)),
            ring=rng.choice((6, 8, 12)),
            delta_share=rng.choice((0.0, 0.5, 2.0)),
        )
        self.ticks: list[list[ExampleRecord]] = []
        self.truth: dict[int, tuple[list[float], int]] = {}
        self.machines = [Machine(), Machine()]
        self.processes = [Process(self, self.machines[0])]
        self.scorers: list[Scorer] = []

    def records_of(self, tick: int) -> list[ExampleRecord]:
        """The records of a tick in the training log: the same for everybody who asks."""
        while len(self.ticks) <= tick:
            self.ticks.append([self._record(len(self.ticks))] if self.rng.random() < 0.9 else [])
        return self.ticks[tick]

    def _record(self, tick: int) -> ExampleRecord:
        rng = self.rng
        keys = rng.sample(range(len(UNIVERSE)), rng.randrange(1, 5))
        n = len(keys)
        return ExampleRecord(
            partition=0,
            tick=tick,
            attempt=1,
            sequence=0,
            log_time_ms=np.full(1, tick, np.int64),
            id_hash=np.ones(1, np.uint64),
            label=np.array([float(rng.random() < 0.5)]),
            weight=np.ones(1),
            keys=UNIVERSE[keys],
            indices=np.arange(n, dtype=np.uint16),
            row_len=np.array([n], np.uint16),
            positions=np.zeros(0, np.uint32),
            values=np.zeros(0),
        )

    def note(self, tick: int, learner: Learner) -> None:
        """Remember the model at a tick when it is first folded; later check that it is the same again."""
        digest = learner.digest()
        if tick in self.truth:
            law(self.truth[tick][1] == digest, f"tick {tick} folded again gives another model")
            return
        rows = learner.table.rows_of(UNIVERSE)
        self.truth[tick] = (learner.weights(rows.columns).astype(np.float32).tolist(), digest)

    def run(self) -> None:
        """Make trouble for a while, then let one learner go on until every scorer has its last version."""
        rng = self.rng
        for _ in range(rng.randrange(8, 45)):
            self.trouble()
            for process in list(self.processes):
                self._turn(process)
            for scorer in self.scorers:
                if rng.random() < 0.7:
                    scorer.read()
        self._settle()

    def _turn(self, process: Process) -> None:
        if process.paused:
            return
        process.fragile = self.rng.choice((0.0, 0.0, 0.01, 0.05))
        try:
            process.turn()
        except Died:
            self._restart(process)
        except Fenced:
            self.seen["publishers fenced"] += 1
            if len(self.processes) > 1:
                self.processes.remove(process)
            else:
                self._restart(process)

    def _restart(self, process: Process) -> None:
        """Start the machine's process again, from its disk; an open transaction stays open."""
        self.seen["publishers restarted"] += 1
        self.processes.remove(process)
        self.processes.append(Process(self, process.machine))

    def trouble(self) -> None:
        """Start a second learner, pause or crash one, compact, start or end a scorer, or do nothing."""
        rng, roll = self.rng, self.rng.random()
        if roll < 0.08 and len(self.processes) == 1:
            other = self.machines[1] if self.processes[0].machine is self.machines[0] else self.machines[0]
            self.processes.append(Process(self, other))
            self.seen["second publishers"] += 1
        elif roll < 0.14:
            process = rng.choice(self.processes)
            process.paused = not process.paused
        elif roll < 0.2:
            self._restart(rng.choice(self.processes))
        elif roll < 0.35:
            self._compact()
        elif roll < 0.47 and len(self.scorers) < 3:
            self.seen["scorers"] += 1
            self.scorers.append(Scorer(self))
        elif roll < 0.5 and self.scorers:
            self.scorers.remove(rng.choice(self.scorers))

    def _compact(self) -> None:
        self.seen["compactions"] += 1
        for log in self.logs.values():
            log.compact(self.rng.randrange(log.end + 1))

    def _settle(self) -> None:
        self.quiet = True
        del self.processes[:-1]
        process = self.processes[0]
        process.paused = False
        seen = max(self.truth, default=0)
        while process.tick <= seen or process.publication.version < process.tick:
            self._turn(process)
            process = self.processes[0]
        for _ in range(self.policy.ring + 2):
            self._turn(process)
            process = self.processes[0]
        if self.rng.random() < 0.5:
            self._compact()
        for scorer in [*self.scorers, Scorer(self)]:
            scorer.read_all()
            law(scorer.replica.ready, f"not ready in the end: {scorer.replica.why_not_ready}")
            law(scorer.replica.version == process.publication.version, "ready, and at an old version")
