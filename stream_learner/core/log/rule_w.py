"""Rule W, without Kafka: what one joiner writes to a partition of the training log from one assignment on.

The package page (`core/log/__init__.py`) explains the rule. These are its steps; the role, which reads and writes
topics and draws the random numbers, is `roles/joiner/partition.py`:

1. Find the last resume point, read on to the high watermark by rule R (the role, with `RuleR`).
2. Make the ticks again up to the last accepted mark (the role, with the join).
3. Begin an attempt: `Attempt(partition, id, rule.last, high_watermark)`.
4. Append tick after tick: `stamp`; watch the offsets that come back: `acknowledged`.
5. At an offset that is not the expected one, the role reads past it by rule R, and `decide` says whether the attempt
   still stands (go on) or not (back to 1).
6. Anything unusual: drop the attempt, back to 1. Neither a dropped attempt nor its id is ever used again.
"""

from __future__ import annotations

from collections import deque
from enum import Enum

from stream_learner.core.errors import BrokenLog, Where
from stream_learner.core.log.dictionary import Scratch
from stream_learner.core.log.examples import MAX_BYTES, ExampleBatch, encode_examples
from stream_learner.core.log.field_bound import FieldBound
from stream_learner.core.log.marks import (
    AS_LAST_TICK,
    GENESIS,
    Mark,
    MarkId,
    ResumePoint,
    TickCounts,
    detach_codes,
    encode_mark,
)
from stream_learner.core.log.rule_r import RuleR

MAX_OUTSTANDING = 64
"""Records appended and not acknowledged, at most, before the next tick is made. So an attempt that loses leaves no more
than this behind."""


class Ack(Enum):
    """The expected offset was acknowledged, or a foreign one."""

    EXPECTED = "expected"
    FOREIGN = "foreign"


class Verdict(Enum):
    """The decision after a foreign offset, once the log has been read past it."""

    GO_ON = "go on"
    BEGIN_AGAIN = "begin again"


