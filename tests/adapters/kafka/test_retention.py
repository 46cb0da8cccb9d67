"""How long what is needed is kept, on real topics: by age, by size, and where nothing is trimmed."""

from __future__ import annotations

import time

import pytest
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import Admin, KafkaSettings, Retention, RetentionWatch
from stream_learner.adapters.kafka.retention import SHARE, trimmed_at_ms
from stream_learner.errors import BrokerUnreachable
from tests.adapters.kafka.kafka_help import until
from tests.conftest import MakeTopic

DAY_MS = 86_400_000
HOUR_MS = 3_600_000


def fill(kafka: str, topic: str, times_ms: list[int], partition: int = 0) -> None:
    """One record for each of these times."""
    producer = Producer({"bootstrap.servers": kafka})
    for time_ms in times_ms:
        producer.produce(topic, b"x" * 100, partition=partition, timestamp=time_ms)
    producer.flush()


def watch_of(kafka: str, needed: dict[tuple[str, int], int], now_ms: int) -> RetentionWatch:
    watch = RetentionWatch(Admin(KafkaSettings({"bootstrap.servers": kafka})), lambda: needed, lambda: now_ms)
    watch.ask()
    return watch


@pytest.mark.parametrize("hours_back", [0, 1, 5, 17, 19])
def test_what_waits_is_kept_until_its_age_is_that_of_the_topic(kafka: str, topics: MakeTopic, hours_back: int) -> None:
    """To within a part of the time that the log reaches back, and never later than it is trimmed."""
    topic = topics("aged", **{"retention.ms": str(DAY_MS)})
    now_ms = int(time.time() * 1000)
    times_ms = [now_ms - hours * HOUR_MS for hours in range(20, -1, -1)]
    fill(kafka, topic, times_ms)
    offset = 20 - hours_back
    right = times_ms[offset] + DAY_MS
    found = watch_of(kafka, {(topic, 0): offset}, now_ms).trimmed_at_ms[topic, 0]
    assert right - 20 * HOUR_MS // SHARE <= found <= right


def test_with_nothing_waiting_the_next_record_is_what_is_needed(kafka: str, topics: MakeTopic) -> None:
    """At the end of a partition, and in an empty one: all of the retention is left."""
    topic = topics("read", partitions=2, **{"retention.ms": str(DAY_MS)})
    now_ms = int(time.time() * 1000)
    fill(kafka, topic, [now_ms - 5 * HOUR_MS])
    watch = watch_of(kafka, {(topic, 0): 1, (topic, 1): 0}, now_ms)
    assert watch.trimmed_at_ms == {(topic, 0): now_ms + DAY_MS, (topic, 1): now_ms + DAY_MS}


def test_what_was_trimmed_has_no_time_left(kafka: str, topics: MakeTopic) -> None:
    """The position is before the first record that is kept."""
    topic = topics("gone", **{"retention.ms": str(DAY_MS)})
    now_ms = int(time.time() * 1000)
    fill(kafka, topic, [now_ms - 2_000, now_ms - 1_000, now_ms])
    trim(kafka, topic, 2)
    assert watch_of(kafka, {(topic, 0): 1}, now_ms).trimmed_at_ms[topic, 0] == now_ms


def test_a_partition_that_is_trimmed_by_size_keeps_what_its_length_says(kafka: str, topics: MakeTopic) -> None:
    """Six hours are kept at this speed; what is four hours old has two left, though it may be days old by its age."""
    topic = topics("sized", **{"retention.ms": str(30 * DAY_MS), "retention.bytes": str(1 << 20)})
    now_ms = int(time.time() * 1000)
    fill(kafka, topic, [now_ms - hours * HOUR_MS for hours in range(9, -1, -1)])
    by_age = watch_of(kafka, {(topic, 0): 5}, now_ms).trimmed_at_ms[topic, 0]
    assert by_age > now_ms + 29 * DAY_MS
    trim(kafka, topic, 3)
    found = watch_of(kafka, {(topic, 0): 5}, now_ms).trimmed_at_ms[topic, 0]
    assert now_ms + 2 * HOUR_MS - 6 * HOUR_MS // SHARE <= found <= now_ms + 2 * HOUR_MS


@pytest.mark.parametrize("configs", [{"cleanup.policy": "compact"}, {"retention.ms": "-1", "retention.bytes": "-1"}])
def test_a_topic_that_keeps_all_has_no_figure(kafka: str, topics: MakeTopic, configs: dict[str, str]) -> None:
    """Compacted, or without a limit of either kind. A topic that is not there has none either."""
    topic = topics("kept", **configs)
    assert not watch_of(kafka, {(topic, 0): 0, ("no-such-topic", 0): 0}, 1).trimmed_at_ms


def test_the_watch_asks_by_itself_and_again_after_a_failure(kafka: str, topics: MakeTopic) -> None:
    """Whatever went wrong with a question, the next one is asked, and the figures before it stay."""
    topic = topics("watched", **{"retention.ms": str(DAY_MS)})
    asked: list[int] = []

    def needed() -> dict[tuple[str, int], int]:
        asked.append(1)
        if len(asked) in (1, 3):
            raise BrokerUnreachable("away") if len(asked) == 1 else ZeroDivisionError
        return {(topic, 0): 0}

    admin = Admin(KafkaSettings({"bootstrap.servers": kafka}))
    watch = RetentionWatch(admin, needed, lambda: 7, period_s=0.01).start()
    until(lambda: len(asked) > 4)
    watch.stop()
    assert watch.trimmed_at_ms == {(topic, 0): 7 + DAY_MS}


@pytest.mark.parametrize("shorter", [1, 3])
def test_what_is_close_is_told_once_until_it_is_no_longer(kafka: str, topics: MakeTopic, shorter: int) -> None:
    """Within the hour, or half of what the topic keeps, with the time that is left; again when it was far meanwhile."""
    topic, now_ms = topics("close", **{"retention.ms": str(2 * HOUR_MS // shorter)}), int(time.time() * 1000)
    fill(kafka, topic, [now_ms - 90 * 60_000 // shorter, now_ms])
    told: list[tuple[tuple[str, int], float]] = []
    needed = {(topic, 0): 1}
    watch = RetentionWatch(
        Admin(KafkaSettings({"bootstrap.servers": kafka})),
        lambda: needed,
        lambda: now_ms,
        close=lambda partition, seconds: told.append((partition, seconds)),
    )
    for offset in (1, 0, 0, 1, 0):
        needed[topic, 0] = offset
        watch.ask()
    assert [partition for partition, _ in told] == [(topic, 0)] * 2
    assert all(29 * 60 <= shorter * seconds <= 30 * 60 for _, seconds in told)


def test_the_rule_in_numbers() -> None:
    """The earlier of both limits counts; a partition that was never trimmed says nothing of its size."""
    at = {"needed_ms": 50, "oldest_ms": 40, "now_ms": 100}
    assert trimmed_at_ms(Retention(30, None), **at, was_trimmed=True) == 80
    assert trimmed_at_ms(Retention(None, 5), **at, was_trimmed=True) == 110
    assert trimmed_at_ms(Retention(90, 5), **at, was_trimmed=True) == 110
    assert trimmed_at_ms(Retention(90, 5), **at, was_trimmed=False) == 140
    assert trimmed_at_ms(Retention(None, 5), **at, was_trimmed=False) is None


def trim(kafka: str, topic: str, offset: int) -> None:
    """Take away the records before an offset, as retention does."""
    client = AdminClient({"bootstrap.servers": kafka})  # an answer never comes once its client is gone
    for answer in client.delete_records([TopicPartition(topic, 0, offset)]).values():
        answer.result()
