"""The consumer without objects for records: where it can be made, and that it refuses what the ordinary one refuses."""

from __future__ import annotations

import ctypes
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition, libversion

from stream_learner.adapters.kafka import KafkaSettings, ReaderPool, Wake, clients, library
from stream_learner.adapters.kafka.canary import compare_consumers
from stream_learner.adapters.kafka.clients import new_client
from stream_learner.adapters.kafka.packed_consumer import PackedConsumer, can_make
from stream_learner.core.machine import records
from stream_learner.errors import ConfigError
from tests.adapters.kafka.kafka_help import append, read
from tests.conftest import MakeTopic

NOWHERE = {"bootstrap.servers": "127.0.0.1:1", "group.id": "packed"}


@pytest.fixture
def without_functions(monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not show a function of its library."""
    monkeypatch.setitem(library._FUNCTIONS, "rd_kafka_no_such_function", (None, (ctypes.c_void_p,)))
    library.library.cache_clear()
    yield
    library.library.cache_clear()


def test_the_library_of_the_client_shows_every_function() -> None:
    """On this platform records come without objects."""
    assert can_make(NOWHERE)


@pytest.mark.parametrize("name", ["sasl.mechanism", "sasl.mechanisms"])
@pytest.mark.parametrize("mechanism", ["OAUTHBEARER", "oauthbearer"])
def test_tokens_are_left_to_the_ordinary_client(name: str, mechanism: str) -> None:
    assert not can_make({**NOWHERE, name: mechanism})
    assert can_make({**NOWHERE, name: "SCRAM-SHA-512"})


def test_without_the_functions_a_pool_reads_with_the_ordinary_client(
    without_functions: None, kafka_settings: KafkaSettings, topics: MakeTopic
) -> None:
    """Another build of the client loses speed and nothing else."""
    topic = topics("unpacked")
    append(kafka_settings, topic, 0, [b"one", b"two"])
    pool = ReaderPool(kafka_settings, topic, packed=True, wake=Wake())
    with pool.open(0, 0) as reader:
        assert isinstance(pool.consumer, Consumer) and not pool.wakes
        assert read(reader, 2) == ([0, 1], [b"one", b"two"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"no.such.property": "1"},
        {"fetch.wait.max.ms": "many"},
        {"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"},
        {"security.protocol": "ssl", "ssl.certificate.location": "/no/such/file"},
    ],
)
def test_properties_are_refused_as_the_ordinary_client_refuses_them(
    wrong: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The same error, in the same words."""
    monkeypatch.setattr(clients, "PAUSE_S", 0.0)
    said = []
    for kind in (Consumer, PackedConsumer):
        with pytest.raises(ConfigError) as refused:
            new_client(kind, {**NOWHERE, **wrong})
        said.append(str(refused.value))
    assert said[0] == said[1]


def test_errors_come_to_the_callback_and_closing_twice_does_no_harm() -> None:
    """Nobody listens: the callback hears of it within `consume`, in the thread that calls."""
    heard: list[int] = []
    consumer = PackedConsumer({**NOWHERE, "error_cb": lambda error: heard.append(error.code())}, logger=clients.log)
    while not heard:
        assert consumer.consume(10, 0.05) is None
    consumer.close()
    consumer.close()


def test_a_closed_consumer_says_so_in_every_method() -> None:
    """As the ordinary one does. librdkafka itself would end the process."""
    consumer = PackedConsumer(NOWHERE, logger=clients.log)
    consumer.close()
    place = TopicPartition("topic", 0, 0)
    for call in (
        lambda: consumer.consume(1, 0.0),
        lambda: consumer.wakes(Wake()),
        lambda: consumer.incremental_assign([place]),
        lambda: consumer.incremental_unassign([place]),
        lambda: consumer.get_watermark_offsets(place, 0.1),
        lambda: consumer.topic_error("topic", 0.1),
    ):
        with pytest.raises(RuntimeError, match="Consumer closed"):
            call()


def test_both_consumers_read_known_records_alike() -> None:
    """The canary of a layout that has changed."""
    assert compare_consumers() == ""


def test_the_canary_notices_another_layout(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a later librdkafka kept the offset where the length is now: the first records that differ are named."""

    def shifted(addresses: Any, n: int, time_of: int, errors: Any, partitions: Any, offsets: Any, *rest: Any) -> Any:
        nulls = describe(addresses, n, time_of, errors, partitions, offsets, *rest)
        offsets[:n] += 1
        return nulls

    describe = records.describe
    monkeypatch.setattr(records, "describe", shifted)
    assert "(0, 0, 1700000000000, b'one') as (0, 1, 1700000000000, b'one')" in compare_consumers()


def test_an_untried_version_is_read_with_the_ordinary_client(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It is said once."""
    monkeypatch.setattr(library, "TRIED", ("1.0",))
    library.library.cache_clear()
    assert not can_make(NOWHERE) and not can_make(NOWHERE)
    assert [record.getMessage() for record in caplog.records if "ordinary client" in record.getMessage()] == [
        f"records are read with the ordinary client: librdkafka {libversion()[0]} is not among ('1.0',)"
    ]
    library.library.cache_clear()
