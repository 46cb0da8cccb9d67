"""Histories of joiners: a world of several processes, one training log, and everything that may go wrong between them.

When a history is over, trouble has ended and every record has been joined; then `laws` judges it. The world must never
look into a record, nor repair what a joiner did.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from itertools import count, pairwise
from typing import NamedTuple
from unittest import mock

from proofs.simulation.events import (
    BEGINNING_MS,
    Arrival,
    random_spec,
    random_traffic,
    with_sentinels,
)
from proofs.simulation.kafka import Appender, Died, Log, Waiting
from proofs.simulation.losses import lose
from proofs.simulation.oracle import accepted_marks, chain_is_sure
from proofs.simulation.process import CLICKS, IMPRESSIONS, LETTERS, LOG, Process
from stream_learner.adapters.kafka import TopicAndPartition
from stream_learner.core.join.spec import Cut
from stream_learner.errors import LogTrimmed, RetryLater, Stop
from stream_learner.roles.joiner import inputs as inputs_module
from stream_learner.roles.joiner import partition as partition_module
from stream_learner.roles.joiner.log_tail import Hint
from stream_learner.roles.joiner.partition import PartitionJoiner

STALLED_AFTER = 800
TICKS_SEEN_AFTER, CLOCKS_WAITED_FOR_AFTER = 300, 400
"""Between these steps without trouble the ticks of every partition must go on."""
WAITED_FOR_MS = 1_000
"""Windows that were closed so far ahead of time are waited for at once."""
FINDS_OUT_WITHIN = 50
"""The number of steps without trouble after which a joiner has noticed a loss, if only by an append."""
LOSSES = (
    "input recreated",
    "log emptied",
    "settings changed",
    "partitions changed",
    "input trimmed",
    "input compacted",
)
STRANGERS_AT = 3
"""In one history of four, those with this remainder, somebody else writes to the training log as well."""
LOSS_SHARE = 0.12
"""The share of histories with one partition in which something is lost for good."""
BUFFERS_BYTES = (0, 200, 1 << 20)
IDLE_AFTER_MS = (2, 6, 40, 400)
LAGS_MS = (0, 0, 5, 40, 150)
"""How far a feed may be behind."""
CLOCK_STEPS_MS = (-100_000, -40, -7, 7, 40, 100_000)
"""How much a broker's clock may be set forth or back."""


def _of_nobody(hint: str) -> str:
    """The hint with a mark that nobody wrote."""
    return f"{hint.split(':')[0]}:abc:3"


class Writer(NamedTuple):
    """The process that began an attempt, and when, in the world's time."""

    process: Process
    began: int


