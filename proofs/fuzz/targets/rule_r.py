"""Sequences of records of the training log through rule R, against a reader written from its docstring.

The records are of several attempts, some lost, repeated, moved or damaged. The two readers share only the bytes.
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from proofs.fuzz import slow_log
from proofs.fuzz.guard import Side
from proofs.fuzz.mutate import shuffled
from proofs.fuzz.slow_log import CODES, EXAMPLES, MARK, SKIP, Bad, Header, SlowMark, SlowSkip
from proofs.fuzz.target import Target, Wrong, pack, unpack
from proofs.fuzz.targets.training_log import damaged_record, plain_mark
from stream_learner.core.errors import RecordError
from stream_learner.core.log.examples import ExampleBatch, encode_examples
from stream_learner.core.log.marks import (
    ClickCounts,
    ImpressionCounts,
    Mark,
    ResumePoint,
    TickCounts,
    detach_codes,
    encode_mark,
)
from stream_learner.core.log.rule_r import RuleR
from stream_learner.core.log.skips import Skip, encode_skip

PARTITION = 3
_TICKS = 5
_ATTEMPTS = 11, 12, 13


class RuleRSequences(Target):
    """One partition, up to three writers."""

    name = "rule-r"
    batch_inputs = 50

    def __init__(self, corpus: Sequence[bytes]) -> None:
        super().__init__(corpus)
        self._chains = chains()
        self._every = [value for chain in self._chains for tick in chain for value in tick]

    def make(self, rng: Random) -> bytes:
        """Make one chain with pieces of others in between, and damage some records."""
        chain = rng.choice(self._chains)
        records = [value for tick in chain for value in tick]
        for _ in range(rng.choice((0, 1, 2, 3))):
            other = rng.choice(self._chains)
            begin = rng.randrange(len(other))
            piece = [value for tick in other[begin : begin + rng.choice((1, 2))] for value in tick]
            at = rng.randrange(len(records) + 1)
            records[at:at] = piece
        if rng.random() < 0.7:
            records = shuffled(rng, records)
        for _ in range(rng.choice((0, 0, 1, 2)) if records else 0):
            at = rng.randrange(len(records))
            records[at] = damaged_record(rng, records[at], self._every)
            if rng.random() < 0.6:
                records.insert(min(at + rng.choice((1, 1, 2)), len(records)), _skip(rng, at, records[at]))
        return pack(records)

    def check(self, inputs: Sequence[bytes], side: Side) -> int:
        return sum(self._check(unpack(data)) for data in inputs)

    def _check(self, records: list[bytes]) -> bool:
        fast, slow, accepted = RuleR(partition=PARTITION), SlowRuleR(PARTITION), 0
        for offset, value in enumerate(records):
            got, wanted = _outcome(fast, offset, value), slow.take(offset, value)
            if got != wanted:
                raise Wrong(f"record {offset}: {str(got)[:400]}, not {str(wanted)[:400]}")
            accepted += isinstance(wanted, tuple)
        counts = (fast.accepted_marks, fast.ignored_marks, fast.ignored_records, fast.buffered_records)
        counts += (fast.foreign_records, fast.skipped_records)
        if counts != slow.counts:
            raise Wrong(f"accepted, ignored marks and records, buffered, foreign, skipped: {counts}, not {slow.counts}")
        return accepted > 0


def _outcome(rule: RuleR, offset: int, value: bytes) -> Any:
    """The tick that a record completes, the name of its error, or None."""
    try:
        tick = rule.take(offset, value)
    except RecordError as error:
        return type(error).__name__
    if tick is None:
        return None
    found = [(place, record.id_hash.tolist()) for place, record in tick.records]
    return plain_mark(tick.mark), found, tick.left_out


def _skip(rng: Random, offset: int, value: bytes) -> bytes:
    """A skip of this record; one of four names other bytes or another record."""
    wrong = rng.choice((0, 0, 0, 1))
    return encode_skip(Skip(PARTITION, offset + rng.choice((0, wrong)), zlib.crc32(value) ^ wrong, 5, "a", "b"))


class _Elsewhere(Bad):
    """An error of another record than the one that is taken: a skip of that one does not help."""


class SlowRuleR:
    """Rule R on all records read so far, searched again for each mark."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._last = (0, -1)
        self._read_any = False
        self._held: dict[int, list[tuple[int, Header, bytes]]] = {}
        self._accepted = self._ignored_marks = self._ignored_records = self._foreign = self._skipped = 0
        self._skips: dict[int, int] = {}
        self._since: list[tuple[int, str, Any]] = []
        """What was read since the last accepted mark and says whether a record is missing: its offset; `header` and the
        bytes of a record with a damaged header, or `stopped` and an ignored mark that goes on from the accepted one.
        """

    @property
    def counts(self) -> tuple[int, ...]:
        """The numbers of accepted marks, ignored marks, ignored records, records that wait, foreign and skipped
        ones."""
        waiting = sum(len(held) for held in self._held.values())
        return (
            self._accepted, self._ignored_marks, self._ignored_records, waiting, self._foreign, self._skipped,
        )  # fmt: skip

    def take(self, offset: int, value: bytes) -> Any:
        """The tick that a record completes, the name of its error, or None."""
        if not self._read_any and offset != 0:
            return "BrokenLog"
        found = self._take(offset, value)
        self._read_any = self._read_any or not isinstance(found, str)
        return found

    def _take(self, offset: int, value: bytes) -> Any:
        try:
            header = slow_log.header_of(value)
        except Bad as bad:
            if str(bad) == slow_log.HEADERLESS:
                self._since.append((offset, "header", value))
            if str(bad) in (slow_log.FOREIGN, slow_log.HEADERLESS):
                self._foreign += 1
                return None
            return self._unless_skipped(offset, value, bad)
        if header.partition != self._partition:
            self._foreign += 1
            return None
        if header.kind == SKIP:
            return self._skip(offset, header, value)
        if header.kind != MARK:
            return self._hold(offset, header, value)
        try:
            mark = slow_log.body_of(header, value)
            assert isinstance(mark, SlowMark)
            return self._mark(offset, mark)
        except _Elsewhere as bad:
            return str(bad)
        except Bad as bad:
            return self._unless_skipped(offset, value, bad)

    def _is_skipped(self, offset: int, value: bytes) -> bool:
        return self._skips.get(offset) == zlib.crc32(value)

    def _unless_skipped(self, offset: int, value: bytes, bad: Bad) -> str | None:
        if str(bad) == slow_log.NEWER or not self._is_skipped(offset, value):
            return str(bad)
        self._skipped += 1
        return None

    def _skip(self, offset: int, header: Header, value: bytes) -> None:
        try:
            skip = slow_log.body_of(header, value)
        except Bad:
            self._ignored_records += 1
            return
        assert isinstance(skip, SlowSkip)
        if skip.offset < offset:
            self._skips[skip.offset] = skip.checksum

    def _hold(self, offset: int, header: Header, value: bytes) -> None:
        held = self._held.get(header.attempt, [])
        if held and header.tick > held[0][1].tick:
            self._ignored_records += len(self._held.pop(header.attempt))
            held = []
        fits = not held or header.tick == held[0][1].tick
        if fits and header.sequence == len(held):
            self._held.setdefault(header.attempt, []).append((offset, header, value))
        else:
            self._ignored_records += 1

    def _mark(self, offset: int, mark: SlowMark) -> Any:
        header = mark.header
        held = self._held.get(header.attempt, [])
        own = [record for record in held if record[1].tick == header.tick]
        follows = mark.predecessor == self._last and mark.numbers[0] == self._last[1] + 1
        if follows and len(own) == header.sequence:
            return self._accept(offset, mark, own)
        self._look_for_a_gap(mark)
        begins = mark.predecessor[0] != header.attempt
        if begins and mark.predecessor != self._last and mark.predecessor[1] >= self._last[1]:
            raise Bad("BrokenLog")
        self._ignored_marks += 1
        if held and held[0][1].tick <= header.tick:
            self._ignored_records += len(self._held.pop(header.attempt))
        return None

    def _look_for_a_gap(self, mark: SlowMark) -> None:
        """Raise if a damaged header has taken what the accepted mark's successor needs."""
        name = (mark.header.attempt, mark.header.tick)
        if name == self._last:
            self._since.clear()
        damaged = [(at, value) for at, what, value in self._since if what == "header"]
        stopped = [value for _, what, value in self._since if what == "stopped"]
        if not damaged:
            return
        if stopped and stopped[-1] == mark.predecessor and not self._is_skipped(*damaged[-1]):
            raise _Elsewhere(slow_log.DAMAGED)
        if mark.predecessor[0] == self._last[0] and mark.predecessor[1] >= self._last[1]:
            self._since.append((0, "stopped", name))

    def _accept(self, at: int, mark: SlowMark, own: list[tuple[int, Header, bytes]]) -> Any:
        examples, codes, left_out = [], [], []
        for offset, header, value in own:
            found: Any = None
            try:
                found = slow_log.body_of(header, value)
            except Bad as bad:
                if not self._is_skipped(offset, value):
                    raise _Elsewhere(str(bad)) from None
                left_out.append(offset)
                if header.kind == CODES:
                    bare = mark.header._replace(flags=mark.header.flags & ~(slow_log.CODES_AHEAD | 1))
                    mark = mark._replace(header=bare, resume=None, codes=[], ahead=0)
                continue
            if header.kind == EXAMPLES:
                examples.append((offset, found.id_hash))
            elif header.kind == CODES:
                codes.extend(found)
        counted = mark.numbers[5]
        there = sum(len(ids) for _, ids in examples)
        if (mark.resume and len(codes) != mark.ahead) or there > counted or (there < counted and not left_out):
            raise Bad(slow_log.DAMAGED)
        self._skipped += len(left_out)
        self._since.clear()
        self._skips = {offset: checksum for offset, checksum in self._skips.items() if offset > at}
        self._accepted += 1
        self._last = (mark.header.attempt, mark.header.tick)
        self._ignored_records += sum(
            len(held) for attempt, held in self._held.items() if attempt != mark.header.attempt
        )
        self._held.clear()
        header = mark.header._replace(flags=mark.header.flags & ~slow_log.CODES_AHEAD)
        whole = mark._replace(header=header, codes=codes if mark.ahead else mark.codes, ahead=0)
        return whole, examples, tuple(left_out)


