"""Random histories of several learners of one model, each of which may believe that it leads.

Publication and fold are the program's own. The snapshot topic is a model of what Kafka promises: an id that is
initialised fences the producers before, a transaction is visible whole or not at all, an outcome may stay unknown.
There is no lease: any learner may take over at any moment, also in the middle of another one's steps.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from functools import cache
from typing import Any

import pytest

from stream_learner.adapters.kafka import Record
from stream_learner.core.model.fold import Learner
from stream_learner.core.model.optimizers import FtrlProximal
from stream_learner.core.snapshots.pages import PagePolicy
from stream_learner.core.snapshots.records import MODEL_KEY, VERSION_KEY, ModelRecord, VersionRecord, decode
from stream_learner.core.snapshots.replica import Replica
from stream_learner.errors import Fenced, RetryLater
from stream_learner.roles.common.last_publication import LastPublication
from stream_learner.roles.learner.publication import Publication
from tests.core.model.example_records import as_record, random_examples

SHARDS = 2
TICKS = 40
PER_TICK = 3
CONTENT = {"name": "m", "tick_ms": 1, "features": {}, "inputs": {}, "metrics": {}}
EXAMPLES = [e for e in random_examples(PER_TICK * TICKS * 3, 5) if e.features][: PER_TICK * TICKS]


def folded(tick: int) -> Learner:
    """A learner that has folded up to a tick."""
    learner = Learner(FtrlProximal())
    for number in range(tick + 1):
        fold(learner, number)
    return learner


@cache
def undisturbed() -> tuple[list[int], Learner]:
    """The digest after every tick of a learner to which nothing happens, and that learner after the last tick."""
    learner, digests = folded(-1), []
    for tick in range(TICKS):
        fold(learner, tick)
        digests.append(learner.digest())
    return digests, learner


def fold(learner: Learner, tick: int) -> None:
    """One tick."""
    learner.fold(as_record(EXAMPLES[PER_TICK * tick : PER_TICK * (tick + 1)], tick=tick), tick)


class Topic:
    """The snapshot topic, and who may write to it."""

    def __init__(self, meanwhile: Callable[[], None], rng: random.Random) -> None:
        self.logs: list[list[tuple[bytes, bytes | None]]] = [[] for _ in range(SHARDS)]
        self.epoch = 0
        self.meanwhile = meanwhile
        self.rng = rng

    def last(self, *_: Any) -> LastPublication:
        """The last version record of all shards, read one after the other while other learners go on."""
        found: list[VersionRecord | None] = []
        for log in self.logs:
            self.meanwhile()
            records = [decode(VERSION_KEY, value) for key, value in log if key == VERSION_KEY and value is not None]
            found.append(records[-1] if records and isinstance(records[-1], VersionRecord) else None)
        models = [decode(MODEL_KEY, value) for key, value in self.logs[0] if key == MODEL_KEY and value is not None]
        return LastPublication(tuple(found), models[-1] if models and isinstance(models[-1], ModelRecord) else None)


class Publisher:
    """A transactional producer. With `checks` False it has no fence, to test this test."""

    outdated = False
    checks = True

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.transactional_id = "m.publisher"
        self.epoch = -1

    def init(self) -> None:
        self.topic.meanwhile()
        self.topic.epoch += 1
        self.epoch = self.topic.epoch
        self.topic.meanwhile()

    def publish(self, records: Iterable[Record]) -> None:
        taken = list(records)
        self.topic.meanwhile()
        if self.checks and self.epoch != self.topic.epoch:
            raise Fenced("fenced")
        outcome = self.topic.rng.random()
        if outcome < 0.1:
            raise RetryLater("aborted")
        for record in taken:
            self.topic.logs[record.partition].append((record.key or b"", record.value))
        if outcome < 0.2:
            self.epoch = -2
            raise Fenced("the outcome stayed unknown")

    def close(self) -> None:
        """Do nothing: nothing is open."""


class Candidate:
    """A learner with a state of its own. A crash takes it back to its checkpoint, or to nothing without one."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        self.checkpoint = self.tick = -1
        self.learner = folded(-1)
        self.publication: Publication | None = None
        self.busy = False

    def step(self, rng: random.Random) -> None:
        """Fold, write a checkpoint, crash, take over, or publish."""
        self.busy = True
        chance = rng.random()
        if chance < 0.4 and self.tick + 1 < TICKS:
            self.tick += 1
            fold(self.learner, self.tick)
        elif chance < 0.5:
            self.checkpoint = self.tick
            if self.publication is not None:
                self.learner.table.take_changed_for_checkpoint(self.tick)
        elif chance < 0.56:
            self.crash()
        elif chance < 0.68:
            self.lead()
        else:
            self.publish()
        self.busy = False

    def crash(self) -> None:
        """Crash: start from the checkpoint, without leading."""
        self.publication, self.tick = None, self.checkpoint
        self.learner = folded(self.tick)

    def lead(self) -> None:
        """Take over from any leader."""
        publication = Publication(
            None,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
            topic="m.snapshots",
            transactional_id="m.publisher",
            shards=SHARDS,
            policy=PagePolicy(page_bytes=48, ring=8),
            learner=self.learner,
            new_publisher=lambda settings, name: Publisher(self.topic),  # type: ignore[arg-type,return-value]
            read_last=self.topic.last,
        )
        publication.begin()
        self.publication = publication

    def publish(self) -> None:
        """Publish, if this learner believes that it may. If it is fenced, it ends and starts anew."""
        if self.publication is None or not self.publication.may_publish(self.tick):
            return
        try:
            self.publication.publish(self.tick, self.checkpoint, {**CONTENT, **self.learner.kind()})
        except RetryLater:
            return
        except Fenced:
            self.crash()