class Attempt:
    """One attempt at one partition.

    `attempt`: its id, u64, random, never 0. `predecessor`: the last accepted mark when it begins. `expected_offset`:
    the high watermark up to which rule R had read. `max_bytes`: the largest record. `features`: the fingerprint of the
    `FeatureSpec` with which its examples are made, 0 where it is not known. `bound`: on the rows of each field, for
    those who learn from its examples. `scratch`: memory for the encoder, shared by the attempts of one thread.

    Records are acknowledged in the order in which they were stamped. Between a foreign offset and `decide` the attempt
    is `in_doubt`: what is acknowledged then is not durable until the verdict is to go on.

    durable, durable_offset: the last mark that is durable, and its offset; `predecessor` and None before the first.
    """

    __slots__ = (
        "_acked",
        "_bound",
        "_expected",
        "_features",
        "_first_predecessor",
        "_last_acked_offset",
        "_max_bytes",
        "_outstanding",
        "_scratch",
        "_stamped",
        "durable",
        "durable_offset",
        "id",
        "in_doubt",
        "partition",
    )

    def __init__(
        self,
        partition: int,
        attempt: int,
        predecessor: MarkId,
        expected_offset: int,
        *,
        max_bytes: int = MAX_BYTES,
        features: int = 0,
        bound: FieldBound | None = None,
        scratch: Scratch | None = None,
    ) -> None:
        if attempt == GENESIS.attempt:
            raise ValueError("0 is no attempt's id")
        self.partition = partition
        self.id = attempt
        self.in_doubt = False
        self.durable = predecessor
        self.durable_offset: int | None = None
        self._first_predecessor = predecessor
        self._stamped = predecessor
        self._expected = expected_offset
        self._last_acked_offset: int | None = None
        self._acked: tuple[MarkId, int] | None = None
        self._outstanding: deque[MarkId | None] = deque()
        self._max_bytes = max_bytes
        self._features = features
        self._bound = bound
        self._scratch = Scratch() if scratch is None else scratch

    @property
    def next_tick(self) -> int:
        """The first tick the next mark must cover."""
        return self._stamped.last_tick + 1

    @property
    def expected_offset(self) -> int:
        """The offset of the next acknowledged record, if nobody else has written."""
        return self._expected

    @property
    def outstanding(self) -> int:
        """Records stamped and not yet acknowledged."""
        return len(self._outstanding)

    def stamp(
        self,
        batch: ExampleBatch,
        *,
        first_tick: int,
        last_tick: int,
        next_impression: int,
        first_click: int,
        click_cursor: int,
        counts: TickCounts,
        stream_tick: int = AS_LAST_TICK,
        labels_from_ms: int = 0,
        resume: ResumePoint | None = None,
    ) -> list[bytes]:
        """The records of the next ticks, to be appended in order: the examples, all of `last_tick`, and the mark.

        Raises ValueError where `first_tick` is not `next_tick`, or something does not fit a record. Nothing has been
        stamped then.
        """
        if not self.next_tick == first_tick <= last_tick:
            raise ValueError(f"ticks {first_tick}..{last_tick} where {self.next_tick} comes next")
        if counts.impressions.examples != len(batch):
            raise ValueError(f"{len(batch)} examples, counted as {counts.impressions.examples}")
        records = encode_examples(
            self.partition, last_tick, self.id, batch, self._max_bytes, scratch=self._scratch, bound=self._bound
        )
        mark = Mark(
            partition=self.partition,
            attempt=self.id,
            first_tick=first_tick,
            last_tick=last_tick,
            next_impression=next_impression,
            first_click=first_click,
            click_cursor=click_cursor,
            records=len(records),
            pred_attempt=self._stamped.attempt,
            pred_tick=self._stamped.last_tick,
            counts=counts,
            resume=resume,
            features=self._features,
            stream_tick=stream_tick,
            labels_from_ms=labels_from_ms,
        )
        mark, codes = detach_codes(mark, self._max_bytes)
        records += codes
        records.append(encode_mark(mark))
        self._outstanding.extend([None] * (len(records) - 1))
        self._outstanding.append(mark.id)
        self._stamped = mark.id
        return records

    def acknowledged(self, offset: int) -> Ack:
        """Note that the oldest outstanding record lies at `offset`.

        After FOREIGN, read on by rule R past this offset and call `decide`. Raises ValueError without an outstanding
        record, BrokenLog where the offset is below the log's end as it was known: the log was cut short or replaced.
        """
        if not self._outstanding:
            raise ValueError(f"offset {offset} for nothing that was stamped")
        if offset < self._expected:
            where = Where(offset, self.partition)
            raise BrokenLog(f"acknowledged here, though the log had reached {self._expected}", where)
        mark = self._outstanding.popleft()
        foreign = offset != self._expected
        self._expected = offset + 1
        self._last_acked_offset = offset
        self.in_doubt |= foreign
        if mark is not None:
            self._acked = (mark, offset)
            self._settle()
        return Ack.FOREIGN if foreign else Ack.EXPECTED

    def decide(self, rule: RuleR) -> Verdict:
        """Decide whether the attempt still stands. `rule` has read past every acknowledged offset.

        It stands if the last accepted mark is its own, and not older than its last acknowledged one. As long as no mark
        of its own has been acknowledged, it also stands if the last accepted mark is the one it began from. Raises
        ValueError where `rule` has not read far enough.
        """
        if self._last_acked_offset is not None and (rule.position or 0) <= self._last_acked_offset:
            raise ValueError(f"read up to {rule.position}, acknowledged up to {self._last_acked_offset}")
        if rule.last.attempt == self.id:
            stands = self._acked is None or rule.last.last_tick >= self._acked[0].last_tick
        else:
            stands = self._acked is None and rule.last == self._first_predecessor
        if not stands:
            return Verdict.BEGIN_AGAIN
        self.in_doubt = False
        self._settle()
        return Verdict.GO_ON

    def _settle(self) -> None:
        if self._acked is not None and not self.in_doubt:
            self.durable, self.durable_offset = self._acked
