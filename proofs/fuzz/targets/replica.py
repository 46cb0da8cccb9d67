"""Sequences of snapshot records through a scorer's replica: it serves the model of the version it names, or none.

The records are of publications of small models: compacted, torn, lost, repeated, moved, damaged, foreign.

A sequence of true records, whatever their number and order, must never show weights that are not those of the version
served. A sequence with an invented record may, since nothing tells such a record from a true one. After any sequence,
once publications go on as they should, the replica must become ready at the last version by itself.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from random import Random
from typing import NamedTuple

import numpy as np

from proofs.fuzz.guard import Side
from proofs.fuzz.mutate import mutated, shuffled
from proofs.fuzz.publications import RING, UNIVERSE, History, Pair, histories
from proofs.fuzz.target import Target, Wrong, pack, unpack
from proofs.fuzz.targets.snapshots import damaged_snapshot
from stream_learner.core.errors import RecordError
from stream_learner.core.snapshots import replica as replica_module
from stream_learner.core.snapshots.follower import MAX_COMPLETE_QUEUED, MAX_QUEUED
from stream_learner.core.snapshots.replica import Replica, Served
from stream_learner.core.snapshots.table import ReplicaTable

_HEAD = struct.Struct("<BBHH")
_FOREIGN = ((b"model", b"{}"), (b"", b"SLtl"), (b"version", b""), (b"delta/1/0", b"SLsn"))
_EVERY_KEY = 0, 2**64 - 1
_NO_ROWS = np.empty(0, np.uint64), np.empty(0, np.float32)
_NEW_TABLE = 200
"""How many sequences are read into one table, which is emptied in between."""
_HEALING = RING + 2
_GO_ON_EVERY = 4
_LOOK_EVERY = 7
"""Weights must not change between two versions: they are checked after every so many records."""


class Item(NamedTuple):
    """A record as it is read. at_end: True if the end of the partition was reported instead."""

    shard: int
    key: bytes
    value: bytes | None
    at_end: bool = False


class SnapshotSequences(Target):
    """The records that a scorer reads, from the start of the topic on."""

    name = "snapshot-sequences"
    batch_inputs = 20

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._histories = histories()
        self._true = [values_of(history) for history in self._histories]
        self._others = [sorted(values, key=len)[:: len(values) // 5] for values in self._true]
        self._table, self._left = ReplicaTable(lambda: None), _NEW_TABLE

    def make(self, rng: Random) -> bytes:
        place = rng.randrange(len(self._histories))
        history = self._histories[place]
        last = len(history.publications) - _HEALING
        begin = rng.choice((0, 0, rng.randrange(last)))
        end = rng.randrange(begin + 1, min(begin + 9, last) + 1)
        shards = [self._shard(rng, place, shard, begin, end) for shard in range(history.shards)]
        ends = [rng.choice((0, len(items), rng.randrange(len(items) + 1))) for items in shards]
        items = list(_merged(rng, shards))
        if rng.random() < 0.1:
            items.insert(rng.randrange(len(items) + 1), Item(rng.randrange(history.shards), b"", None, at_end=True))
        return pack([_HEAD.pack(place, end, ends[0], ends[-1]), *map(_packed, items)])

    def _shard(self, rng: Random, place: int, shard: int, begin: int, end: int) -> list[Item]:
        """The records of some publications in a partition, some of them changed."""
        history = self._histories[place]
        pairs = [pair for each in history.publications[begin:end] for pair in each.records[shard]]
        pairs = _compacted(rng, pairs) if rng.random() < 0.4 else pairs
        kind = rng.random()
        if kind < 0.3:
            pairs = [pair for pair in pairs if rng.random() > 0.05]
        elif kind < 0.6:
            pairs = shuffled(rng, pairs)
        elif kind < 0.7 and pairs:
            back = rng.randrange(len(pairs))
            pairs = pairs[: rng.randrange(back, len(pairs)) + 1] + pairs[back:]
        for _ in range(rng.choice((0, 0, 0, 1, 2)) if pairs else 0):
            at = rng.randrange(len(pairs))
            pairs[at] = self._damaged(rng, place, pairs[at])
        other = rng.randrange(history.shards) if rng.random() < 0.02 else shard
        return [Item(other, *pair) for pair in pairs]

    def _damaged(self, rng: Random, place: int, pair: Pair) -> Pair:
        key, value = pair
        kind = rng.random()
        if kind < 0.15:
            return rng.choice(_FOREIGN)
        if kind < 0.3:
            return mutated(rng, key, [b"delta/7/0", b"delta/99/0", b"page/01", b"version"]), value
        if kind < 0.4 or not value:
            return key, None
        if kind < 0.7:
            at = rng.randrange(len(value))
            return key, value[:at] + bytes((value[at] ^ (1 << rng.randrange(8)),)) + value[at + 1 :]
        return key, damaged_snapshot(rng, value, self._others[place])

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(data) for data in inputs)

    def _check(self, data: bytes) -> bool:
        head, *items = unpack(data) or [b""]
        place, end, *ends = _HEAD.unpack(head.ljust(_HEAD.size, b"\0")[: _HEAD.size])
        history = self._histories[place % len(self._histories)]
        reading = Reading(history, self._true[place % len(self._histories)], ends, self._empty_table())
        for item in map(_unpacked, filter(None, items)):
            reading.take(item)
        served = reading.served
        if len(items) % _GO_ON_EVERY == 0:
            reading.go_on(end % len(history.publications))
        return served

    def _empty_table(self) -> ReplicaTable:
        self._left -= 1
        if self._left == 0:
            self._table, self._left = ReplicaTable(lambda: None), _NEW_TABLE
        self._table.apply([(_EVERY_KEY, *_NO_ROWS)], -1)
        return self._table


class Reading:
    """One replica, and the records it has been given."""

    def __init__(self, history: History, true: frozenset[bytes], ends: Sequence[int], table: ReplicaTable) -> None:
        self._history, self._true, self._truth = history, true, history.truth
        make, replica_module.ReplicaTable = replica_module.ReplicaTable, lambda _: table  # type: ignore[assignment, misc]
        try:
            self._ends = [ends[0], ends[1]][: history.shards]
            self._replica = Replica(self._ends)
        finally:
            replica_module.ReplicaTable = make  # type: ignore[misc]
        self._table = table
        self._offsets = [0] * history.shards
        self._invented = False
        self._before: Served | None = None
        self._reads = 0
        self.served = False

    def take(self, item: Item) -> None:
        """Read a record, then check what is served."""
        shard = item.shard % self._history.shards
        if item.at_end:
            self._replica.reached(shard, self._offsets[shard])
        else:
            offset = self._offsets[shard]
            self._offsets[shard] += 1
            try:
                self._replica.take(shard, offset, item.key, item.value)
                self._invented |= item.value is not None and item.value not in self._true
            except RecordError as error:
                if self._replica.ready or (error.partition, error.offset) != (shard, offset):
                    raise Wrong(f"after {error!r} the replica is ready, or the record is not named") from None
        self._look()

    def _look(self) -> None:
        """Raise Wrong if the weights served were not published, or if too much is kept."""
        for follower in self._replica._followers:
            complete = sum(version.complete for version in follower.queue)
            if len(follower.queue) > MAX_QUEUED or complete > MAX_COMPLETE_QUEUED:
                raise Wrong(f"{len(follower.queue)} versions are queued")
        self._reads += 1
        changed, self._before = self._replica.served is not self._before, self._replica.served
        self.served |= self._before is not None
        if self._before is not None and not self._invented and (changed or self._reads % _LOOK_EVERY == 0):
            self._compare()

    def _compare(self) -> None:
        replica = self._replica
        published = self._truth.get(replica.digest)
        if published is None or published.version != replica.version:
            raise Wrong(f"version {replica.version} with digest {replica.digest} was never published")
        wrong = [key for key in UNIVERSE if replica.weight(key) != published.weights.get(key, 0.0)]
        if wrong:
            raise Wrong(f"version {replica.version} is served with {len(wrong)} wrong weights, of {wrong[:4]}")
        if replica.model.get("digest") != f"{replica.digest:016x}":
            raise Wrong(f"version {replica.version} has the model record of {replica.model.get('digest')}")

    def go_on(self, after: int) -> None:
        """Read the publications that follow, unchanged: the last version must then be served, with its weights."""
        following = self._history.publications[after : after + _HEALING]
        self._offsets = [max(offset, end) for offset, end in zip(self._offsets, self._ends, strict=True)]
        for each in following:
            for shard, records in enumerate(each.records):
                for key, value in records:
                    self.take(Item(shard, key, value))
        last = next(each for each in reversed(following) if each.digest)
        if not self._replica.ready or self._replica.version != last.version:
            why = self._replica.why_not_ready or f"version {self._replica.version}"
            raise Wrong(f"behind {last.version}, published whole, the replica is at: {why}")
        if not self._invented:
            self._compare()


def seeds() -> dict[str, bytes]:
    """The first publications of each history as they are, the end not reached before the last of them."""
    found = {}
    for place, history in enumerate(histories()):
        end = 6 if place < 2 else 4
        shards = [
            [Item(shard, *pair) for each in history.publications[:end] for pair in each.records[shard]]
            for shard in range(history.shards)
        ]
        head = _HEAD.pack(place, end, len(shards[0]), len(shards[-1]))
        found[f"history-{place}"] = pack([head, *(_packed(item) for items in shards for item in items)])
    return found


def values_of(history: History) -> frozenset[bytes]:
    """The values of all records that were published."""
    return frozenset(
        value for each in history.publications for records in each.records for _, value in records if value is not None
    )


def _compacted(rng: Random, pairs: list[Pair]) -> list[Pair]:
    """The records that compaction leaves up to some place: the last record of each key, and some of the deletions."""
    upto, last = rng.randrange(len(pairs) + 1), {key: at for at, (key, _) in enumerate(pairs)}
    deleted = rng.random() < 0.5
    return [
        (key, value)
        for at, (key, value) in enumerate(pairs)
        if at >= upto or (last[key] == at and (deleted or value is not None))
    ]


def _merged(rng: Random, shards: list[list[Item]]) -> Iterator[Item]:
    """The records of all partitions as a reader gets them: each partition in its order, in stretches."""
    waiting = [list(reversed(items)) for items in shards]
    while any(waiting):
        items = rng.choice([items for items in waiting if items])
        for _ in range(rng.choice((1, 5, 30))):
            if items:
                yield items.pop()


def _packed(item: Item) -> bytes:
    kind = 2 if item.at_end else int(item.value is None)
    return bytes((item.shard, kind, len(item.key) % 256)) + item.key[:255] + (item.value or b"")


def _unpacked(data: bytes) -> Item:
    shard, kind, size = (*data[:3], 0, 0, 0)[:3]
    key, value = data[3 : 3 + size], data[3 + size :]
    return Item(shard, key, None if kind % 4 == 1 else value, at_end=kind % 4 == 2)
