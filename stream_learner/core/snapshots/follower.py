"""Follows one shard of the snapshots, and says when its records make a whole version.

The records of a partition come in order, but compaction may have taken some, and there may be gaps and torn
transactions. A change is let out only once it is known which attempt at its publication counts.

The rule. At a version record R the shard is whole if
  (a) every delta has been read, from the first after the version of our rows to that of R's own publication; or
  (b) every page that R names has been read, as written by the publication that R names for it, and every delta from
      the first after the oldest of these pages to that of R's own publication.

A delta has been read when all its parts of one attempt have been read. Pages and delta of R's own publication must be
of R's attempt, others of the last attempt seen. Compaction may have taken a later attempt unseen; so publishers never
publish under a number that a torn attempt has used, and the last attempt seen is the one that counts.
If anything is missing, torn, overwritten or damaged, the shard is not whole. By (b) it becomes whole again once all its
pages have been written anew.

While the shard is loading, only (b) counts. Changes are let out as soon as a later publication or the version record
shows that their attempt counts. An attempt that is followed by another at the same publication was torn, and is
discarded. Loading ends when the shard is whole at or after the end of the log as it was at the start.

From then on records are kept, the last of each key, until the shard is whole at a version record. Such versions wait in
a queue until every shard has them. A queue that grows long because another shard is behind is merged into its last
version.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np

from stream_learner.core.errors import ForeignRecord, Where
from stream_learner.core.snapshots.pages import Prefix
from stream_learner.core.snapshots.records import (
    MODEL_SHARD,
    DeltaRecord,
    HeadRecord,
    ModelRecord,
    PageRecord,
    Record,
    Stamp,
    VersionRecord,
)
from stream_learner.core.snapshots.rows import WeightRows
from stream_learner.core.snapshots.table import Change

MAX_QUEUED = 32
MAX_COMPLETE_QUEUED = 4
"""Most versions in the queue that hold every row of the shard: each of them takes the memory of a copy."""


class VersionId(NamedTuple):
    """The version (a tick) and the digest of the learner's state after it: all shards must agree on both."""

    version: int
    digest: int


@dataclass(frozen=True, slots=True)
class ShardVersion:
    """A version at which a shard is whole, and the changes that lead to it from the one before in the queue.

    complete: the changes replace every row of the shard.
    """

    id: VersionId
    sequence: int
    model: dict[str, Any] | None
    changes: list[Change]
    complete: bool = False


@dataclass(slots=True)
class _Delta:
    """The parts that have been read of one publication's delta, of its last attempt."""

    stamp: Stamp
    parts: int = 0
    seen: set[int] = field(default_factory=set)

    def add(self, record: DeltaRecord) -> None:
        if (self.stamp, self.parts) != (record.stamp, record.parts):
            self.stamp, self.parts, self.seen = record.stamp, record.parts, set()
        self.seen.add(record.part)

    @property
    def whole(self) -> bool:
        return 0 < self.parts == len(self.seen)


def _same_attempt(stamp: Stamp, version: Stamp) -> bool:
    """Whether a record is of another publication than the version record, or of the same attempt at it."""
    return stamp.sequence != version.sequence or stamp.attempt == version.attempt


class _Coverage:
    """The pages and deltas that have been read."""

    def __init__(self) -> None:
        self.pages: dict[Prefix, Stamp] = {}
        self.deltas: dict[int, _Delta] = {}

    def add(self, record: DeltaRecord | PageRecord) -> None:
        if isinstance(record, PageRecord):
            self.pages[record.prefix] = record.stamp
        else:
            self.deltas.setdefault(record.stamp.sequence, _Delta(record.stamp)).add(record)

    def missing_page(self, record: VersionRecord) -> str:
        """The first page that `record` names and that was not read as it names it, "" if there is none."""
        for prefix, written in record.state.pages:
            stamp = self.pages.get(prefix)
            if stamp is None or stamp.sequence != written or not _same_attempt(stamp, record.stamp):
                return f"page {prefix.text!r} of publication {written} was not read"
        return ""

    def missing_delta(self, record: VersionRecord, after: int) -> str:
        """The first delta after publication `after`, up to that of `record`, that was not read; "" if none."""
        for sequence in range(after + 1, record.stamp.sequence + 1):
            delta = self.deltas.get(sequence)
            if delta is None or not delta.whole or not _same_attempt(delta.stamp, record.stamp):
                return f"the delta of publication {sequence} was not read whole"
        return ""

    def missing(self, record: VersionRecord) -> str:
        """The first record that rule (b) lacks at `record`, "" if none."""
        return self.missing_page(record) or self.missing_delta(record, record.state.oldest)

    def counts(self, kept: DeltaRecord | PageRecord, record: VersionRecord, after: int) -> bool:
        """Whether `record` needs a record that was read: a page that it names, or a delta after `after`."""
        sequence = kept.stamp.sequence
        if isinstance(kept, DeltaRecord):
            return after < sequence <= record.stamp.sequence and kept.stamp == self.deltas[sequence].stamp
        return (kept.prefix, sequence) in record.state.pages


