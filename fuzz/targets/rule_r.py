"""Sequences of records of the training log through rule R, against a reader written from its docstring.

The records are of several attempts, some lost, repeated, moved or damaged. The two readers share only the bytes.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import numpy as np

from fuzz import slow_log
from fuzz.guard import Side
from fuzz.mutate import shuffled
from fuzz.slow_log import CODES, EXAMPLES, MARK, Bad, Header, SlowMark
from fuzz.target import Target, Wrong, pack, unpack
from fuzz.targets.training_log import damaged_record, plain_mark
from stream_learner.core.errors import RecordError
from stream_learner.core.log.examples import ExampleBatch, encode_examples, encode_mark
from stream_learner.core.log.mark_codec import detach_codes
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, ResumePoint, TickCounts
from stream_learner.core.log.rule_r import RuleR

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
        if counts != slow.counts:
            raise Wrong(f"accepted, ignored marks and records, buffered: {counts}, not {slow.counts}")
        return accepted > 0


def _outcome(rule: RuleR, offset: int, value: bytes) -> Any:
    """The tick that a record completes, the name of its error, or None."""
    try:
        tick = rule.take(offset, value)
    except RecordError as error:
        return type(error).__name__
    if tick is None:
        return None
    return plain_mark(tick.mark), [(place, record.id_hash.tolist()) for place, record in tick.records]


class SlowRuleR:
    """Rule R on all records read so far, searched again for each mark."""

    def __init__(self, partition: int) -> None:
        self._partition = partition
        self._last = (0, -1)
        self._read_any = False
        self._held: dict[int, list[tuple[int, Header, bytes]]] = {}
        self._accepted = self._ignored_marks = self._ignored_records = 0

    @property
    def counts(self) -> tuple[int, int, int, int]:
        """The numbers of accepted marks, ignored marks, ignored records, and records that wait."""
        waiting = sum(len(held) for held in self._held.values())
        return self._accepted, self._ignored_marks, self._ignored_records, waiting

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
            if header.partition != self._partition:
                raise Bad(slow_log.FOREIGN)
            if header.kind != MARK:
                return self._hold(offset, header, value)
            mark = slow_log.body_of(header, value)
            assert isinstance(mark, SlowMark)
            return self._mark(mark)
        except Bad as bad:
            return str(bad)

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

    def _mark(self, mark: SlowMark) -> Any:
        header = mark.header
        held = self._held.get(header.attempt, [])
        own = [record for record in held if record[1].tick == header.tick]
        follows = mark.predecessor == self._last and mark.numbers[0] == self._last[1] + 1
        if follows and len(own) == header.sequence:
            return self._accept(mark, own)
        begins = mark.predecessor[0] != header.attempt
        if begins and mark.predecessor != self._last and mark.predecessor[1] >= self._last[1]:
            raise Bad("BrokenLog")
        self._ignored_marks += 1
        if held and held[0][1].tick <= header.tick:
            self._ignored_records += len(self._held.pop(header.attempt))
        return None

    def _accept(self, mark: SlowMark, own: list[tuple[int, Header, bytes]]) -> Any:
        examples, codes = [], []
        for offset, header, value in own:
            found: Any = slow_log.body_of(header, value)
            if header.kind == EXAMPLES:
                examples.append((offset, found.id_hash))
            elif header.kind == CODES:
                codes.extend(found)
        counted = mark.numbers[5]
        if len(codes) != mark.ahead or sum(len(ids) for _, ids in examples) != counted:
            raise Bad(slow_log.DAMAGED)
        self._accepted += 1
        self._last = (mark.header.attempt, mark.header.tick)
        self._ignored_records += sum(
            len(held) for attempt, held in self._held.items() if attempt != mark.header.attempt
        )
        self._held.clear()
        header = mark.header._replace(flags=mark.header.flags & ~slow_log.CODES_AHEAD)
        whole = mark._replace(header=header, codes=codes if mark.ahead else mark.codes, ahead=0)
        return whole, examples


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
    codes = np.arange(6 + tick, dtype=np.uint8) % 4
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
