"""Topics and ends of partitions on a real Kafka: descriptions, plans, ids, watches."""

from __future__ import annotations

import socket
import threading
import time
import uuid
from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import OFFSET_END, OFFSET_INVALID, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient

from stream_learner.adapters.kafka import (
    BEYOND_END,
    NO_TOPIC_ID,
    Admin,
    EndWatch,
    KafkaSettings,
    OffsetQueries,
    TopicAndPartition,
    TopicPlan,
    TopicWatch,
    ends,
)
from stream_learner.errors import (
    BrokerUnreachable,
    ConfigError,
    NotAuthorised,
    RetryLater,
    TopicMissing,
    TopicRecreated,
)
from tests.adapters.kafka.kafka_help import append, raises_within, transaction, until, watching
from tests.cli_e2e.world import free_port
from tests.conftest import MakeTopic
from tests.kafka_broker.broker import delete_topics


def test_describe_gives_ids_counts_and_settings(admin: Admin, topics: MakeTopic) -> None:
    """What exists is described, what does not is left out; settings come when asked for."""
    topic = topics("describe", 3, **{"cleanup.policy": "compact"})
    found = admin.describe([topic, "no-such-topic"])
    assert list(found) == [topic]
    assert found[topic].partitions == 3
    assert found[topic].replication == 1
    assert len(found[topic].id) == 16
    assert found[topic].id != NO_TOPIC_ID
    assert (found[topic].in_sync, found[topic].operations) == ((1, 1, 1), None)
    (looked,) = admin.look([topic, "no-such-topic"]).values()
    assert looked.configs["cleanup.policy"] == "compact" and admin.brokers >= 1
    assert looked.operations is not None and looked.operations >= {"Read", "Write", "DescribeConfigs", "Delete"}
    assert found[topic].configs == {}
    configs = admin.describe([topic], with_configs=True)[topic].configs
    assert configs["cleanup.policy"] == "compact"
    assert "retention.ms" in configs
    assert admin.describe([]) == {}


def test_require_names_every_missing_topic(admin: Admin, topics: MakeTopic) -> None:
    """The message names all that is missing, not only the first."""
    topic = topics("require")
    assert list(admin.require([topic])) == [topic]
    with pytest.raises(TopicMissing, match="missing-a, missing-b"):
        admin.require([topic, "missing-a", "missing-b"])


def test_ensure_shows_and_changes_nothing_unless_told(admin: Admin) -> None:
    """Missing topics and other settings are reported; making and setting happen only when told, and only once."""
    name = f"ensure-{uuid.uuid4().hex[:8]}"
    plan = [TopicPlan(name, 2, configs={"cleanup.policy": "compact"})]
    assert [str(d) for d in admin.ensure(plan)] == [f"{name}: topic: missing -> 2 partitions (differs)"]
    assert admin.describe([name]) == {}
    assert [d.done for d in admin.ensure(plan, create=True)] == [True]
    assert admin.ensure(plan, create=True, change=True) == []
    other = [TopicPlan(name, 2, configs={"cleanup.policy": "delete", "retention.ms": "1000"})]
    shown = admin.ensure(other)
    assert {(d.setting, d.found, d.planned, d.done) for d in shown} == {
        ("cleanup.policy", "compact", "delete", False),
        ("retention.ms", "604800000", "1000", False),
    }
    assert admin.describe([name], with_configs=True)[name].configs["cleanup.policy"] == "compact"
    assert all(d.done for d in admin.ensure(other, change=True))
    assert until(lambda: not admin.ensure(other))


def test_what_there_is_more_of_is_reported_and_left_as_it_is(admin: Admin, topics: MakeTopic) -> None:
    """Of what the plan names in `at_least` only, and never made less; without an end is more than any retention."""
    topic = topics("more", 2)
    more = {"retention.ms": "-1", "max.message.bytes": "2000000", "cleanup.policy": "compact"}
    admin.ensure([TopicPlan(topic, 2, configs=more)], change=True)
    assert until(lambda: not admin.ensure([TopicPlan(topic, 2, configs=more)]))
    asked = {"retention.ms": "1000", "max.message.bytes": "1000000", "cleanup.policy": "delete"}
    plan = TopicPlan(topic, 1, configs=asked, at_least=("partitions", "retention.ms", "cleanup.policy"))
    shown = {d.setting: (d.enough, d.done) for d in admin.ensure([plan])}
    assert shown == {
        "partitions": (True, False),
        "retention.ms": (True, False),
        "max.message.bytes": (False, False),
        "cleanup.policy": (False, False),
    }
    changed = {d.setting: (d.enough, d.done) for d in admin.ensure([plan], change=True)}
    assert changed == {**shown, "max.message.bytes": (False, True), "cleanup.policy": (False, True)}
    assert until(lambda: {d.setting for d in admin.ensure([plan])} == {"partitions", "retention.ms"})
    assert admin.describe([topic], with_configs=True)[topic].configs["retention.ms"] == "-1"
    less = TopicPlan(topic, 3, configs={"retention.ms": "1000"}, at_least=("partitions",))
    assert not any(d.enough for d in admin.ensure([less]))


