"""A training log that is given more partitions, as its readers meet it: on the embedded broker."""

from __future__ import annotations

import random
import uuid
from collections.abc import Callable, Iterator, Mapping
from unittest.mock import Mock

import numpy as np
import pytest

from stream_learner.adapters.kafka import Admin, Appender, EmbeddedBroker, KafkaSettings
from stream_learner.core.log.marks import GENESIS, ImpressionCounts, Mark, MarkId, ResumePoint, TickCounts, encode_mark
from stream_learner.core.log.rule_w import Attempt
from stream_learner.errors import InputsChanged
from stream_learner.roles.joiner.log_beginning import AGAIN_S, LogBeginning
from stream_learner.roles.learner.log_follower import LOG_BEGINNING, LogFollower, LogPosition
from tests.adapters.kafka.kafka_help import until
from tests.core.log.log_world import examples_of
from tests.waiting import patience

BEFORE, AFTER = 2, 4
Folded = list[tuple[int, int, int]]
"""Tick, partition and number of examples, in the order of the fold."""


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker whose topics all have four partitions; a reader knows of those that the log tells."""
    with EmbeddedBroker() as running:
        yield running


@pytest.fixture
def log(broker: EmbeddedBroker) -> Iterator[Log]:
    topic = f"log-{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, AFTER)
    made = Log(KafkaSettings({"bootstrap.servers": broker.bootstrap}), topic)
    yield made
    made.close()


class Log:
    """A training log, and its only writer."""

    def __init__(self, settings: KafkaSettings, topic: str) -> None:
        self.settings, self.topic = settings, topic
        self.last = [GENESIS] * AFTER
        self._attempts = 0
        self._appender = Appender(settings)

    def tick(self, partition: int, examples: int, partitions: int, ticks: int = 1) -> None:
        """Append some ticks; the last one has the examples."""
        begun = self.last[partition]
        last_tick = begun.last_tick + ticks
        attempt = Attempt(partition, self._next_attempt(), begun, 0)
        resume = point(partitions) if begun == GENESIS else None
        values = attempt.stamp(
            examples_of(0, examples),
            first_tick=begun.last_tick + 1,
            last_tick=last_tick,
            next_impression=0,
            first_click=0,
            click_cursor=0,
            counts=TickCounts(ImpressionCounts(read=examples, examples=examples)),
            resume=resume,
        )
        self._append(partition, values)
        self.last[partition] = MarkId(attempt.id, last_tick)

    def begin_anew(self, partition: int, last_tick: int, partitions: int = AFTER) -> None:
        """Append a mark that begins anew."""
        after = self.last[partition]
        mark = Mark(
            partition=partition,
            attempt=self._next_attempt(),
            first_tick=after.last_tick + 1,
            last_tick=last_tick,
            next_impression=0,
            first_click=0,
            click_cursor=0,
            records=0,
            pred_attempt=after.attempt,
            pred_tick=after.last_tick,
            resume=point(partitions),
            begins_anew=True,
        )
        self._append(partition, [encode_mark(mark)])
        self.last[partition] = mark.id

    def _append(self, partition: int, values: list[bytes]) -> None:
        for value in values:
            self._appender.append(self.topic, partition, value)
        assert len(self._appender.flush(patience())) == len(values)

    def close(self) -> None:
        self._appender.close()

    def _next_attempt(self) -> int:
        self._attempts += 1
        return self._attempts

    def follow(self, partitions: int = BEFORE, **options: int) -> LogFollower:
        """A follower that knows of this number of partitions."""
        start = dict.fromkeys(range(partitions), LOG_BEGINNING)
        return self.follow_from(start, **options)

    def follow_from(self, start: Mapping[int, LogPosition], **options: int) -> LogFollower:
        return LogFollower(self.settings, self.topic, start, buffer_bytes=1 << 22, **options)

    def passed(self, partitions: int = AFTER) -> int:
        """The last tick that the first partitions have passed."""
        return min(mark.last_tick for mark in self.last[:partitions])

    def began_with(self) -> int | None:
        queries = Admin(self.settings).offsets
        return LogBeginning(self.settings, queries, self.topic, AFTER).wait_partitions()


def point(partitions: int) -> ResumePoint:
    return ResumePoint(b"i" * 16, b"c" * 16, partitions, 0, 0, 0, 0, np.zeros(0, np.uint8))


class Fold:
    """The fold of a learner, turn by turn."""

    def __init__(self, follower: LogFollower, tick: int = -1) -> None:
        self.follower, self.tick = follower, tick
        self.folded: Folded = []

    def turn(self) -> None:
        """Read once, and fold what all partitions have passed."""
        self.follower.read()
        while (tick := self.follower.next_tick()) > self.tick:
            for one in self.follower.take(tick):
                if one.records:
                    self.folded.append((one.mark.last_tick, one.mark.partition, one.examples))
            self.tick = tick

    def until(self, tick: int) -> Folded:
        """Fold up to a tick; returns what was folded."""

        def there() -> bool:
            self.turn()
            return self.tick >= tick

        until(there)
        return self.folded


def grow(log: Log, between: Callable[[], None] = lambda: None) -> None:
    """Begin all partitions anew as `begin-anew` does, something between any two of its marks."""
    for partition in range(BEFORE):
        log.begin_anew(partition, log.last[partition].last_tick + 1)
        between()
    last = log.passed(BEFORE)
    for partition in range(BEFORE, AFTER):
        log.begin_anew(partition, last)
        between()


def test_the_partitions_that_hold_the_fold_back_are_known(log: Log) -> None:
    """All of an empty log; those behind the furthest; none where all are equally far, or at the last tick wanted."""
    follower = log.follow()
    assert follower.holding_back() == [0, 1]
    log.tick(0, 2, BEFORE, ticks=3)
    fold = Fold(follower)

    def read_up_to(ticks: list[int]) -> bool:
        fold.turn()
        return [mark.last_tick for mark in log.last[:BEFORE]] == ticks and follower.waiting_bytes == 0

    until(lambda: follower.read() or follower.waiting_bytes > 0)
    assert follower.holding_back() == [1]
    log.tick(1, 2, BEFORE, ticks=3)
    until(lambda: read_up_to([2, 2]))
    assert follower.holding_back() == []
    follower.close()
    ended = log.follow(until_tick=-1)
    assert ended.holding_back() == []
    ended.close()


@pytest.mark.parametrize("seed", range(12))
def test_who_lives_through_it_folds_what_one_folds_that_reads_it_all(seed: int, log: Log) -> None:
    """Wherever its turns fall, and wherever it is stopped and goes on from its positions."""
    rng = random.Random(seed)
    lived = Fold(log.follow())

    def now_and_then() -> None:
        if rng.random() < 0.5:
            for _ in range(rng.randint(1, 20)):
                lived.turn()
        if rng.random() < 0.3:
            positions, tick = lived.follower.positions, lived.tick
            lived.follower.close()
            lived.follower = log.follow_from(positions, folded_tick=tick)

    for _ in range(12):
        log.tick(rng.randrange(BEFORE), rng.randrange(3), BEFORE, rng.randint(1, 4))
        now_and_then()
    grow(log, now_and_then)
    for _ in range(16):
        log.tick(rng.randrange(AFTER), rng.randrange(3), AFTER, rng.randint(1, 4))
        now_and_then()
    anew = Fold(log.follow(AFTER))
    assert lived.until(log.passed()) == anew.until(log.passed()) == sorted(anew.folded)
    assert lived.follower.positions.keys() == set(range(AFTER))
    assert any(partition >= BEFORE for _, partition, _ in anew.folded) or log.passed() < log.passed(BEFORE)
    lived.follower.close()
    anew.follower.close()


def test_nothing_is_folded_before_the_added_partitions_have_passed_it(log: Log) -> None:
    """The fold waits, as after a crash between the marks of old and new partitions."""
    for partition in range(BEFORE):
        log.tick(partition, 1, BEFORE)
        log.begin_anew(partition, 1)
        log.tick(partition, 1, AFTER)
    fold = Fold(log.follow())
    until(lambda: fold.turn() or len(fold.follower.positions) == AFTER)
    for _ in range(20):
        fold.turn()
    held = fold.tick
    assert held <= 0
    for partition in range(BEFORE, AFTER):
        log.begin_anew(partition, 2)
    assert fold.until(2) == [(0, 0, 1), (0, 1, 1), (2, 0, 1), (2, 1, 1)]
    fold.follower.close()


def test_examples_of_a_tick_that_was_folded_without_them_stop_the_reader(log: Log) -> None:
    """A partition that was begun as that of a new log."""
    for partition in range(BEFORE):
        log.tick(partition, 1, BEFORE, ticks=5)
    fold = Fold(log.follow())
    fold.until(4)
    log.tick(2, 1, AFTER, ticks=3)
    log.begin_anew(3, 4)
    for partition in range(BEFORE):
        log.begin_anew(partition, 5)

    with pytest.raises(InputsChanged, match=r"partition 2 has examples of tick 2, .* all up to 4 without them"):
        fold.until(5)
    fold.follower.close()


def test_the_first_mark_of_the_oldest_partition_tells_with_how_many_the_log_began(log: Log) -> None:
    """Whatever later ones say; a log without a mark has not begun."""
    assert log.began_with() is None
    log.begin_anew(3, 4)
    assert log.began_with() == AFTER
    log.tick(1, 1, BEFORE)
    log.begin_anew(1, 2)
    assert log.began_with() == BEFORE


def test_a_log_that_tells_nothing_is_looked_at_once_for_all_partitions(log: Log) -> None:
    """A joiner that begins many partitions of an empty log asks for each; what comes then is seen a second later."""
    now_s = [100.0]
    queries = Mock(wraps=Admin(log.settings).offsets)
    beginning = LogBeginning(log.settings, queries, log.topic, AFTER, clock_s=lambda: now_s[0])
    assert [beginning.wait_partitions() for _ in range(AFTER)] == [None] * AFTER
    assert queries.high_watermarks.call_count == 1
    log.tick(0, examples=1, partitions=BEFORE)
    now_s[0] += AGAIN_S
    assert [beginning.wait_partitions() for _ in range(AFTER)] == [BEFORE] * AFTER
    assert queries.high_watermarks.call_count == 2
