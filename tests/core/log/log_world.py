"""Random histories of one partition of the training log: several writers, and everything that may go wrong.

Rule R and rule W are arguments; the log that the writers leave behind is checked against every law. The join is a
stand-in: a writer is free to choose how far a tick reaches into the inputs, as the wall clock is, so that two writers
make different ticks of the same inputs. Everything else is the real code.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass

import numpy as np

from stream_learner.core.log.balance import Balance
from stream_learner.core.log.dictionary import Scratch
from stream_learner.core.log.examples import ExampleBatch, decode, to_batch
from stream_learner.core.log.marks import ClickCounts, ImpressionCounts, Mark, ResumePoint, TickCounts
from stream_learner.core.log.rule_r import AcceptedTick, RuleR, find_chain
from stream_learner.core.log.rule_w import Ack, Attempt, Verdict

MAX_BYTES = 120
TOPIC_IDS = (b"impressions-----", b"clicks----------")
SCRATCH = Scratch()
STALLED_AFTER = 4000


@dataclass(frozen=True)
class Rules:
    """The code under test, or a mutant of it."""

    reader: type[RuleR] = RuleR
    writer: type[Attempt] = Attempt


def examples_of(begin: int, end: int) -> ExampleBatch:
    """The examples of the impressions at these offsets: what they are follows from the offset alone."""
    offsets = np.arange(begin, end)
    return ExampleBatch(
        offsets * 10,
        offsets.astype(np.uint64) + np.uint64(1),
        (offsets % 3 == 0).astype(np.float64),
        np.ones(len(offsets)),
        np.arange(len(offsets) + 1, dtype=np.int64),
        (offsets % 5 + 1).astype(np.uint64),
        np.where(offsets % 2, 1.0, offsets * 0.5),
    )


def codes_of(begin: int, end: int) -> np.ndarray:
    """The codes of the clicks at these offsets."""
    return (np.arange(begin, end) % 4).astype(np.uint8)


class Reader:
    """Rule R over the world's log, and the marks it accepted."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.rule = world.rules.reader(partition=0)
        self.ticks: list[AcceptedTick] = []

    def read_on(self) -> Reader:
        """Read to the end of the log."""
        for offset in range(self.rule.position or 0, len(self.world.log)):
            tick = self.rule.take(offset, self.world.log[offset])
            if tick is not None:
                self.ticks.append(tick)
        return self


class Writer:
    """A process that believes it owns the partition."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.paused = False
        self.queue: deque[bytes] = deque()
        self.begin()

    def begin(self) -> None:
        """Steps 1 to 3 of rule W."""
        world = self.world
        self.reader = Reader(world).read_on()
        self.positions = (0, 0, 0)
        if self.reader.ticks:
            mark = self.reader.ticks[-1].mark
            self.positions = (mark.next_impression, mark.first_click, mark.click_cursor)
        self.queue = deque()
        self.landed: deque[int] = deque()
        self.attempt = world.rules.writer(
            0,
            world.rng.getrandbits(64) | 1,
            self.reader.rule.last,
            len(world.log),
            max_bytes=MAX_BYTES,
            scratch=SCRATCH,
        )

    @property
    def done(self) -> bool:
        """Everything there is in the inputs has been stamped."""
        return self.positions == (self.world.impressions, self.world.clicks, self.world.clicks)

    def make(self) -> None:
        """Stamp a tick, or a run of empty ones and a tick."""
        if len(self.queue) > 8 or self.done:
            return
        rng, (i0, e0, c0) = self.world.rng, self.positions
        i1 = min(self.world.impressions, i0 + rng.choice([0, 0, 1, 2, 5]))
        c1 = min(self.world.clicks, c0 + rng.choice([0, 0, 1, 3]))
        e1 = rng.randint(e0, c1)
        first_tick = self.attempt.next_tick
        self.queue.extend(
            self.attempt.stamp(
                examples_of(i0, i1),
                first_tick=first_tick,
                last_tick=first_tick + rng.choice([0, 0, 0, 4]),
                next_impression=i1,
                first_click=e1,
                click_cursor=c1,
                counts=TickCounts(
                    ImpressionCounts(read=i1 - i0, examples=i1 - i0),
                    ClickCounts(read=c1 - c0, matched=e1 - e0, waiting=c1 - e1),
                ),
                resume=ResumePoint(*TOPIC_IDS, 1, 2, 3, 4, 5, codes_of(e1, c1)) if rng.random() < 0.3 else None,
            )
        )
        self.positions = (i1, e1, c1)

    def deliver(self) -> None:
        """One record reaches the log."""
        if self.queue:
            self.landed.append(self.world.append(self.queue.popleft()))

    def hear(self) -> None:
        """One offset comes back; steps 4 and 5 of rule W."""
        if self.landed and self.attempt.acknowledged(self.landed.popleft()) is Ack.FOREIGN:
            self.reader.read_on()
            if self.attempt.decide(self.reader.rule) is Verdict.BEGIN_AGAIN:
                self.world.lost += 1
                self.world.leave_behind(self.queue)
                self.begin()

    def fail(self) -> None:
        """An error or an unknown outcome: one record is lost, those behind it may still arrive. Step 6 of rule W."""
        left = list(self.queue)
        if left:
            del left[self.world.rng.randrange(len(left))]
        self.world.ghosts.append(deque(left))
        self.begin()


class World:
    """One partition: its log, its inputs, its writers, and records still in flight from writers that are gone."""

    def __init__(self, seed: int, rules: Rules) -> None:
        self.rng = random.Random(seed)
        self.rules = rules
        self.log: list[bytes] = []
        self.impressions = self.rng.randrange(1, 40)
        self.clicks = self.rng.randrange(0, 20)
        self.ghosts: list[deque[bytes]] = []
        self.lost = 0
        self.writers = [Writer(self)]

    def append(self, record: bytes) -> int:
        """The record's offset."""
        self.log.append(record)
        return len(self.log) - 1

    def leave_behind(self, queue: deque[bytes]) -> None:
        """A first part of what was in flight may still arrive, later."""
        self.ghosts.append(deque(list(queue)[: self.rng.randrange(len(queue) + 1)]))

    def run(self) -> None:
        """Trouble for a while, then a single owner, until everything has been written."""
        for _ in range(self.rng.randrange(20, 250)):
            self.trouble()
            self.step()
        for writer in self.writers[:-1]:
            self.leave_behind(writer.queue)
        self.writers = self.writers[-1:]
        owner = self.writers[0]
        owner.paused = False
        steps = 0
        while not (owner.done and not owner.queue and not owner.landed and not any(self.ghosts)):
            steps += 1
            assert steps < STALLED_AFTER, "stalled"
            self.step()

    def trouble(self) -> None:
        """A second owner, a kill, a pause, a failure; mostly nothing."""
        rng, roll = self.rng, self.rng.random()
        if roll < 0.03 and len(self.writers) < 3:
            self.writers.append(Writer(self))
        elif roll < 0.05:
            gone = self.writers.pop(rng.randrange(len(self.writers)))
            self.leave_behind(gone.queue)
            if not self.writers:
                self.writers.append(Writer(self))
        elif roll < 0.09:
            writer = rng.choice(self.writers)
            writer.paused = not writer.paused
        elif roll < 0.11:
            rng.choice(self.writers).fail()

    def step(self) -> None:
        """Everybody who is not paused does something."""
        for writer in self.writers:
            if not writer.paused:
                for act in (writer.make, writer.deliver, writer.hear):
                    if self.rng.random() < 0.6:
                        act()
        for ghost in self.ghosts:
            if ghost and self.rng.random() < 0.3:
                self.append(ghost.popleft())