def test_partition_counts_and_replication_are_never_changed(admin: Admin, topics: MakeTopic) -> None:
    """They are reported with the reason, whatever was told."""
    topic = topics("counts", 2)
    differences = admin.ensure([TopicPlan(topic, 4, replication=3)], create=True, change=True)
    assert [(d.setting, d.done) for d in differences] == [("partitions", False), ("replication", False)]
    assert all(d.note for d in differences)
    assert admin.describe([topic])[topic].partitions == 2


def test_a_setting_the_brokers_refuse_is_an_error(admin: Admin, topics: MakeTopic) -> None:
    """A value that makes no sense stops with the brokers' own words."""
    topic = topics("refused")
    with pytest.raises(ConfigError, match=r"retention\.ms"):
        admin.ensure([TopicPlan(topic, 1, configs={"retention.ms": "soon"})], change=True)


def test_ends_are_asked_of_the_brokers(admin: Admin, kafka_settings: KafkaSettings, topics: MakeTopic) -> None:
    """Earliest, high watermark and last stable offset of many partitions at once, markers included."""
    topic = topics("ends", 2)
    append(kafka_settings, topic, 0, [b"a", b"b"])
    transaction(kafka_settings, topic, 1, commit=True, partition=1)
    places = [(topic, 0), (topic, 1)]
    until(lambda: admin.offsets.high_watermarks(places) == {(topic, 0): 2, (topic, 1): 2})
    until(lambda: admin.offsets.last_stable_offsets(places) == {(topic, 0): 2, (topic, 1): 2})
    assert admin.offsets.earliest(places) == {(topic, 0): 0, (topic, 1): 0}
    assert admin.offsets.high_watermarks([]) == {}


def test_offsets_at_a_time(admin: Admin, kafka_settings: KafkaSettings, topics: MakeTopic) -> None:
    """The first offset at or after a time; BEYOND_END where there is none."""
    topic = topics("times")
    append(kafka_settings, topic, 0, [b"a"])
    time.sleep(0.05)  # so that the three times differ
    between_ms = int(time.time() * 1000)
    time.sleep(0.05)
    append(kafka_settings, topic, 0, [b"b"])
    place = (topic, 0)
    assert admin.offsets.at_time([place], 0) == {place: 0}
    assert admin.offsets.at_time([place], between_ms) == {place: 1}
    assert admin.offsets.at_time([place], between_ms + 3_600_000) == {place: BEYOND_END}
    first_ms = admin.offsets.first_times([place])[place]
    assert between_ms - 60_000 < first_ms < between_ms


def test_the_time_of_the_first_record_that_is_held(
    admin: Admin, kafka_settings: KafkaSettings, topics: MakeTopic
) -> None:
    """-1 without any; after records were deleted, that of the first that is left."""
    topic = topics("first")
    place = (topic, 0)
    assert admin.offsets.first_times([place]) == {place: -1}
    append(kafka_settings, topic, 0, [b"a"])
    first_ms = admin.offsets.first_times([place])[place]
    time.sleep(0.05)  # so that the two times differ
    append(kafka_settings, topic, 0, [b"b"])
    assert admin.offsets.first_times([place])[place] == first_ms
    plain = AdminClient({"bootstrap.servers": kafka_settings.bootstrap})
    deleted = plain.delete_records([TopicPartition(topic, 0, 1)])
    assert [future.result().low_watermark for future in deleted.values()] == [1]
    assert admin.offsets.first_times([place])[place] > first_ms


