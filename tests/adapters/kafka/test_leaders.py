"""Offsets are asked only of partitions whose leader the client knows: a question about others can end the process."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Sequence
from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import (
    Admin,
    EmbeddedBroker,
    KafkaSettings,
    OffsetQueries,
    TopicAndPartition,
    TopicPlan,
    ends,
)
from stream_learner.errors import BrokerUnreachable, NotAuthorised, RetryLater
from tests.adapters.kafka.kafka_help import append, until
from tests.conftest import MakeTopic
from tests.kafka_broker.broker import delete_topics
from tests.waiting import patience

QUESTIONS = 2_000
"""Questions of each thread. Without waiting for descriptions, six processes of eight ended before."""
ASK = """
import faulthandler, logging, sys, threading
from stream_learner.adapters.kafka import KafkaSettings, OffsetQueries

def ask(number):
    for question in range(int(sys.argv[3])):
        places = [(f"missing-{question % 50}", partition) for partition in range(4)]
        known, failed = queries.high_watermarks_known([*places, (sys.argv[2], number)])
        assert list(failed) == places and list(known) == [(sys.argv[2], number)], (known, failed)

logging.disable()
faulthandler.enable()
queries = OffsetQueries(KafkaSettings({"bootstrap.servers": sys.argv[1]}))
threads = [threading.Thread(target=ask, args=(number,)) for number in range(2)]
[thread.start() for thread in threads]
[thread.join() for thread in threads]
"""


class Watched(AdminClient):
    """Records the questions, and asserts that no description is under way when offsets are asked for."""

    described: list[list[str]]
    asked: list[set[TopicAndPartition]]
    under_way: list[Future[Any]]
    silent: bool
    refused: KafkaError | None

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.described, self.asked, self.under_way = [], [], []
        self.silent, self.refused = False, None

    def describe_topics(self, topics: TopicCollection, **options: Any) -> dict[str, Future[Any]]:
        """The brokers' answer; none in time while `silent`; an error if `refused`."""
        names: Sequence[str] = topics.topic_names
        self.described.append(list(names))
        if self.silent or self.refused:
            error = self.refused or KafkaError(KafkaError._TIMED_OUT)
            return {name: _failed(error) for name in names}
        answers = super().describe_topics(topics, **options)
        self.under_way += answers.values()
        return answers

    def list_offsets(self, request: Any, **options: Any) -> Any:
        """Records the partitions."""
        assert all(answer.done() for answer in self.under_way)
        self.asked.append({(place.topic, place.partition) for place in request})
        return super().list_offsets(request, **options)

    def forget(self) -> None:
        """Forget the recorded questions."""
        self.described.clear()
        self.asked.clear()


def _failed(error: KafkaError) -> Future[Any]:
    answer: Future[Any] = Future()
    answer.set_exception(KafkaException(error))
    return answer


@pytest.fixture
def queries(kafka_settings: KafkaSettings, monkeypatch: pytest.MonkeyPatch) -> OffsetQueries:
    """Asks through a client that is watched."""
    monkeypatch.setattr(ends, "AdminClient", Watched)
    return OffsetQueries(kafka_settings)


@pytest.fixture
def client(queries: OffsetQueries) -> Watched:
    """The client."""
    client = queries._leaders.client
    assert isinstance(client, Watched)
    return client


def _known(queries: OffsetQueries, places: Iterable[TopicAndPartition]) -> dict[TopicAndPartition, int]:
    return queries.high_watermarks_known(places)[0]


def test_leaders_are_looked_up_once_as_long_as_answers_come(
    queries: OffsetQueries, client: Watched, topics: MakeTopic
) -> None:
    """A topic is described before the first question about it, and not before the others."""
    places = [(topics("led", 2), partition) for partition in range(2)]
    until(lambda: len(_known(queries, places)) == 2)
    client.forget()
    assert _known(queries, places) == dict.fromkeys(places, 0)
    assert (client.described, client.asked) == ([], [set(places)])


def test_nobody_is_asked_about_a_partition_without_a_leader(
    queries: OffsetQueries, client: Watched, topics: MakeTopic
) -> None:
    """A missing topic and a missing partition are left out, and described anew with each question."""
    topic = topics("partly", 1)
    there, absent = (topic, 0), [(topic, 7), ("no-such-topic", 0)]
    until(lambda: _known(queries, [there]))
    for _ in range(3):
        client.forget()
        known, failed = queries.high_watermarks_known([there, *absent])
        assert known == {there: 0}
        assert {place: type(error) for place, error in failed.items()} == dict.fromkeys(absent, RetryLater)
        assert client.asked == [{there}]
    assert client.described == [["no-such-topic", topic]]
    client.forget()
    assert queries.high_watermarks_known([absent[1]])[0] == {}
    assert client.asked == []