NOTHING = "no version record was read"


class Follower:
    """The state of one shard. `trouble` says why the shard is not whole at its last record, "" if it is."""

    def __init__(self, shard: int) -> None:
        self.shard = shard
        self.trouble = NOTHING
        self.current: ShardVersion | None = None
        self.queue: deque[ShardVersion] = deque()
        self._at_end = False
        self._last: VersionRecord | None = None
        self._sequence = 0
        self._coverage = _Coverage()
        self._kept: dict[bytes, DeltaRecord | PageRecord] = {}
        self._let_out = 0
        self._model: ModelRecord | None = None

    @property
    def loading(self) -> bool:
        """Whether the shard has not been whole yet, at or after the end of the log as it was at the start."""
        return self.current is None

    def versions(self) -> dict[VersionId, ShardVersion]:
        """The versions that this shard can serve, oldest first; its rows are at the first of them."""
        known = [self.current, *self.queue] if self.current is not None else []
        return {version.id: version for version in known}

    def take(self, key: bytes, record: Record, where: Where) -> list[Change]:
        """Take in the next record; returns changes to make at once (only while loading).

        Raises ForeignRecord for a record of another shard or of a checkpoint.
        """
        if record.stamp.shard != self.shard:
            raise ForeignRecord(f"a record of shard {record.stamp.shard} in shard {self.shard}", where)
        if isinstance(record, ModelRecord):
            self._model = record
            return []
        if isinstance(record, VersionRecord):
            return self._take_version(record)
        if isinstance(record, HeadRecord) or not isinstance(record.rows, WeightRows):
            raise ForeignRecord("a record of a checkpoint among the snapshots", where)
        changes = self._settle(record.stamp, is_last=False) if self.loading else []
        self._kept.pop(key, None)
        self._kept[key] = record
        return changes

    def reach_end(self) -> None:
        """Note that the end of the log as it was at the start has been reached."""
        self._at_end = True
        if self.loading and self._last is not None and not self._kept:
            self._end_loading(self._last)

    def fail(self, reason: str) -> None:
        """Note that a record could not be used: the shard is in trouble until a version record at which it is whole."""
        self.trouble = reason

    def advance(self, wanted: VersionId) -> list[Change]:
        """Make one of `versions()` the current one; returns the changes that lead to it."""
        changes: list[Change] = []
        while self.current is not None and self.current.id != wanted:
            self.current = self.queue.popleft()
            changes = self.current.changes if self.current.complete else changes + self.current.changes
        return changes

    def _take_version(self, record: VersionRecord) -> list[Change]:
        if not self.loading:
            self._follow(record)
            return []
        changes = self._settle(record.stamp, is_last=True)
        self._last = record
        self._end_loading(record)
        return changes

    def _settle(self, stamp: Stamp, *, is_last: bool) -> list[Change]:
        """While loading: let the records kept out, or discard them, if the record with this stamp decides that."""
        kept = list(self._kept.values())
        if not kept:
            return []
        held = kept[0].stamp
        same = (held.sequence, held.attempt) == (stamp.sequence, stamp.attempt)
        if same and not is_last:
            return []
        self._kept.clear()
        if not same and held.sequence >= stamp.sequence:
            return []
        if held.sequence < self._let_out:
            # An earlier part of the log has come again, and undoes what later publications changed.
            self._coverage = _Coverage()
        self._let_out = held.sequence
        for record in kept:
            self._coverage.add(record)
        return [_change(record) for record in kept]

    def _end_loading(self, record: VersionRecord) -> None:
        """Begin to follow if the shard is whole at this record and the end is reached."""
        self.trouble = self._coverage.missing(record) or self._missing_model(record)
        if not self.trouble and self._let_out > record.stamp.sequence:
            self.trouble = f"records of publication {self._let_out} came before those of {record.stamp.sequence}"
        if not self.trouble and not self._at_end:
            self.trouble = "the end of the log as it was at the start is not reached"
        if not self.trouble:
            self._coverage = _Coverage()
            self._sequence = record.stamp.sequence
            self.current = self._version(record, [])

    def _follow(self, record: VersionRecord) -> None:
        """Queue the version if the shard is whole at this record, else go on keeping records."""
        coverage = _Coverage()
        for kept in self._kept.values():
            coverage.add(kept)
        after, with_pages = self._sequence, False
        trouble = "" if after < record.stamp.sequence else "the publications were numbered anew"
        trouble = trouble or coverage.missing_delta(record, after)
        if trouble and not coverage.missing(record):
            trouble, after, with_pages = "", record.state.oldest, True
        self.trouble = trouble or self._missing_model(record)
        if self.trouble:
            self._forget_useless(record)
            return
        used = [
            kept
            for kept in sorted(self._kept.values(), key=_order)
            if coverage.counts(kept, record, after) and (with_pages or isinstance(kept, DeltaRecord))
        ]
        self._kept.clear()
        self._sequence = record.stamp.sequence
        self.queue.append(self._version(record, [_change(kept) for kept in used], complete=with_pages))
        complete = sum(version.complete for version in self.queue)
        if len(self.queue) > MAX_QUEUED or complete > MAX_COMPLETE_QUEUED:
            self.queue = deque([_merged(list(self.queue))])

    def _forget_useless(self, record: VersionRecord) -> None:
        """Drop the records kept that no version can need any more: replaced pages, and those of a torn attempt."""
        stamp, named = record.stamp, dict(record.state.pages)
        self._kept = {
            key: kept
            for key, kept in self._kept.items()
            if (kept.stamp.sequence, kept.stamp.attempt) == (stamp.sequence, stamp.attempt)
            or (
                kept.stamp.sequence < stamp.sequence
                and (isinstance(kept, DeltaRecord) or named.get(kept.prefix) == kept.stamp.sequence)
            )
        }

    def _missing_model(self, record: VersionRecord) -> str:
        if self.shard != MODEL_SHARD or (self._model is not None and self._model.stamp == record.stamp):
            return ""
        return f"the model record of publication {record.stamp.sequence} was not read"

    def _version(self, record: VersionRecord, changes: list[Change], *, complete: bool = False) -> ShardVersion:
        content = self._model.content if self._model is not None else None
        version = VersionId(record.stamp.version, record.digest)
        return ShardVersion(version, record.stamp.sequence, content, changes, complete)