def test_questions_about_what_does_not_exist_name_it(admin: Admin) -> None:
    """A partition without a leader, a missing one included, is named; both are errors to retry, as is no broker."""
    with pytest.raises(RetryLater, match="no-such-topic partition 0"):
        admin.offsets.high_watermarks([("no-such-topic", 0)])
    nowhere = KafkaSettings({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        OffsetQueries(nowhere, request_timeout_s=0.3).high_watermarks([("any", 0)])
    with pytest.raises(BrokerUnreachable, match=r"127\.0\.0\.1:1"):
        Admin(nowhere, request_timeout_s=0.3).describe(["any"])


def test_where_nobody_listens_is_told_before_the_time_is_up() -> None:
    """Connections refused, and names that do not resolve; not where one of the addresses may be a broker."""
    free = f"127.0.0.1:{free_port()}"
    nowhere = KafkaSettings({"bootstrap.servers": f"{free},nowhere.invalid:9092"})
    with pytest.raises(BrokerUnreachable, match=f"{free} refuses connections: .*nowhere.invalid does not resolve"):
        Admin(nowhere, request_timeout_s=3600.0).describe(["any"])
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"127.0.0.1:{silent.getsockname()[1]}"
        assert KafkaSettings({"bootstrap.servers": f"{free},{address}"}).why_not_understood() == ""


def test_an_answer_without_an_offset_is_none(admin: Admin, topics: MakeTopic, monkeypatch: pytest.MonkeyPatch) -> None:
    """librdkafka may give -1001, or the question itself, and no error: never an end of a partition."""

    class Broken(Consumer):
        """Gets such an answer for the second partition."""

        broken: int | None = None

        def offsets_for_times(self, partitions: list[TopicPartition], timeout: float = -1) -> list[TopicPartition]:
            found = super().offsets_for_times(partitions, timeout)
            if self.broken is not None:
                found[-1].offset = self.broken
            return found

    monkeypatch.setattr(ends, "Consumer", Broken)
    topic = topics("broken", 2)
    places = [(topic, 0), (topic, 1)]
    queries = OffsetQueries(admin.offsets._settings)
    until(lambda: queries.high_watermarks_known([(topic, 0)])[0])
    for Broken.broken in (OFFSET_INVALID, OFFSET_END):
        known, failed = queries.high_watermarks_known(places)
        assert (known, type(failed[topic, 1])) == ({(topic, 0): 0}, RetryLater)
        with pytest.raises(RetryLater, match=f"{topic} partition 1: no answer"):
            queries.high_watermarks(places)
    Broken.broken = None
    assert queries.high_watermarks(places) == dict.fromkeys(places, 0)


def test_end_watch_reads_the_clock_before_it_asks(
    admin: Admin, kafka_settings: KafkaSettings, topics: MakeTopic
) -> None:
    """Each answer carries a time at which the high watermark was not yet larger than it says."""
    topic = topics("watch")
    times = iter(range(1000, 1_000_000, 1000))
    watch = EndWatch(admin.offsets, lambda: next(times), [(topic, 0)])
    assert watch.snapshot == {}
    assert watch.ask() == {(topic, 0): (1000, 0)}
    kept = watch.snapshot
    append(kafka_settings, topic, 0, [b"a"])
    assert watch.ask() == {(topic, 0): (2000, 1)}
    assert kept == {(topic, 0): (1000, 0)}


def test_end_watch_keeps_the_old_answer_with_its_old_time(admin: Admin, topics: MakeTopic) -> None:
    """Where no answer comes, time stands still; what is no longer watched disappears."""

    class Mute(OffsetQueries):
        """Answers only while told to."""

        mute = False

        def high_watermarks_known(
            self, places: Iterable[TopicAndPartition]
        ) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, Any]]:
            return ({}, {}) if self.mute else admin.offsets.high_watermarks_known(places)

    topic = topics("mute", 2)
    queries = Mute.__new__(Mute)
    times = iter(range(1000, 1_000_000, 1000))
    watch = EndWatch(queries, lambda: next(times), [(topic, 0), (topic, 1)])
    known = dict(until(lambda: len(watch.ask()) == 2 and watch.snapshot))
    queries.mute = True
    assert watch.ask() == known
    watch.watch([(topic, 1)])
    assert watch.ask() == {(topic, 1): known[topic, 1]}


def test_end_watch_asks_in_the_background_and_stops(admin: Admin, topics: MakeTopic) -> None:
    """Times move on by themselves, new partitions appear at once, and the thread ends."""
    topic = topics("background", 2)
    with watching(EndWatch(admin.offsets, lambda: time.monotonic_ns(), [(topic, 0)], period_s=0.05)) as watch:
        first = until(lambda: watch.snapshot.get((topic, 0)))
        until(lambda: watch.snapshot[topic, 0].asked_at_ms > first.asked_at_ms)
        watch.watch([(topic, 1)])
        until(lambda: (topic, 1) in watch.snapshot and (topic, 0) not in watch.snapshot)
    assert not [t for t in threading.enumerate() if t.name == "end-watch"]


def test_end_watch_tells_what_will_not_pass_by_itself() -> None:
    """A right that is lacking is raised by `check`, so that standing still has a reason; a lost broker is not."""
    errors = {("a", 0): BrokerUnreachable("gone"), ("a", 1): NotAuthorised("no right")}

    class Failing(OffsetQueries):
        """Never answers."""

        def __init__(self) -> None:
            self.failed = dict(errors)

        def high_watermarks_known(
            self, places: object
        ) -> tuple[dict[TopicAndPartition, int], dict[TopicAndPartition, Any]]:
            return {}, self.failed

    queries = Failing()
    watch = EndWatch(queries, lambda: 0, list(errors))
    watch.check()
    assert watch.ask() == {}
    with pytest.raises(NotAuthorised, match="no right"):
        watch.check()
    del queries.failed["a", 1]
    watch.ask()
    watch.check()


def test_topic_watch_notices_deletion_and_recreation(admin: Admin, topics: MakeTopic, kafka: str) -> None:
    """A deleted topic is missing; one made again under its name has another id."""
    topic = topics("recreate")
    watch = TopicWatch(admin, [admin.describe([topic])[topic]], period_s=0.05)
    for _ in range(3):
        answered_s = watch.answered_s
        until(lambda: watch.check() or watch.answered_s > answered_s)  # noqa: B023
    delete_topics(kafka, [topic])
    raises_within(TopicMissing, watch.check)
    admin.create([TopicPlan(topic, 1)])
    error = raises_within(TopicRecreated, watch.check)
    assert topic in str(error)
    assert admin.describe([topic])[topic].id.hex() in str(error)
