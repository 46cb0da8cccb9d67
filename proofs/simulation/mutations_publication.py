"""Mutations of the steps of a publication and of a replica's rules: each with one less."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from proofs.simulation import kafka, publishers
from stream_learner.adapters.kafka import Record
from stream_learner.core.model.table.table import WeightTable
from stream_learner.core.snapshots import follower
from stream_learner.core.snapshots.follower import Follower
from stream_learner.core.snapshots.pages import PagePlanner, PageState, shard_prefix
from stream_learner.core.snapshots.records import VERSION_KEY
from stream_learner.core.snapshots.replica import Replica
from stream_learner.errors import RetryLater
from stream_learner.roles.learner import publication
from stream_learner.roles.learner.publication import Publication


def _nothing(*args: object, **kwargs: object) -> None:
    """Does nothing."""


def _no_trouble(*args: object, **kwargs: object) -> str:
    return ""


def _no_fence(self: kafka.TransactionalPublisher) -> None:
    self._epoch = self._coordinator.epoch


def _same_number(self: PageState, sequence: int) -> PageState:
    return self


def _begin_anew() -> Any:
    right = Publication.begin

    def begin(self: Publication) -> Any:
        last = right(self)
        self._planners = [PagePlanner(shard_prefix(n, self._shards), self._policy) for n in range(self._shards)]
        return last

    return begin


def _do_not_wait(self: Publication, tick: int) -> bool:
    return self._learner.examples > 0


def _without_transaction(self: kafka.TransactionalPublisher, records: Iterable[Record]) -> None:
    self._check()
    for record in records:
        self._client.edge("publish")
        self._client.logs[record.topic, record.partition].append(record.value, at=0, key=record.key)


def _version_first() -> Any:
    right = publication.publication

    def records(*args: Any) -> Iterator[tuple[bytes, bytes | None]]:
        found = list(right(*args))
        return iter([found[-1], *found[:-1]])

    return records


def _failure_counts() -> Any:
    right = kafka.TransactionalPublisher.publish

    def publish(self: kafka.TransactionalPublisher, records: Iterable[Record]) -> None:
        try:
            right(self, records)
        except RetryLater:
            self._epoch = self._coordinator.epoch

    return publish


def _without_delta() -> Any:
    right = publication.publication

    def records(*args: Any) -> Iterator[tuple[bytes, bytes | None]]:
        first = True
        for key, value in right(*args):
            if key != VERSION_KEY and key.startswith(b"delta/") and value is not None and first:
                first = False
                continue
            yield key, value

    return records


def _let_everything_out(self: Follower, stamp: Any, *, is_last: bool) -> list[Any]:
    kept = list(self._kept.values())
    self._kept.clear()
    for record in kept:
        self._coverage.add(record)
    return [follower._change(record) for record in kept]


def _end_is_here() -> Any:
    right = Replica.__init__

    def begin(self: Replica, ends: Any, **kwargs: Any) -> None:
        right(self, [0] * len(ends), **kwargs)

    return begin


def _last_of_first_shard(self: Replica) -> Any:
    known = list(self._followers[0].versions())
    return known[-1] if known and not any(shard.loading for shard in self._followers) else None


def _apply_at_once() -> Any:
    def follow(self: Follower, record: Any) -> None:
        """Every version is taken for whole."""
        used = list(self._kept.values())
        self._kept.clear()
        self.trouble = ""
        self._sequence = record.stamp.sequence
        self.queue.append(self._version(record, [follower._change(kept) for kept in used]))

    return follow


def _no_pages() -> Any:
    right = PagePlanner._pages

    def pages(self: PagePlanner[Any], *args: Any) -> Any:
        return ({}, 0.0) if self.state.sequence else right(self, *args)

    return pages


def _often_torn() -> list[tuple[Any, str, Any]]:
    """No part of the mutation: makes more of the trouble that it needs."""
    return [(publishers, "TORN_SHARES", (0.6,))]


MUTATIONS = {
    "publication 1: who published before is not fenced": lambda: [(kafka.TransactionalPublisher, "init", _no_fence)],
    "publication 2: the last version records are not read": lambda: [(Publication, "begin", _begin_anew())],
    "publication 3: published before the fold has passed the topic": lambda: [
        (Publication, "may_publish", _do_not_wait)
    ],
    "publication 4: no transaction": lambda: [(kafka.TransactionalPublisher, "publish", _without_transaction)],
    "publication 4: the version record is not the last": lambda: [(publication, "publication", _version_first())],
    "publication 4: a failed publication counts as published": lambda: [
        (kafka.TransactionalPublisher, "publish", _failure_counts())
    ],
    "publication 2: a torn publication's number is used again": lambda: [(PageState, "after_torn", _same_number)],
    "publication 4: it is used again, and every try has the same attempt": lambda: [
        *_often_torn(),
        (PageState, "after_torn", _same_number),
        (publishers.Process, "new_attempt_id", lambda self: 7),
    ],
    "publication 4: a part of the delta is left out": lambda: [(publication, "publication", _without_delta())],
    "publication 4: rows unsent at a crash are not listed again": lambda: [(WeightTable, "restart_changes", _nothing)],
    "publication 4: pages are not written in time": lambda: [
        (PagePlanner, "_pages", _no_pages()),
    ],
    "replica: pages need not be there": lambda: [(follower._Coverage, "missing_page", _no_trouble)],
    "replica: deltas need not be there": lambda: [(follower._Coverage, "missing_delta", _no_trouble)],
    "replica: a torn attempt counts, and its number is used again": lambda: [
        *_often_torn(),
        (PageState, "after_torn", _same_number),
        (follower._Coverage, "counts", lambda *args: True),
        (follower, "_same_attempt", lambda *args: True),
        (Follower, "_settle", _let_everything_out),
    ],
    "replica: every version record makes a version": lambda: [(Follower, "_follow", _apply_at_once())],
    "replica: ready before the end of the log": lambda: [(Replica, "__init__", _end_is_here())],
    "replica: one shard is enough for a version": lambda: [(Replica, "_last_common", _last_of_first_shard)],
}
