"""`log skip`: say in the training log that every reader passes a damaged record over (`core.log.skips`).

In: the place of the record, who says it, and why. Out: what is lost by it; unless it is a dry run, a skip in the log.

1. Read the partition as every reader does, and see that it stops at this record and at no earlier one.
2. Read it as with the skip, and see what is lost: refuse if ticks that follow would never count.
3. Append the skip, and see that readers go on.

Joiners and learners may run on. Only where a mark is passed over must no joiner run: one that had written it would go
on from it, and nobody would follow.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from stream_learner.adapters.kafka import (
    READ_UNCOMMITTED,
    Admin,
    Appender,
    Delivery,
    KafkaSettings,
    PartitionReader,
    TopicAndPartition,
)
from stream_learner.adapters.kafka.ends import group_members
from stream_learner.adapters.record_errors import ANOTHER_NAME
from stream_learner.core.errors import RecordError
from stream_learner.core.log.header import Kind, open_record
from stream_learner.core.log.rule_r import AcceptedTick
from stream_learner.core.log.skips import Skip, checksum_of, encode_skip
from stream_learner.errors import JoinersRun, NotAuthorised, NotFound, SkipRefused, Stop
from stream_learner.roles.common.log_reader import accepted_ticks, marks, records
from stream_learner.roles.common.unusable_records import UnusableRecords
from stream_learner.wording import count_of

if TYPE_CHECKING:
    from stream_learner.config import Config

FLUSH_S = 30.0


@dataclass(frozen=True)
class SkipRequest:
    """The request of an operator. write: whether to do it, or only to show what is lost."""

    partition: int
    offset: int
    who: str
    why: str
    write: bool = True


@dataclass(frozen=True)
class _Reading:
    """How far a reader comes. tick: the one that lacks the record, None without one. last: the last accepted tick.
    stopped_at, error: where and why it stops; None at the end of the log."""

    tick: AcceptedTick | None
    last: int
    stopped_at: int | None = None
    error: Stop | None = None


class _WithSkip(UnusableRecords):
    """Handles records as if the log had one skip more."""

    def __init__(self, settings: KafkaSettings, admin: Admin, skip: Skip) -> None:
        super().__init__(settings, admin.offsets)
        self._skip = skip

    def skips_behind(self, place: TopicAndPartition, offset: int) -> Mapping[int, int]:
        more = {self._skip.offset: self._skip.checksum} if self._skip.offset <= offset else {}
        return {**super().skips_behind(place, offset), **more}


def log_skip(config: Config, request: SkipRequest) -> dict[str, Any]:
    """Do what the request says, and return the report as `--json` prints it.

    Raises NotFound if there is no such record, SkipRefused if no reader stops at it or it cannot be passed over,
    JoinersRun, TopicMissing, NewerFormat, NotAuthorised, BrokerUnreachable.
    """
    return _LogSkip(config, request).run()


class _LogSkip:
    def __init__(self, config: Config, request: SkipRequest) -> None:
        self._config = config
        self._request = request
        self._place = (config.examples_topic, request.partition)
        self._where = f"{config.examples_topic} partition {request.partition} offset {request.offset}"
        self._settings = KafkaSettings(config.kafka_options(), group=config.group)
        self._admin = Admin(self._settings)

    def run(self) -> dict[str, Any]:
        request = self._request
        value = self._value()
        skip = Skip(
            request.partition, request.offset, checksum_of(value), int(time.time() * 1000), request.who, request.why
        )
        record = encode_skip(skip)
        # Step 1: every reader stops at this record.
        now = self._read(UnusableRecords(self._settings, self._admin.offsets))
        if now.stopped_at != request.offset:
            self._refuse_place(now)
        # Step 2: what is lost.
        then = self._read(_WithSkip(self._settings, self._admin, skip))
        if then.stopped_at == request.offset:
            raise SkipRefused(f"no skip helps: {then.error}")
        if _kind(value) not in (Kind.EXAMPLES.name.lower(), Kind.CODES.name.lower()):
            self._check_chain(then)
        # Step 3: the skip.
        if request.write:
            self._append(record)
            then = self._read(UnusableRecords(self._settings, self._admin.offsets))
        return self._report(value, now, then)

    def _value(self) -> bytes | None:
        """The value of the record. Raises NotFound."""
        topic, offset = self._config.examples_topic, self._request.offset
        if self._place[1] >= self._admin.require([topic])[topic].partitions:
            raise NotFound(f"{topic} has no partition {self._place[1]}")
        for at, value in self._records(offset):
            if at == offset:
                return value
            break
        raise NotFound(f"{topic} partition {self._place[1]} holds no record at offset {offset}")

    def _records(self, start: int) -> Iterable[tuple[int, bytes | None]]:
        """Offsets and values from an offset, or the earliest one, to the present end."""
        end = self._admin.offsets.high_watermarks([self._place])[self._place]
        begin = max(self._admin.offsets.earliest([self._place])[self._place], start)
        if begin < end:
            with PartitionReader(
                self._settings, *self._place, begin, isolation=READ_UNCOMMITTED, name="log-skip"
            ) as reader:
                yield from records(reader, end)

    def _read(self, unusable: UnusableRecords) -> _Reading:
        tick, last = None, -1
        ticks = accepted_ticks(self._settings, self._admin.offsets, *self._place, unusable=unusable)
        try:
            with closing(ticks):
                for found in ticks:
                    last = found.mark.last_tick
                    if self._request.offset in found.left_out:
                        tick = found
        except Stop as error:
            if not isinstance(error.__cause__, RecordError):
                raise
            return _Reading(tick, last, error.__cause__.offset, error)
        return _Reading(tick, last)

    def _refuse_place(self, found: _Reading) -> None:
        if found.stopped_at is None:
            raise SkipRefused(f"no reader stops at {self._where}: it does not count, or it is passed over already")
        raise SkipRefused(f"readers stop elsewhere: {found.error}")

    def _check_chain(self, then: _Reading) -> None:
        """Raise SkipRefused if marks go on from what is passed over, so that they would never count; JoinersRun."""
        later = [mark for _, mark in marks(self._place, self._records(self._request.offset), skip_damaged=True)]
        furthest = max((mark.last_tick for mark in later), default=-1)
        if then.error is None and furthest > then.last:
            raise SkipRefused(
                f"{self._where} is a mark, or has a damaged header, and the ticks {then.last + 1} to {furthest} go on "
                "from it: without it they would never count",
                action=ANOTHER_NAME,
            )
        try:
            members = group_members(self._settings)
        except NotAuthorised:
            return
        if members:
            raise JoinersRun(f"{self._where} is no record of examples, and {count_of(members, 'joiner')} run")

    def _append(self, record: bytes) -> None:
        appender = Appender(self._settings, name="log-skip")
        try:
            appender.append(*self._place, record)
            deliveries: list[Delivery] = appender.flush(FLUSH_S)
        finally:
            appender.close()
        for delivery in deliveries:
            if delivery.error is not None:
                raise delivery.error

    def _report(self, value: bytes | None, now: _Reading, then: _Reading) -> dict[str, Any]:
        request, tick = self._request, then.tick
        counted = None if tick is None else tick.mark.counts.impressions
        positives = 0 if tick is None else sum(int((record.label > 0).sum()) for _, record in tick.records)
        return {
            "model": self._config.model,
            "log": self._config.examples_topic,
            "partition": request.partition,
            "offset": request.offset,
            "kind": _kind(value),
            "error": str(now.error),
            "tick": None if tick is None else tick.mark.last_tick,
            "examples_lost": 0 if tick is None else tick.lost_examples,
            "positives_lost": 0 if counted is None else counted.positives - positives,
            "read_before": now.last,
            "read_now": then.last,
            "stopped_at": then.stopped_at,
            "who": request.who,
            "why": request.why,
            "written": request.write,
        }


def _kind(value: bytes | None) -> str:
    try:
        kind: Kind = open_record(value or b"").header.kind
    except RecordError:
        return "unknown"
    return kind.name.lower()
