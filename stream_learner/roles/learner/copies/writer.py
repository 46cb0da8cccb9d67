"""One copy of a learner's checkpoint to `<model>.checkpoints` after the other: the protocol.

In: checkpoints that are committed to the state directory. Out: the same pieces and records in the topic.
This file must never let a copy count before all of its pieces are there, or overwrite what another directory's copy
consists of.

A copy sends what the last one did not: so in the long run as many bytes as the checkpoints that are copied, at most.
Each transaction has a bounded size. Somebody else decides when (`roles/learner/copies/schedule.py`).

1. `init_transactions`: whoever copied before is fenced, its open transaction ends.
2. Read the last head. If this directory made it, pieces that it names are there; else begin a new lineage, with
   keys that nobody has used, and send all.
3. When it is time, hold the last checkpoint that was committed: RocksDB's snapshots keep its pieces readable.
4. Send `copying`, the head that is to be; and delete what a copy that was not finished has left and this one does
   not need.
5. Send the pieces that are not there, about 4 MiB in a transaction.
6. Note in the state directory which copy this is going to be; then, in one transaction, delete what the last head
   named and this one does not, and send the head.

| a crash after         | leaves                                  | the next copy                                      |
|-----------------------|-----------------------------------------|----------------------------------------------------|
| step 1, 2 or 3        | the last copy                           | begins at step 1                                   |
| step 4                | the last copy, and a `copying`          | takes from it what may be left over, in its step 4 |
| step 5, partly        | the last copy, and pieces no head names | sends them again, or deletes them                  |
| step 6, the note      | the last copy                           | knows its head by the note before                  |
| step 6                | this copy                               | knows its head by the note                         |
| step 6, disk put back | this copy, which the disk does not know | begins a new lineage, and sends all                |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from stream_learner.adapters.kafka import Admin, KafkaSettings, Record
from stream_learner.adapters.rocksdb.copy import (
    HeldCheckpoint,
    Lineage,
    PieceId,
    note_lineage,
    piece_ids_of,
    read_lineage,
)
from stream_learner.adapters.rocksdb.database import HasParts
from stream_learner.core.snapshots.checkpoint_copy import (
    COPYING_KEY,
    HEAD_KEY,
    HEAD_SHARD,
    CopyHead,
    encode_copy,
    piece_key,
)
from stream_learner.errors import PartitionCountsDiffer, RetryLater
from stream_learner.roles.learner.copies.restore import LastCopy, check_copy_identity, read_last_copy
from stream_learner.wording import count_of

TRANSACTION_BYTES = 4 << 20


class Publishes(Protocol):
    """What is used of a `TransactionalPublisher`."""

    @property
    def outdated(self) -> bool: ...
    def init(self) -> None: ...
    def publish(self, records: list[Record]) -> object: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WrittenCopy:
    """A copy that is complete: of which tick, the pieces it consists of, how many of them were sent, their bytes."""

    tick: int
    pieces: int
    sent: int
    size_bytes: int


class CopyWriter:
    """Copies the last checkpoint of a store whenever it is told to. For one thread at a time.

    Raises Fenced, after which it is of no use; RetryLater, BrokerUnreachable where `copy` may simply be called again;
    StateDamaged, DiskFull, and what the brokers refuse.
    """

    def __init__(
        self,
        settings: KafkaSettings,
        admin: Admin,
        store: HasParts,
        *,
        topic: str,
        new_publisher: Callable[[], Publishes],
        before_sending: Callable[[int], bool] = lambda size_bytes: True,
        topic_made_anew: Callable[[], None] = lambda: None,
    ) -> None:
        """store: open as long as this is used. before_sending: called with the size of each transaction, to wait as
        long as it may take; False to leave off. topic_made_anew: called when the topic is found to be another one of
        its name."""
        self.topic = topic
        self._settings, self._admin, self._store = settings, admin, store
        self._new_publisher = new_publisher
        self._publisher = new_publisher()
        self._before_sending = before_sending
        self._topic_made_anew = topic_made_anew
        self._topic_id = b""
        self._last = LastCopy(None, None)
        self._sent: set[PieceId] = set()
        """Pieces of the lineage that are in the topic, and that its head does not name."""
        self._lineage = Lineage.new()
        self.tick = -1
        """The tick of the last complete copy of this directory."""

    def begin(self) -> None:
        """Steps 1 and 2.

        Raises TopicMissing, PartitionCountsDiffer, StateOfAnotherModel, NewerFormat, DamagedLog.
        """
        # Step 1: fence whoever copied before.
        self._publisher.init()
        # Step 2: go on from what the topic holds.
        self._look()

    def copy(self) -> WrittenCopy | None:
        """Steps 3 to 6; None where it was told to leave off."""
        self._renew()
        # Step 3: hold the last checkpoint.
        with HeldCheckpoint(self._store) as held:
            copy = held.as_copy(self._lineage.name)
            there = self._sent.copy()
            if self._last.head is not None and self._last.head.lineage == copy.lineage:
                there.update(piece_ids_of(self._last.head))
            missing = [place for place in held.pieces if place not in there]
            # Step 4: say what is to come, and delete what is of no use.
            self._publisher.publish(
                [*self._left_over(copy), Record(self.topic, HEAD_SHARD, COPYING_KEY, encode_copy(copy))]
            )
            self._last = LastCopy(self._last.head, copy)
            self._sent.intersection_update(held.pieces)
            # Step 5: send what is missing.
            sent_bytes = 0
            for records, places in self._transactions(held, copy, missing):
                size = sum(len(record.value or b"") for record in records)
                if not self._before_sending(size):
                    return None
                self._publisher.publish(records)
                self._sent.update(places)
                sent_bytes += size
            # Step 6: note it, then let it count; not where pieces went into a topic that is gone.
            if self._is_another_topic():
                raise RetryLater(f"{self.topic} was deleted and made again while a copy was sent to it")
            self._note(copy)
            self._publisher.publish(
                [*self._superseded(copy), Record(self.topic, HEAD_SHARD, HEAD_KEY, encode_copy(copy))]
            )
            self._last, self.tick = LastCopy(copy, None), copy.tick
            self._sent.clear()
            return WrittenCopy(copy.tick, len(held.pieces), len(missing), sent_bytes)

    def close(self) -> None:
        """Drop the producer; an open transaction is left to the brokers' time-out."""
        self._publisher.close()

    def _look(self) -> None:
        """Step 2."""
        found = self._admin.require([self.topic])[self.topic]
        parts = self._store.parts
        if found.partitions != len(parts.families):
            raise PartitionCountsDiffer(
                f"{self.topic} has {count_of(found.partitions, 'partition')}, snapshots.shards is "
                f"{len(parts.families)}",
                action="Delete the topic and make it anew with `stream-learner topics ensure`: it is filled again.",
            )
        self._last = read_last_copy(self._settings, self._admin.offsets, self.topic)
        if self._last.head is not None:
            check_copy_identity(self.topic, self._last.head, parts)
        anew = bool(self._topic_id) and found.id != self._topic_id
        if anew:
            self._topic_made_anew()
        self._topic_id = found.id
        self._sent.clear()
        lineage = read_lineage(self._store)
        # A head of ours in a topic made anew was sent by a copy whose pieces went to the one before.
        mine = not anew and lineage is not None and lineage.made(self._last.head)
        self._lineage = lineage if lineage is not None and mine else Lineage.new()
        self.tick = self._last.head.tick if self._last.head is not None and mine else -1

    def _renew(self) -> None:
        """Go on with what is on disk and in the cluster now: credentials, and a topic that was made anew."""
        if self._publisher.outdated:
            self._publisher.close()
            self._publisher = self._new_publisher()
            self._publisher.init()
            self._look()
        elif self._is_another_topic():
            self._look()

    def _is_another_topic(self) -> bool:
        """Whether the topic was deleted and made again. Raises TopicMissing where it is gone."""
        return self._admin.require([self.topic])[self.topic].id != self._topic_id

    def _transactions(
        self, held: HeldCheckpoint, copy: CopyHead, missing: list[PieceId]
    ) -> Iterator[tuple[list[Record], list[PieceId]]]:
        """Pieces to send, about 4 MiB at a time; the next are read when they are asked for."""
        records: list[Record] = []
        places: list[PieceId] = []
        size = 0
        for place in missing:
            value = held.read(place)
            records.append(Record(self.topic, place[0], piece_key(copy.lineage, place[1]), value))
            places.append(place)
            size += len(value)
            if size >= TRANSACTION_BYTES:
                yield records, places
                records, places, size = [], [], 0
        if records:
            yield records, places

    def _left_over(self, copy: CopyHead) -> list[Record]:
        """Deletions of what a copy that was not finished may have sent, and neither the head nor this copy names."""
        torn = self._last.copying
        return [] if torn is None else self._deletions(torn, copy, self._last.head)

    def _superseded(self, copy: CopyHead) -> list[Record]:
        """Deletions of what the last head named, and this one does not."""
        last = self._last.head
        return [] if last is None else self._deletions(last, copy)

    def _deletions(self, of: CopyHead, *keep: CopyHead | None) -> list[Record]:
        kept = {(head.lineage, place) for head in keep if head is not None for place in piece_ids_of(head)}
        return [
            Record(self.topic, place[0], piece_key(of.lineage, place[1]), None)
            for place in piece_ids_of(of)
            if (of.lineage, place) not in kept
        ]

    def _note(self, copy: CopyHead) -> None:
        """In the state directory: the attempts of the last head, if it is ours, and of this copy."""
        last = self._last.head
        before = (last.stamp.attempt,) if last is not None and last.lineage == copy.lineage else ()
        self._lineage = Lineage(copy.lineage, (*before, copy.stamp.attempt))
        note_lineage(self._store, self._lineage)