def chains() -> list[list[list[bytes]]]:
    """Chains of marks with their records: of each attempt from the beginning, and of each after a tick of another."""
    found = [_chain(attempt, (0, -1)) for attempt in _ATTEMPTS]
    found += [_chain(attempt, (before, tick)) for attempt in _ATTEMPTS for before in _ATTEMPTS for tick in (0, 2)
              if attempt != before]  # fmt: skip
    return [*found, *(found[0][: tick + 1] + _chain(12, (11, tick)) for tick in (0, 2))]


def _chain(attempt: int, before: tuple[int, int]) -> list[list[bytes]]:
    ticks, predecessor = [], before
    for tick in range(before[1] + 1, before[1] + 1 + _TICKS):
        count = (tick * 3 + attempt) % 4
        ticks.append(_tick(attempt, predecessor, tick, count))
        predecessor = (attempt, tick)
    return ticks


def _tick(attempt: int, predecessor: tuple[int, int], tick: int, count: int) -> list[bytes]:
    """The records of a tick, its examples in records of one or two, some with codes ahead of the mark."""
    numbers = np.arange(count)
    batch = ExampleBatch(
        1_000 + numbers,
        (numbers + 1 + 10 * tick).astype(np.uint64),
        (numbers % 2).astype(float),
        np.ones(count),
        np.arange(count + 1),
        (numbers + 1).astype(np.uint64),
        np.where(numbers % 2, 1.0, 0.5),
    )
    records = encode_examples(PARTITION, tick, attempt, batch, max_bytes=130)
    codes = np.arange(6 + tick, dtype=np.uint8) % 8
    steps = tuple((number, 10 * number) for number in range(tick))
    resume = ResumePoint(bytes(16), bytes(range(16)), 4, 99, 5, 6, 7, codes, steps=steps) if tick % 2 == 0 else None
    counts = TickCounts(
        ImpressionCounts(read=count + 1, examples=count, positives=count // 2, late=1), ClickCounts(read=1, orphans=1)
    )
    mark = Mark(
        PARTITION, attempt, tick, tick, 10 * tick + count, tick, tick + 40, len(records), *predecessor, counts, resume,
        features=attempt, begins_anew=tick == 4,
    )  # fmt: skip
    mark, parts = detach_codes(mark, 50 if tick == 2 else 10_000)
    return [*records, *parts, encode_mark(mark)]