class World:
    """Input topics, a training log, a group, processes, and the trouble between them."""

    def __init__(self, seed: int, trace: bool = False) -> None:
        rng = self.rng = random.Random(seed)
        self.trace = trace
        self._strangers = random.Random(seed)
        self._stranger_share = self._strangers.choice((0.01, 0.1)) if seed % 4 == STRANGERS_AT else 0.0
        self.now = BEGINNING_MS
        self.quiet = False
        self.seen: Counter[str] = Counter()
        self.spec = random_spec(rng)
        self.close_idle = rng.random() < 0.7
        self.grace_ms = rng.choice((0, 2, 5))
        self.partitions = rng.choice((1, 1, 1, 2))
        self.loss = rng.choice(LOSSES) if self.partitions == 1 and rng.random() < LOSS_SHARE else ""
        self.partition_count = self.partitions
        self.record_bytes = rng.choice((320, 600, 1 << 20))
        self.buffer_bytes = rng.choice(BUFFERS_BYTES)
        self.seconds_per_ms = rng.choice((0.02, 0.2, 1.0))
        self.resume_within_s = rng.choice((0.1, 4.0, 30.0))
        self.until_tick = BEGINNING_MS // self.spec.tick_ms + rng.randrange(1, 30) if rng.random() < 0.05 else None
        self.landing_share = rng.choice((0.3, 0.6, 0.9))
        self.transactional = rng.random() < 0.3
        self.pace = rng.choice((4, 4, 12, 30))
        self.fault_share = rng.choice((0.05, 0.15, 0.3))
        self.lost = ""
        self.topic_ids = {IMPRESSIONS: b"i" * 16, CLICKS: b"c" * 16}
        topics, order = (IMPRESSIONS, CLICKS, LOG), count()
        self.logs: dict[TopicAndPartition, Log] = {
            (topic, p): Log(order, 0 if topic == LOG else rng.choice((0, 0, 7)))
            for topic in topics
            for p in range(self.partitions)
        }
        self.logs[LETTERS, 0] = Log(order)
        self.sentinel_ms: dict[int, int] = {}
        self.on_the_way = {place: deque(side) for place, side in self._traffic().items()}
        times = [t for side in self.on_the_way.values() for arrival in side for t in (arrival.at, arrival.time_ms)]
        self.horizon = max(times, default=BEGINNING_MS) + 3 * self.spec.keep_ms + 2 * self.spec.tick_ms + 12
        self.hints: dict[int, list[str]] = {p: [] for p in range(self.partitions)}
        self.idle_after_ms = rng.choice(IDLE_AFTER_MS)
        self.arrives_within_ms = rng.choice((10, 30_000))
        self.lag_ms = {topic: rng.choice(LAGS_MS) for topic in (IMPRESSIONS, CLICKS)}
        self.broker_ahead_ms = [rng.choice((0, 0, -2, 3)) for _ in range(self.partitions)]
        self.writers: dict[int, Writer] = {}
        self.ghosts: list[deque[Waiting]] = []
        self.processes: list[Process] = []
        self.everyone: list[Process] = []
        self.owner: dict[int, Process] = {}
        self.stops: list[Stop] = []
        partition_module.MAX_OUTSTANDING = rng.choice((2, 64))
        self.marks_when_lost = 0
        self.start_process()
        self.rebalance()

    def _traffic(self) -> dict[TopicAndPartition, list[Arrival]]:
        found = {}
        for partition in range(self.partitions):
            traffic = random_traffic(self.rng, self.spec)
            if not self.close_idle:
                traffic = with_sentinels(traffic, self.spec)
                self.sentinel_ms[partition] = traffic.clicks[-1].time_ms
            found[IMPRESSIONS, partition], found[CLICKS, partition] = traffic
        return found

    def say(self, text: str) -> None:
        """Print a line of the trace, if there is one."""
        if self.trace:
            print(f"{self.now:5d}  {text}")

    # Time and inputs

    def pass_time(self, ms: int) -> None:
        """Let time pass, and append the records that arrive meanwhile to the inputs."""
        self.now += ms
        self._let_strangers_write()
        for place, side in self.on_the_way.items():
            while side and side[0].at + self.lag_ms[place[0]] <= self.now:
                self._arrive(self.logs[place], side.popleft(), is_last=len(side) < self.spec.agree)
            if not side and self.logs[place].open:
                self._finish(self.logs[place], commit=True)

    def _let_strangers_write(self) -> None:
        """Sometimes somebody else writes to the training log: what is no record of this partition's log."""
        rng = self._strangers
        if self.quiet or rng.random() > self._stranger_share:
            return
        log = self.logs[LOG, rng.randrange(self.partitions)]
        self.seen["foreign records"] += 1
        log.append(rng.choice((None, b"", b"junk", b"SLT", bytes(50))), at=self.now)

    def _arrive(self, log: Log, arrival: Arrival, *, is_last: bool) -> None:
        rng = self.rng
        transaction = 0
        if self.transactional and log.archive:
            transaction = next(iter(log.open), 0) or rng.choice((0, log.end + 1))
        log.append(arrival.value, at=self.now, time_ms=arrival.time_ms, transaction=transaction)
        if transaction and rng.random() < 0.4:
            self._finish(log, commit=is_last or rng.random() < 0.8)
        if rng.random() < 0.05:
            self.seen["gaps"] += 1
            log.skip(rng.randrange(1, 4))

    def _finish(self, log: Log, *, commit: bool) -> None:
        self.seen["input transactions committed" if commit else "input transactions aborted"] += 1
        for transaction in list(log.open):
            log.finish(transaction, commit=commit)

    def note_writer(self, process: Process, attempt: int) -> None:
        """Note which process has begun an attempt, and when."""
        self.seen["attempts"] += 1
        self.writers[attempt] = Writer(process, self.now)

    # The group

    def start_process(self, instance: int | None = None) -> Process:
        """Start a new process, or one that comes back under its old name."""
        process = Process(self, len(self.seen) if instance is None else instance)
        self.processes.append(process)
        self.everyone.append(process)
        self.seen["processes"] += 1
        return process

    def rebalance(self, only: Process | None = None) -> None:
        """Let the group give partitions to processes. Each process notices when it next polls."""
        for partition in range(self.partitions):
            new, old = only or self.rng.choice(self.processes), self.owner.get(partition)
            if new is old:
                continue
            if old in self.processes:
                old.events.append(("revoked", partition))
                self.seen["revocations"] += 1
            new.events.append(("assigned", partition))
            self.owner[partition] = new

    def hint(self, partition: int) -> str:
        """The metadata of the group's committed offset: the last hint, an old one, or nothing of use."""
        hints, rng = self.hints[partition], self.rng
        last = hints[-1] if hints else ""
        if self.lost or self.quiet or not chain_is_sure(self.logs[LOG, partition]):
            return self._true_hint(partition, last)
        roll = rng.random()
        if roll < 0.15:
            self.seen["hints lost"] += 1
            return _of_nobody(last) if last and rng.random() < 0.5 else rng.choice(("", "not:a:hint"))
        if roll < 0.4 and hints:
            self.seen["hints old"] += 1
            return rng.choice(hints)
        return last

    def _true_hint(self, partition: int, last: str) -> str:
        """The last hint; where the log has been trimmed beyond it, the hint that an operator would restore."""
        log, hint = self.logs[LOG, partition], Hint.from_text(last)
        if not log.start or (hint is not None and hint.read_from >= log.start):
            return last
        for (_, after), (offset, mark) in pairwise(reversed(accepted_marks(log.archive))):
            if offset + 1 >= log.start and after.resume is not None:
                return Hint(offset + 1, mark.id).to_text()
        return ""

    def commit(self, process: Process, partition: int, kept: str) -> None:
        """Commit metadata; the commit of a process that does not own the partition any more succeeds only sometimes."""
        if self.owner.get(partition) is not process and self.rng.random() >= 0.3:
            return
        hints = self.hints[partition]
        if hints and Hint.from_text(hints[-1]) == Hint.from_text(kept):
            hints.pop()
        hints.append(kept)

    # Trouble

    def leave_behind(self, appender: Appender) -> None:
        """The process of these records in flight is gone: in each partition, a first part of them may still land."""
        for queue in appender.queues.values():
            left = deque(list(queue)[: self.rng.randrange(len(queue) + 1)])
            if left:
                self.seen["records in flight after their writer"] += len(left)
                self.ghosts.append(left)
        appender.queues.clear()

    def remove(self, process: Process) -> None:
        """End a process; what it has in memory is lost."""
        self.processes.remove(process)
        self.leave_behind(process.appender)

    def replace(self, process: Process) -> None:
        """Replace a process that has died: it comes back under its name, or others take its partitions."""
        self.remove(process)
        self.say(f"process {process.instance} is dead")
        back = self.rng.random() < 0.6 or not self.processes
        if back:
            new = self.start_process(process.instance)
            for partition, owner in self.owner.items():
                if owner is process:
                    self.seen["static returns"] += 1
                    self.owner[partition] = new
                    new.events.append(("assigned", partition))
        else:
            for partition, owner in list(self.owner.items()):
                if owner is process:
                    self.owner[partition] = taker = self.rng.choice(self.processes)
                    taker.events.append(("assigned", partition))

    def trouble(self) -> None:
        """Let one thing go wrong, or nothing."""
        rng = self.rng
        if self.loss and not self.lost and rng.random() < 0.1:
            lose(self, self.loss)
        if rng.random() > self.fault_share:
            return
        process = rng.choice(self.processes)
        roll = rng.random()
        if rng.random() < 0.15:
            self._change_times()
        elif roll < 0.15 and len(self.processes) < 3:
            self.start_process()
            self.rebalance()
        elif roll < 0.3:
            self.rebalance()
        elif roll < 0.4:
            self.seen["crashes"] += 1
            self.seen["crashes between turns"] += 1
            self.replace(process)
        elif roll < 0.5:
            process.paused = not process.paused
            self.seen["pauses"] += process.paused
        elif roll < 0.85:
            self._fail_record(process)
        elif roll < 0.88:
            process.appender.broken = RetryLater("the producer is of no use any more")
        else:
            self._trim_log()

    def _change_times(self) -> None:
        """Let a feed fall behind, stop for a while, or catch up; or set a broker's clock, or let another one lead."""
        rng = self.rng
        if rng.random() < 0.7:
            topic = rng.choice((IMPRESSIONS, CLICKS))
            lag_ms, self.lag_ms[topic] = self.lag_ms[topic], rng.choice(LAGS_MS)
            self.seen["feeds that fall behind"] += self.lag_ms[topic] > lag_ms
            self.seen["feeds that catch up"] += self.lag_ms[topic] < lag_ms
        else:
            self.seen["brokers' clocks set"] += 1
            self.broker_ahead_ms[rng.randrange(self.partitions)] += rng.choice(CLOCK_STEPS_MS)

    def _fail_record(self, process: Process) -> None:
        waiting = [place for place, queue in process.appender.queues.items() if queue]
        if not waiting:
            return
        fate = self.rng.choice(("never", "already", "later"))
        self.seen[f"unknown outcome: {fate} in the log"] += 1
        process.appender.fail(self.rng.choice(waiting), fate, self.now)

    def _trim_log(self) -> None:
        """Let retention take a beginning of the training log, but never the last resume point."""
        place = (LOG, self.rng.randrange(self.partitions))
        log = self.logs[place]
        marks = accepted_marks(log.archive)
        points = [offset for offset, mark in marks if mark.resume is not None]
        if self.lost or len(points) < 2 or points[-2] <= log.start:
            return
        upto = self.rng.randrange(log.start, points[-2])
        if chain_is_sure(log, upto):
            self.seen["training log trimmed"] += 1
            log.trim(upto)

    # The course of a history

    def step(self) -> None:
        """Turn every process that is not paused; let records land."""
        rng = self.rng
        for process in list(self.processes):
            if process.paused or rng.random() < 0.2:
                continue
            process.fragile = rng.choice((0.0, 0.0, 0.01))
            try:
                process.turn()
            except Died:
                self.replace(process)
            except Stop as error:
                if self._shows_no_winner(process, error):
                    self.seen["stopped: a log too short to tell a winner, and no hint"] += 1
                    self.replace(process)
                    continue
                self.stop(process, error)
                return
            except RetryLater:
                self.seen["turns that failed"] += 1
        self._land()

    def _shows_no_winner(self, process: Process, error: Stop) -> bool:
        """Whether the rest of a trimmed log leaves a doubt which of its marks are accepted.

        A joiner without a hint cannot know; it stops, and an operator gives it the hint.
        """
        cut = [log for p in process.partitions if (log := self.logs[LOG, p]).start]
        unsure = not all(chain_is_sure(log) for log in cut)
        return unsure and not self.lost and isinstance(error, LogTrimmed) and "no resume point" in str(error)

    def stop(self, process: Process, error: Stop) -> None:
        """Note that a process has stopped, and why. Others go on until they find out themselves."""
        self.say(f"process {process.instance} stops: {error}")
        self.stops.append(error)
        self.seen[f"stopped: {type(error).__name__}"] += 1
        self.remove(process)

    def _land(self) -> None:
        rng = self.rng
        for process in self.processes:
            for place, queue in process.appender.queues.items():
                while queue and rng.random() < (0.05 if process.paused else self.landing_share):
                    ahead_ms = self.broker_ahead_ms[place[1]]
                    process.appender.land(place, self.now, max(self.now + ahead_ms, 0))
        for ghost in self.ghosts:
            if ghost and rng.random() < 0.2:
                record = ghost.popleft()
                self.seen["records landed late"] += 1
                self.logs[record.place].append(record.value, at=self.now, key=record.key)
        owners = Counter(p for process in self.processes for p in process.partitions)
        self.seen["steps with two owners"] += any(count > 1 for count in owners.values())

    def run(self) -> None:
        """Make trouble for a while, then let a single owner go on until every record has been joined."""
        with mock.patch.object(inputs_module, "ARRIVES_WITHIN_MS", self.arrives_within_ms):
            self._run()

    def _run(self) -> None:
        rng = self.rng
        for _ in range(rng.randrange(10, 90)):
            if rng.random() < 0.7:
                self.pass_time(rng.randrange(self.pace))
            self.trouble()
            self.step()
            if not self.processes:
                break
        self._settle()

    def _settle(self) -> None:
        self.quiet = True
        self.broker_ahead_ms = [0] * self.partitions
        for process in self.processes[:-1]:
            self.remove(process)
        if not self.processes:
            if self.lost:
                return
            self.start_process()
        owner = self.processes[-1]
        owner.paused = False
        owner.appender.broken = None
        self.rebalance(owner)
        steps, ticks = 0, Counter[int]()
        while self.processes and not (self._joined(self.processes[-1], steps) and not any(self.ghosts)):
            steps += 1
            if steps > STALLED_AFTER:
                raise AssertionError("stalled: one owner, no trouble, and no end")
            coming = any(self.on_the_way.values())
            self.pass_time(self.rng.choice((1, 3, 6) if coming else (1, 30)))
            if not coming:
                self._wait_for_windows(self.processes[-1])
            if steps in (TICKS_SEEN_AFTER, CLOCKS_WAITED_FOR_AFTER) and self.close_idle and not self.lost:
                self._wait_for_clocks(self.processes[-1], ticks, leap=steps == CLOCKS_WAITED_FOR_AFTER)
            self.step()

    def _wait_for_windows(self, owner: Process) -> None:
        """Where windows were closed ahead of time, as of an empty topic by a clock that is ahead, wait until then."""
        joins = [joiner.join for joiner in owner.partitions.values() if joiner.join is not None]
        closed_ms = max((join.next_tick * self.spec.tick_ms for join in joins), default=0)
        if self.close_idle and closed_ms > self.now + WAITED_FOR_MS:
            self.seen["windows closed long before their time"] += 1
            self.pass_time(closed_ms - self.now)

    def _wait_for_clocks(self, owner: Process, ticks: Counter[int], *, leap: bool) -> None:
        """See that ticks go on whatever windows do. Then wait for windows whose lag was learned by another clock."""
        for partition, joiner in owner.partitions.items():
            last = -1 if joiner.attempt is None else joiner.attempt.durable.last_tick
            if leap and last <= ticks[partition] and self.until_tick is None:
                raise AssertionError(f"stalled: ticks of partition {partition} do not go on after {last}")
            ticks[partition] = last
        if leap:
            ahead_ms = [ahead for process in self.everyone for _, ahead in process.reports]
            self.pass_time(max(ahead_ms, default=0) - min(ahead_ms, default=0))

    def _joined(self, owner: Process, steps: int) -> bool:
        """Whether all windows are closed for good; after a loss, whether the owner had time to notice."""
        if self.lost:
            begun = [joiner.attempt is not None for joiner in owner.partitions.values()]
            all_begun = len(begun) == self.partitions and all(begun)
            return all_begun and self.now > self.horizon and steps > FINDS_OUT_WITHIN
        if any(self.on_the_way.values()) or len(owner.partitions) < self.partitions:
            return False
        return all(self._partition_joined(joiner) for joiner in owner.partitions.values())

    def _partition_joined(self, joiner: PartitionJoiner) -> bool:
        attempt, join = joiner.attempt, joiner.join
        if attempt is None or join is None or attempt.in_doubt:
            return False
        if join.ended:
            return joiner.done
        durable = joiner.progress.last
        if not attempt.outstanding:
            durable = Cut(0, join.next_tick - 1, join.next_impression, join.click_cursor)
        if durable is None or durable.last_tick < self.last_tick(joiner.partition):
            return False
        positions = ((IMPRESSIONS, durable.next_impression), (CLICKS, durable.click_cursor))
        logs = [(self.logs[topic, joiner.partition], position) for topic, position in positions]
        left_over = any(entry.offset >= position for log, position in logs for entry in log.visible(log.end)[-1:])
        return not (self.close_idle and left_over)

    def last_tick(self, partition: int) -> int:
        """The tick of stream time that the end of a history must have closed."""
        last_ms = self.horizon if self.close_idle else self.sentinel_ms[partition]
        return last_ms // self.spec.tick_ms - 1