def _order(record: DeltaRecord | PageRecord) -> tuple[int, bool]:
    """Sort key: by publication, and in each the delta before the pages."""
    return record.stamp.sequence, isinstance(record, PageRecord)


def _change(record: DeltaRecord | PageRecord) -> Change:
    rows, span = record.rows, None
    if isinstance(record, PageRecord):
        span = (record.prefix.bits, record.prefix.last)
    if not isinstance(rows, WeightRows):
        raise TypeError("snapshots hold weights")
    return Change(span, rows.keys, rows.weights)


def _merged(versions: Sequence[ShardVersion]) -> ShardVersion:
    """The last version, with the changes that lead to it from the one before the first."""
    changes: list[Change] = []
    for version in versions:
        changes = version.changes if version.complete else changes + version.changes
    spans = [i for i, change in enumerate(changes) if change.span is not None]
    deltas = changes[spans[-1] + 1 :] if spans else changes
    if len(deltas) > 1:
        changes = [*changes[: len(changes) - len(deltas)], _last_of_each_key(deltas)]
    complete = any(version.complete for version in versions)
    return replace(versions[-1], changes=changes, complete=complete)


def _last_of_each_key(deltas: Sequence[Change]) -> Change:
    """Deltas as one: of each key the last weight."""
    newest_first = deltas[::-1]
    keys, first = np.unique(np.concatenate([delta.keys for delta in newest_first]), return_index=True)
    return Change(None, keys, np.concatenate([delta.weights for delta in newest_first])[first])