def check_history(seed: int, rules: Rules = Rules()) -> tuple[int, int, int]:
    """Run one history and check every law. Returns accepted marks, ignored marks, attempts that found they lost."""
    world = World(seed, rules)
    world.run()
    reader = Reader(world).read_on()
    check_ticks(world, reader.ticks)
    check_other_beginnings(world, reader.ticks)
    rule = reader.rule
    used = sum(tick.mark.records + 1 for tick in reader.ticks)
    assert rule.accepted_marks == len(reader.ticks)
    assert used + rule.ignored_marks + rule.ignored_records + rule.buffered_records == len(world.log)
    return rule.accepted_marks, rule.ignored_marks, world.lost


def check_ticks(world: World, ticks: list[AcceptedTick]) -> None:
    """Ticks once and in order; every impression and click once; examples, codes and counts as the inputs say."""
    balance = Balance()
    before: Mark | None = None
    for tick in ticks:
        mark = tick.mark
        assert mark.first_tick == (before.last_tick + 1 if before else 0), "ticks in order"
        batches = [to_batch(record) for _, record in tick.records]
        begin = before.next_impression if before else 0
        expected = examples_of(begin, mark.next_impression)
        for name in ("id_hash", "label", "keys", "values", "log_time_ms"):
            found = [value for batch in batches for value in getattr(batch, name).tolist()]
            assert found == getattr(expected, name).tolist(), "examples"
        if mark.resume is not None:
            codes = codes_of(mark.first_click, mark.click_cursor)
            assert mark.resume == ResumePoint(*TOPIC_IDS, 1, 2, 3, 4, 5, codes), "resume point"
        balance.add(mark)
        before = mark
    assert balance.problems == []
    assert balance.impressions.read == balance.impressions.examples == world.impressions, "all impressions"
    assert balance.clicks == ClickCounts(read=world.clicks, matched=world.clicks), "all clicks"


def check_other_beginnings(world: World, ticks: list[AcceptedTick]) -> None:
    """A reader that begins after any accepted mark, or at a trimmed beginning, accepts the same ticks from there."""
    at = world.rng.randrange(len(ticks))
    assert read_from(world, ticks[at].mark_offset, ticks[at].mark) == [t.mark for t in ticks[at + 1 :]]
    trimmed_to = world.rng.randrange(len(world.log))
    in_sight = list(marks_from(world, trimmed_to))
    counted = {tick.mark.id for tick in ticks}
    accepted = sum(mark.id in counted for _, mark in in_sight)
    if 2 * accepted > len(in_sight):
        first = find_chain(in_sight)
        assert first is not None
        assert first[1].id == next(t.mark.id for t in ticks if t.mark_offset >= trimmed_to), "find_chain"


def read_from(world: World, mark_offset: int, known: Mark) -> list[Mark]:
    """The marks accepted after a known one."""
    rule = world.rules.reader(known.id)
    ticks = [rule.take(offset, world.log[offset]) for offset in range(mark_offset + 1, len(world.log))]
    return [tick.mark for tick in ticks if tick is not None]


def marks_from(world: World, offset: int) -> list[tuple[int, Mark]]:
    """All marks from an offset on, whoever wrote them."""
    found = [(place, decode(world.log[place])) for place in range(offset, len(world.log))]
    return [(place, mark) for place, mark in found if isinstance(mark, Mark)]