def test_a_topic_that_is_deleted_and_made_again_is_found_again(
    queries: OffsetQueries, client: Watched, topics: MakeTopic, admin: Admin, kafka_settings: KafkaSettings
) -> None:
    """A question that fails makes the client look: first nobody is asked, then the new leader."""
    topic = topics("again", 1)
    place = (topic, 0)
    append(kafka_settings, topic, 0, [b"a", b"b"])
    until(lambda: _known(queries, [place]) == {place: 2})
    delete_topics(kafka_settings.bootstrap, [topic])
    until(lambda: not _known(queries, [place]))

    def nobody_asked() -> bool:
        client.forget()
        return not _known(queries, [place]) and not client.asked

    until(nobody_asked)
    admin.create([TopicPlan(topic, 1)])
    until(lambda: _known(queries, [place]) == {place: 0})


def test_what_was_known_holds_while_nobody_describes_a_topic(
    queries: OffsetQueries, client: Watched, topics: MakeTopic
) -> None:
    """The controller alone describes topics; while it is away the leaders known before are asked."""
    topic = topics("silent", 1)
    place = (topic, 0)
    until(lambda: _known(queries, [place]))
    client.silent = True
    queries._leaders.failed((topic, 0))
    client.forget()
    assert _known(queries, [place]) == {place: 0}
    assert client.described == [[topic]]
    assert _known(queries, [place]) == {place: 0}
    assert client.described == [[topic], [topic]]
    client.silent = False
    assert _known(queries, [place]) == {place: 0}
    client.forget()
    assert _known(queries, [place]) == {place: 0}
    assert client.described == []


@pytest.mark.parametrize("code", [KafkaError._NOENT, KafkaError.LEADER_NOT_AVAILABLE])
def test_a_place_whose_leader_the_client_has_lost_waits_for_a_description(
    queries: OffsetQueries, client: Watched, topics: MakeTopic, code: int
) -> None:
    """What was known before no longer holds, for this partition alone."""
    topic = topics("lost", 2)
    here, lost = (topic, 0), (topic, 1)
    until(lambda: len(_known(queries, [here, lost])) == 2)
    client.silent = True
    queries._leaders.failed(lost, KafkaException(KafkaError(code)))
    client.forget()
    known, failed = queries.high_watermarks_known([here, lost])
    assert (known, type(failed[lost])) == ({here: 0}, BrokerUnreachable)
    assert client.asked == [{here}]
    client.silent = False
    assert _known(queries, [here, lost]) == {here: 0, lost: 0}


def test_a_topic_that_may_not_be_described_is_not_asked_about(
    queries: OffsetQueries, client: Watched, topics: MakeTopic
) -> None:
    """The error names the missing right, also where the topic could be asked about before."""
    topic = topics("right", 1)
    until(lambda: _known(queries, [(topic, 0)]))
    client.refused = KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED)
    queries._leaders.failed((topic, 0))
    client.forget()
    with pytest.raises(NotAuthorised, match=f"Describe on topic {topic}"):
        queries.high_watermarks([(topic, 0)])
    assert client.asked == []


def test_the_mock_cluster_is_asked_without_a_description() -> None:
    """The mock cluster describes no topics, so none is asked for."""
    with EmbeddedBroker({"topic": 2}) as broker:
        admin = Admin(KafkaSettings({"bootstrap.servers": broker.bootstrap}))
        assert until(lambda: _known(admin.offsets, [("topic", 0), ("topic", 1)])) == {("topic", 0): 0, ("topic", 1): 0}


def test_questions_about_missing_topics_from_two_threads_do_not_end_the_process(
    kafka: str, admin: Admin, topics: MakeTopic
) -> None:
    """Beside them, each thread goes on getting the answers that there are."""
    topic = topics("beside", 2)
    until(lambda: len(_known(admin.offsets, [(topic, 0), (topic, 1)])) == 2)
    command = [sys.executable, "-c", ASK, kafka, topic, str(QUESTIONS)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=patience(120.0))
    assert done.returncode == 0, done.stderr
    assert not done.stderr
