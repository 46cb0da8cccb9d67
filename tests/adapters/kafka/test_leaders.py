"""Offsets are asked for while leaders go and come, from several threads; such a question has ended the process."""

from __future__ import annotations

import ctypes

import pytest

from stream_learner.adapters.kafka import (
    Admin,
    EmbeddedBroker,
    KafkaSettings,
    OffsetQueries,
    TopicAndPartition,
    TopicPlan,
)
from stream_learner.errors import RetryLater
from tests.adapters.kafka.kafka_help import append, until
from tests.children import run_python
from tests.conftest import MakeTopic
from tests.kafka_broker.broker import delete_topics

QUESTIONS = 2_000
"""Questions of each thread about missing topics. With `list_offsets`, six processes of eight ended before."""
MISSING = """
import logging, sys, threading
from stream_learner.adapters.kafka import KafkaSettings, OffsetQueries

def ask(number):
    for question in range(int(sys.argv[3])):
        places = [(f"missing-{question % 50}", partition) for partition in range(4)]
        known, failed = queries.high_watermarks_known([*places, (sys.argv[2], number)])
        assert list(failed) == places and list(known) == [(sys.argv[2], number)], (known, failed)

logging.disable()
queries = OffsetQueries(KafkaSettings({"bootstrap.servers": sys.argv[1]}))
threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""
CHANGES = 1_500
"""Changes of leaders, 2 ms after each other at least. With `list_offsets`, four processes of seven ended before, and
three hung."""
CHANGING = """
import logging, random, sys, threading, time
from stream_learner.adapters.kafka import Admin, EmbeddedBroker, KafkaSettings
from tests.adapters.kafka.test_leaders import lead

def change():
    rng = random.Random(1)
    for _ in range(int(sys.argv[1])):
        lead(broker, f"t{rng.randrange(4)}", rng.randrange(2), rng.choice((-1, 1)))
        time.sleep(0.002)
    for topic, partition in places:
        lead(broker, topic, partition, 1)

def ask(number):
    rng = random.Random(number)
    while changing.is_alive():
        queries.high_watermarks_known(places if number else [(f"t{rng.randrange(4)}", 0)])

logging.disable()
places = [(f"t{topic}", partition) for topic in range(4) for partition in range(2)]
with EmbeddedBroker({f"t{topic}": 2 for topic in range(4)}) as broker:
    queries = Admin(KafkaSettings({"bootstrap.servers": broker.bootstrap}), request_timeout_s=1.0).offsets
    changing = threading.Thread(target=change)
    threads = [changing, *(threading.Thread(target=ask, args=(number,)) for number in range(3))]
    [thread.start() for thread in threads]
    [thread.join() for thread in threads]
    while queries.high_watermarks_known(places)[0] != dict.fromkeys(places, 0):
        pass
"""
NOBODY = -1


def lead(broker: EmbeddedBroker, topic: str, partition: int, node: int) -> None:
    """Make a node the leader of a partition of a mock cluster, or nobody."""
    change = broker._lib.rd_kafka_mock_partition_set_leader
    change.argtypes = [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_int32, ctypes.c_int32]
    assert change(broker._cluster, topic.encode(), partition, node) == 0


def _known(queries: OffsetQueries, *places: TopicAndPartition) -> dict[TopicAndPartition, int]:
    return queries.high_watermarks_known(places)[0]


def test_leaders_that_change_while_threads_ask_do_not_end_the_process() -> None:
    """All partitions are answered once they have their leaders again."""
    done = run_python(CHANGING, str(CHANGES))
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.thorough
def test_questions_about_missing_topics_from_two_threads_do_not_end_the_process(
    kafka: str, admin: Admin, topics: MakeTopic
) -> None:
    """Beside them, each thread goes on getting the answers that there are."""
    topic = topics("beside", 2)
    until(lambda: len(_known(admin.offsets, (topic, 0), (topic, 1))) == 2)
    done = run_python(MISSING, kafka, topic, str(QUESTIONS))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_partition_without_a_leader_holds_up_no_other() -> None:
    """The others are answered, each time; so is this one, as soon as it has a leader again."""
    without, beside = ("topic", 0), ("topic", 1)
    with EmbeddedBroker({"topic": 2}) as broker:
        queries = OffsetQueries(KafkaSettings({"bootstrap.servers": broker.bootstrap}))
        assert until(lambda: _known(queries, without, beside)) == {without: 0, beside: 0}
        lead(broker, "topic", 0, NOBODY)
        for _ in range(3):
            known, failed = queries.high_watermarks_known([without, beside])
            assert (known, type(failed[without])) == ({beside: 0}, RetryLater)
        with pytest.raises(RetryLater, match="topic partition 0"):
            queries.earliest([without])
        lead(broker, "topic", 0, 1)
        assert _known(queries, without, beside) == {without: 0, beside: 0}


def test_a_topic_that_is_deleted_and_made_again_is_found_again(
    topics: MakeTopic, admin: Admin, kafka_settings: KafkaSettings
) -> None:
    """While it is away there is no answer, and no old one."""
    queries = OffsetQueries(kafka_settings)
    topic = topics("again", 1)
    place, absent = (topic, 0), [(topic, 7), ("no-such-topic", 0)]
    append(kafka_settings, topic, 0, [b"a", b"b"])
    until(lambda: _known(queries, place) == {place: 2})
    known, failed = queries.high_watermarks_known([place, *absent])
    assert known == {place: 2}
    assert {place: type(error) for place, error in failed.items()} == dict.fromkeys(absent, RetryLater)
    delete_topics(kafka_settings.bootstrap, [topic])
    until(lambda: not _known(queries, place))
    admin.create([TopicPlan(topic, 1)])
    until(lambda: _known(queries, place) == {place: 0})
