"""Runs a world of streams through the joiner, and judges the training log that comes out.

In: a world and settings. Out: what was lost, late and guessed, how fresh examples are, and who had to wait. The judge
reads the log's records and the world; from the joiner it takes only the numbers that its metrics show.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

from proofs.simulation.kafka import Entry, Log
from proofs.simulation.stream_process import CLICKS, IMPRESSIONS, LOG, RunSettings, StreamProcess
from proofs.simulation.stream_worlds import FOR_EVER, MINUTE, SECOND, Arrival, StreamWorld, clicked_in_window
from stream_learner.adapters.kafka import TopicAndPartition
from stream_learner.core.log.examples import ExampleRecord, decode
from stream_learner.core.log.marks import Mark
from stream_learner.core.machine.hashing import hash_texts


@dataclass
class Outcome:
    """Of a run. impressions, positives: all that were emitted, and those with a click in their window. lost: positives
    that were learned as negatives, and nobody said so. late: positives that were late. guessed, guessed_lost: examples
    that were counted as guessed, and the positives lost among them. emitted_late: all late impressions.

    fresh_s: from the end of each window to its emission. held_s: the longest time that a partition was over a minute
    behind another for the learner. last_wait_s: how long the last windows waited once events had ended. left:
    impressions that were never emitted. lines: how often each event was logged, in the last life of each process.
    """

    impressions: int = 0
    positives: int = 0
    lost: int = 0
    late: int = 0
    guessed: int = 0
    guessed_lost: int = 0
    emitted_late: int = 0
    fresh_s: list[float] = field(default_factory=list)
    held_s: float = 0.0
    last_wait_s: float = 0.0
    left: int = 0
    lines: dict[str, int] = field(default_factory=dict)

    def share(self, positives: int) -> float:
        """Percent of the positives."""
        return 100 * positives / max(self.positives, 1)

    def fresh(self, quantile: float) -> float:
        """A quantile of the freshness, s."""
        ordered = sorted(self.fresh_s)
        return ordered[int(quantile * (len(ordered) - 1))] if ordered else float("nan")


@dataclass
class _Made:
    """The impressions that a mark has emitted. lost: how many of them are positives with label 0."""

    examples: int
    lost: int


class _Judge:
    """Judges one partition."""

    def __init__(self, shown: list[Arrival], clicked: list[Arrival], settings: RunSettings, log: Log) -> None:
        self.shown, self.settings, self.log = shown, settings, log
        self.is_positive = clicked_in_window(shown, clicked, settings.window_ms, settings.skew_ms)
        self.emitted = 0
        self.closed_ms = self.stream_ms = 0
        self._read = 0
        self._labels: dict[int, float] = {}
        self._hashes = _hashes(len(shown))
        self._marks: deque[_Made] = deque()
        self._after: set[int] = set()
        self._came_late: set[int] = set()
        self._late_ms: list[int] = []

    def note_late(self, first: int, end: int) -> int:
        """Note which of the impressions that were read now came after their windows were closed, and not too late for a
        label; returns how many.
        """
        latest_ms = self.stream_ms - self.settings.window_ms
        labelled = range(latest_ms - self.settings.lateness_ms, latest_ms)
        late = {i for i in range(first, end) if self.shown[i].time_ms in labelled}
        self._came_late |= late
        return len(late)

    def take(self, now: int, last: float, outcome: Outcome) -> None:
        """Judge the records that were appended since the last call."""
        entries = self.log.entries
        for entry in entries[self._read :]:
            self._take(entry, now, last, outcome)
        self._read = len(entries)

    def _take(self, entry: Entry, now: int, last: float, outcome: Outcome) -> None:
        assert entry.value is not None
        record = decode(entry.value)
        if isinstance(record, ExampleRecord):
            self._labels.update(zip(record.id_hash.tolist(), record.label.tolist(), strict=True))
        elif isinstance(record, Mark):
            self._take_mark(record, now, last, outcome)

    def _take_mark(self, mark: Mark, now: int, last: float, outcome: Outcome) -> None:
        tick_ms = self.settings.tick_ms
        self.closed_ms = (mark.last_tick + 1) * tick_ms
        self.stream_ms = (mark.stream_tick + 1) * tick_ms
        made = _Made(0, 0)
        for i in range(self.emitted, mark.next_impression):
            if not self._judge(i, made, outcome):
                continue
            end_ms = self.shown[i].time_ms + self.settings.window_ms
            if end_ms < last - MINUTE:
                outcome.fresh_s.append((now - end_ms) / 1000)
            else:
                outcome.last_wait_s = max(outcome.last_wait_s, (now - max(last, end_ms)) / 1000)
        self.emitted = mark.next_impression
        if self._labels:
            raise AssertionError(f"{len(self._labels)} examples are of no impression that the mark emits")
        if made.examples:
            self._marks.append(made)

    def _judge(self, i: int, made: _Made, outcome: Outcome) -> bool:
        """Judge an impression; returns whether it has an example, and is not late."""
        positive, label = self.is_positive[i], self._labels.pop(self._hashes[self.shown[i].number], None)
        outcome.impressions += 1
        outcome.positives += positive
        if label is None:
            outcome.emitted_late += 1
            outcome.late += positive
            return False
        if label and not positive:
            raise AssertionError(f"impression {i} has a label and no click in its window")
        lost = bool(positive and not label)
        if i in self._came_late:
            outcome.guessed += 1
            outcome.guessed_lost += lost
        else:
            outcome.lost += lost
            made.lost += lost
        made.examples += 1
        return True

    def guess(self, examples: int, outcome: Outcome) -> None:
        """The joiner counts so many of the examples made last as guessed."""
        while examples > 0 and self._marks:
            made = self._marks.pop()
            examples -= made.examples
            outcome.guessed += made.examples
            outcome.guessed_lost += made.lost
            outcome.lost -= made.lost
        if examples:
            raise AssertionError("marks are not counted as guessed as a whole")


@lru_cache(4)
def _hashes(most: int) -> list[int]:
    """The hashes of the ids 0 to `most`."""
    return hash_texts([b"%d" % number for number in range(most + 1)])


class StreamRun:
    """One world, run through."""

    def __init__(self, world: StreamWorld, settings: RunSettings) -> None:
        self.world, self.settings, self.outcome = world, settings, Outcome()
        self._numbers = count(1)
        shown, clicked = world.arrivals()
        order = count()
        partitions = range(world.partitions)
        self.logs: dict[TopicAndPartition, Log] = {
            (topic, p): Log(order) for topic in (IMPRESSIONS, CLICKS, LOG) for p in partitions
        }
        self.judges = [_Judge(shown[p], clicked[p], settings, self.logs[LOG, p]) for p in partitions]
        coming = [
            (arrival.at, topic, p, arrival)
            for topic, side in ((IMPRESSIONS, shown), (CLICKS, clicked))
            for p in partitions
            for arrival in side[p]
            if arrival.at < FOR_EVER
        ]
        self._coming = sorted(coming, key=lambda one: one[0])
        self._at = [one[0] for one in self._coming]
        self._came = 0
        self.last = max(arrival.at for side in shown for arrival in side)
        self.now = int(self._at[0]) - SECOND
        self._stop = self._at[-1] + settings.window_ms + settings.lateness_ms + 3 * settings.idle_after_ms + 10 * MINUTE
        self.processes = self._processes({})
        self._guessed = dict.fromkeys(partitions, 0)

    def _processes(self, kept: dict[int, str]) -> list[StreamProcess]:
        world = self.world
        return [
            StreamProcess(
                self.settings,
                self.logs,
                range(place, world.partitions, world.processes),
                lambda partition: kept.get(partition, ""),
                partition_count=world.partitions,
                now=lambda: self.now,
                wall_ms=lambda: world.wall(self.now),
                brokers_ms=lambda: world.brokers(self.now),
                most_read=world.most_read,
                number=next(self._numbers),
            )
            for place in range(world.processes)
        ]

    def run(self) -> Outcome:
        """Run until every impression is emitted, or nothing more can come of it."""
        outcome, restarts = self.outcome, deque(self.world.restarts)
        started = even_since = self.now
        while self.now < self._stop and not self._is_over:
            self._pass_time()
            if restarts and self.now >= restarts[0].at:
                restart = restarts.popleft()
                self._restart(restart.down_ms, remembers=restart.remembers)
            self._append()
            for process in self.processes:
                self._look(process)
            closed = [judge.closed_ms for judge in self.judges]
            if max(closed) - min(closed) <= MINUTE or self.now > self.last or self.now < started + 2 * MINUTE:
                even_since = self.now
            outcome.held_s = max(outcome.held_s, (self.now - even_since) / 1000)
        outcome.left = sum(len(judge.shown) - judge.emitted for judge in self.judges)
        outcome.lines = {
            line: sum(process.lines[line] for process in self.processes)
            for line in sorted({line for process in self.processes for line in process.lines})
        }
        return outcome

    @property
    def _is_over(self) -> bool:
        done = all(judge.emitted == len(judge.shown) for judge in self.judges)
        return self._came == len(self._coming) and done

    def _pass_time(self) -> None:
        """Go on by some seconds while events come, else faster."""
        last = self._at[self._came - 1] if self._came else None
        soon = self._came < len(self._at) and self._at[self._came] < self.now + MINUTE
        if soon or (last is not None and self.now - last < 2 * MINUTE):
            self.now += self.world.look_s * SECOND
        else:
            self.now += 10 * SECOND if last is not None and self.now - last < 40 * MINUTE else MINUTE

    def _restart(self, down_ms: int, *, remembers: bool) -> None:
        kept = {
            partition: process.to_keep(partition, remembers=remembers)
            for process in self.processes
            for partition in process.partitions
        }
        for process in self.processes:
            process.end()
        self.now += down_ms
        self.processes = self._processes(kept)
        self._guessed = dict.fromkeys(self._guessed, 0)

    def _append(self) -> None:
        """Put the records into the topics that are there now."""
        upto = bisect_right(self._at, self.now)
        for at, topic, partition, arrival in self._coming[self._came : upto]:
            value = b'{"id":%d,"t":%d}' % (arrival.number, arrival.time_ms)
            self.logs[topic, partition].append(value, at=int(at), time_ms=self.world.brokers(int(at)))
        self._came = upto

    def _look(self, process: StreamProcess) -> None:
        before = {p: _read(process, p) for p in process.partitions}
        process.look()
        for p in process.partitions:
            judge, (position, late) = self.judges[p], before[p]
            position_now, late_now = _read(process, p)
            if late_now > late:
                noted = judge.note_late(position, position_now)
                if noted != late_now - late:
                    raise AssertionError(f"{late_now - late} came late by the joiner, {noted} did")
            judge.take(self.now, self.last, self.outcome)
            guessed = process.guesses(p) - late_now
            judge.guess(max(guessed - self._guessed[p], 0), self.outcome)
            self._guessed[p] = guessed


def _read(process: StreamProcess, partition: int) -> tuple[int, int]:
    """Up to which offset impressions have been read, and how many of them came late."""
    joiner = process.partitions[partition]
    if joiner.join is None or joiner.inputs is None:
        return 0, 0
    return joiner.join.next_impression_to_read, joiner.inputs.late_arrivals


def run_world(world: StreamWorld, settings: RunSettings) -> Outcome:
    """Run a world."""
    return StreamRun(world, settings).run()