class World:
    """Three candidates; each may be interrupted by the others wherever Kafka is asked."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.topic = Topic(self.meanwhile, self.rng)
        self.candidates = [Candidate(self.topic) for _ in range(3)]

    def meanwhile(self) -> None:
        """Let others act while one waits for an answer."""
        while self.rng.random() < 0.3:
            idle = [candidate for candidate in self.candidates if not candidate.busy]
            if not idle:
                return
            self.rng.choice(idle).step(self.rng)

    def run(self, steps: int) -> None:
        """Run a history. At its end one learner leads alone, to the last tick."""
        for _ in range(steps):
            self.rng.choice(self.candidates).step(self.rng)
        last = self.candidates[0]
        last.busy, self.candidates = True, [last]
        while last.publication is None or last.publication.version < TICKS - 1:
            while last.tick + 1 < TICKS:
                last.tick += 1
                fold(last.learner, last.tick)
            last.lead()
            last.publish()
            if last.publication is not None and not last.publication.may_publish(last.tick):
                return

    def check(self) -> int:
        """Check that versions only grow, and that each of them, and a replica, is the undisturbed model; count them."""
        seen: set[int] = set()
        digests, last = undisturbed()
        for log in self.topic.logs:
            stamped = [decode(VERSION_KEY, value) for key, value in log if key == VERSION_KEY and value is not None]
            found = [(r.stamp.version, r.digest) for r in stamped if isinstance(r, VersionRecord)]
            versions = [version for version, _ in found]
            assert versions == sorted(set(versions))
            for version, digest in found:
                assert digest == digests[version]
            seen |= set(versions)
        replica = Replica([len(log) for log in self.topic.logs])
        for shard, log in enumerate(self.topic.logs):
            for offset, (key, value) in enumerate(log):
                replica.take(shard, offset, key, value)
            replica.reached(shard, len(log))
        assert replica.ready, replica.why_not_ready
        assert replica.version == TICKS - 1
        for rows in last.table.items():
            expected = last.weights(rows.columns).astype("float32")
            assert [replica.weight(int(key)) for key in rows.keys] == expected.tolist()
        return len(seen)


def test_whoever_takes_over_when_versions_only_grow_and_are_those_of_the_undisturbed_model() -> None:
    """In random histories of three learners that fence each other at any moment."""
    versions = 0
    for seed in range(30):
        world = World(seed)
        world.run(120)
        versions += world.check()
    assert versions > 150


@pytest.mark.parametrize("mutation", ["no fence", "last version not read"])
def test_the_histories_find_a_protocol_without_one_of_its_steps(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the fence, or without passing what was published last, versions go back or replicas are wrong."""
    if mutation == "no fence":
        monkeypatch.setattr(Publisher, "checks", False)
    else:
        monkeypatch.setattr(Publication, "may_publish", lambda self, tick: tick >= 0)
    with pytest.raises((AssertionError, KeyError, ValueError)):
        for seed in range(100):
            world = World(seed)
            world.run(120)
            world.check()
