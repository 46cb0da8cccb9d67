"""Copies a learner's checkpoints to `<model>.checkpoints`, one after the other.

A copy counts only once all of its pieces are in the topic, and it never overwrites a piece of another directory's copy.
It sends only what the copies before did not, so that in the long run as many bytes are sent as checkpoints write, at
most. Each transaction has a bounded size. `roles/learner/copies/schedule.py` decides when a copy is made.

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
from stream_learner.roles.learner.copies.restore import LastCopy, check_copy_identity, copy_has_learned, read_last_copy
from stream_learner.wording import count_of

TRANSACTION_BYTES = 4 << 20


class Publishes(Protocol):
    """The part of a `TransactionalPublisher` that is used here."""

    @property
    def outdated(self) -> bool: ...
    def init(self) -> None: ...
    def publish(self, records: list[Record]) -> object: ...
    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class WrittenCopy:
    """A complete copy: its tick, how many pieces it has, how many of them were sent, and the bytes that were sent."""

    tick: int
    pieces: int
    sent: int
    size_bytes: int


class CopyWriter:
    """Copies the last checkpoint of a store whenever `copy` is called. For one thread at a time.

    Raises RetryLater and BrokerUnreachable where `copy` may be called again; Fenced, after which it may not;
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
        """store: stays open while this is used. before_sending: called with the size of each transaction before it is
        sent; it may wait, and returns False to give the copy up. topic_made_anew: called when the topic was deleted and
        made again."""
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
        """Steps 3 to 6; None if `before_sending` gave the copy up."""
        self._renew()
        # Step 3: hold the last checkpoint.
        with HeldCheckpoint(self._store) as held:
            copy = held.as_copy(self._lineage.name)
            there = self._sent.copy()
            if self._last.head is not None and self._last.head.lineage == copy.lineage:
                there.update(piece_ids_of(self._last.head))
            missing = [piece for piece in held.pieces if piece not in there]
            # Step 4: send `copying`, and delete what is of no use.
            self._publisher.publish(
                [*self._left_over(copy), Record(self.topic, HEAD_SHARD, COPYING_KEY, encode_copy(copy))]
            )
            self._last = LastCopy(self._last.head, copy)
            self._sent.intersection_update(held.pieces)
            # Step 5: send what is missing.
            sent_bytes = 0
            for records, pieces in self._transactions(held, copy, missing):
                size = sum(len(record.value or b"") for record in records)
                if not self._before_sending(size):
                    return None
                self._publisher.publish(records)
                self._sent.update(pieces)
                sent_bytes += size
            # Step 6: note the copy, then send its head; but not if its pieces went into a topic that is gone.
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
        """Drop the producer. The brokers end an open transaction when it times out."""
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
        if self._last.head is not None and copy_has_learned(self._last.head):
            check_copy_identity(self.topic, self._last.head, parts)
        anew = bool(self._topic_id) and found.id != self._topic_id
        if anew:
            self._topic_made_anew()
        self._topic_id = found.id
        self._sent.clear()
        lineage = read_lineage(self._store)
        # A head of ours in a topic that was made anew is of a copy whose pieces went into the topic before.
        mine = not anew and lineage is not None and lineage.made(self._last.head)
        self._lineage = lineage if lineage is not None and mine else Lineage.new()
        self.tick = self._last.head.tick if self._last.head is not None and mine else -1

    def _renew(self) -> None:
        """Take up credentials that have changed on disk, and a topic that was made anew."""
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
        """The pieces to send, about 4 MiB at a time. Reads the next ones when they are asked for."""
        records: list[Record] = []
        pieces: list[PieceId] = []
        size = 0
        for piece in missing:
            value = held.read(piece)
            records.append(Record(self.topic, piece.shard, piece_key(copy.lineage, piece.key), value))
            pieces.append(piece)
            size += len(value)
            if size >= TRANSACTION_BYTES:
                yield records, pieces
                records, pieces, size = [], [], 0
        if records:
            yield records, pieces

    def _left_over(self, copy: CopyHead) -> list[Record]:
        """Deletions of what an unfinished copy may have sent, and neither the last head nor this copy names."""
        torn = self._last.copying
        return [] if torn is None else self._deletions(torn, copy, self._last.head)

    def _superseded(self, copy: CopyHead) -> list[Record]:
        """Deletions of the pieces that the last head names and this copy does not."""
        last = self._last.head
        return [] if last is None else self._deletions(last, copy)

    def _deletions(self, of: CopyHead, *keep: CopyHead | None) -> list[Record]:
        kept = {(head.lineage, piece) for head in keep if head is not None for piece in piece_ids_of(head)}
        return [
            Record(self.topic, piece.shard, piece_key(of.lineage, piece.key), None)
            for piece in piece_ids_of(of)
            if (of.lineage, piece) not in kept
        ]

    def _note(self, copy: CopyHead) -> None:
        """Note in the state directory the attempts of this copy and of the last head, if that is ours."""
        last = self._last.head
        before = (last.stamp.attempt,) if last is not None and last.lineage == copy.lineage else ()
        self._lineage = Lineage(copy.lineage, (*before, copy.stamp.attempt))
        note_lineage(self._store, self._lineage)
