"""Errors of records that somebody else wrote, each with the position of the record.

Errors of configuration, brokers and disks are in `stream_learner.errors`.
"""

from __future__ import annotations

from typing import NamedTuple


class Where(NamedTuple):
    """Offset, partition and topic of a record, each None if it is not known."""

    offset: int | None = None
    partition: int | None = None
    topic: str | None = None

    def __str__(self) -> str:
        parts = [f"topic {self.topic}"] if self.topic is not None else []
        parts += [f"partition {self.partition}"] if self.partition is not None else []
        parts += [f"offset {self.offset}"] if self.offset is not None else []
        return ", ".join(parts) or "a record"


NOWHERE = Where()


class RecordError(ValueError):
    """A record that must not be used. The reader stops and names it, because skipping it would be silent loss.

    what: what is wrong with the record. where: its position; `at` fills in more of it.
    """

    def __init__(self, what: str, where: Where = NOWHERE) -> None:
        super().__init__(f"{where}: {what}")
        self.what = what
        self.where = where

    @property
    def offset(self) -> int | None:
        """Kafka offset of the record, None if the bytes did not come from a topic."""
        return self.where.offset

    @property
    def partition(self) -> int | None:
        """Partition of the record, None if it is not known."""
        return self.where.partition

    @property
    def topic(self) -> str | None:
        """Topic of the record, None if it is not known."""
        return self.where.topic

    def at(self, *, topic: str | None = None, partition: int | None = None) -> RecordError:
        """A copy of this error with topic and partition filled in, unless it names them already."""
        where = Where(
            self.where.offset,
            partition if self.where.partition is None else self.where.partition,
            topic if self.where.topic is None else self.where.topic,
        )
        return type(self)(self.what, where)


class ForeignRecord(RecordError):
    """Not a record of ours: wrong magic, empty, or of another partition.

    Operator action: find who writes here.
    """


class NewerVersion(RecordError):
    """A record of ours in a layout this program does not know. Operator action: upgrade this reader first."""


class DamagedRecord(RecordError):
    """A record of ours whose checksum, lengths or contents do not agree.

    Operator action: restore the topic, or begin after the damage.
    """


class DamagedHeader(DamagedRecord):
    """Bytes that begin like a record of ours, with a header that does not hold: nobody can tell whose they are.

    Operator action: find who writes here.
    """


class BrokenLog(RecordError):
    """The log goes on from a mark this reader never saw: records before this one are missing.

    Operator action: the reader fell behind the log's retention, or holds positions of another log;
    start it anew from a place the log still has.
    """
