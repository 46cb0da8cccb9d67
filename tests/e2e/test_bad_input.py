"""Any bytes on the input topics of a real Kafka: dead letters that name the record, and nothing else disturbed."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from structlog.testing import capture_logs

from stream_learner.adapters.telemetry import metric_names as names
from stream_learner.adapters.telemetry.metrics import Metrics
from stream_learner.errors import Stop, TooManyBadRecords
from stream_learner.roles.joiner.role import JoinerRole
from tests.cli_e2e.scraped import values_of
from tests.e2e.checks import assert_balance, assert_log_equals, balance_of
from tests.e2e.conftest import MakeSite
from tests.e2e.processes import process_of
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.oracles import loop
from tests.scenarios import Message, Scenario, records, scenario
from tests.suite.share import cases

LIMIT_BYTES = 4_000
MANY = 2_000
MANY_BYTES = 100_000
SIDES = ["impressions", "clicks"]


def spoilt(made: Scenario, seed: int) -> Scenario:
    """The scenario with records among its own that are no events: random bytes, cut off, huge, without a value."""
    rng = random.Random(seed)

    def bad(message: Message) -> bytes | None:
        body = message.value or b"{}"
        kinds = [
            None,
            b"",
            rng.randbytes(rng.randrange(1, 300)),
            body[: rng.randrange(len(body))],
            body + b"}",
            body.replace(b'"', b"'"),
            b'\xff{"id":"x"}',
            b'{"id":"\xc3("}',
            b"\x00" * rng.randrange(1, 100),
            b'{"id":"x","site":"' + b"y" * rng.choice([LIMIT_BYTES, 300_000, 3_000_000]) + b'"}',
            b"[" * 3_000,
        ]
        return rng.choice(kinds)

    def mixed(part: list[Message]) -> list[Message]:
        out: list[Message] = []
        for message in made.before_sentinels(part):
            if rng.random() < 0.2:
                out.append(message._replace(value=bad(message)))
            out.append(message)
        return [*out, *made.sentinels(part)]

    return replace(made, impressions=[*map(mixed, made.impressions)], clicks=[*map(mixed, made.clicks)])


def dead_of(site: Site) -> dict[tuple[str, int, int], bytes | None]:
    """The records that must become dead letters: topic, partition, offset and bytes."""
    s, made = site.scenario.settings, site.scenario
    dead = {}
    for topic, parts, read in (
        (site.impressions, made.impressions, loop.read_impression),
        (site.clicks, made.clicks, loop.read_click),
    ):
        for partition, part in enumerate(records(parts)):
            for record in part:
                if read(record, s).time_ms is None:
                    dead[topic, partition, record.offset] = record.value
    return dead


def test_bytes_that_are_no_events_become_dead_letters_and_disturb_nothing(make_site: MakeSite) -> None:
    """Each once, with topic, partition, offset and reason, under a key of its own; all else is as the oracle says."""
    made = spoilt(scenario("plain").with_settings(limit_bytes=LIMIT_BYTES), seed=7)
    site = make_site(made)
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    assert_log_equals(site, made.expected())
    assert_balance(site)
    found = {}
    for partition in range(site.partitions):
        for _, key, value, headers in site.records(site.config.dead_letters_topic, partition):
            named = {name: text.decode() for name, text in headers}
            place = named["topic"], int(named["partition"]), int(named["offset"])
            assert place not in found
            assert key.decode() == "/".join(map(str, place))
            assert named["reason"]
            assert int(named["time_ms"]) == timestamp_of(site, place)
            found[place] = value
    assert found == dead_of(site)
    assert len(found) > 100


def timestamp_of(site: Site, place: tuple[str, int, int]) -> int:
    """The timestamp of an input record."""
    topic, partition, offset = place
    parts = site.scenario.impressions if topic == site.impressions else site.scenario.clicks
    return parts[partition][offset].timestamp_ms


def test_a_dead_record_too_long_for_a_letter_is_cut_and_says_so(make_site: MakeSite) -> None:
    """The tick that counts it is made all the same."""
    site = make_site(scenario("plain", 1))
    site.append(site.impressions, 0, b"x" * (10 << 20))
    site.append(site.impressions, 0, b'{"id":"x","price":1e400}')
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    (_, _, value, headers), (_, _, _, beyond) = list(site.records(site.config.dead_letters_topic, 0))
    assert value == b"x" * (8 << 20)
    assert dict(headers)["value_bytes"] == b"%d" % (10 << 20)
    assert dict(beyond)["reason"] == b"a number is beyond float64"
    assert balance_of(site).impressions.dead == 2


def test_a_dead_letter_topic_that_takes_no_letters_stops_the_joiner(make_site: MakeSite) -> None:
    """Trying again would never end: the error names the topic, and no tick that counts the record is made."""
    site = make_site(scenario("plain", 1))
    site.append(site.impressions, 0, b"x" * 5_000)
    site.produce()
    set_topic(site, site.config.dead_letters_topic, "max.message.bytes", "100")  # less than its headers
    error = failure_of(site.joiner(), Stop)
    assert site.config.dead_letters_topic in str(error)
    assert "max.message.bytes" in error.action
    assert balance_of(site).impressions.dead == 0


def set_topic(site: Site, topic: str, name: str, value: str) -> None:
    """Change a setting of a topic, and wait until the broker says so."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for answer in site.plain_admin.incremental_alter_configs([resource]).values():
        answer.result()
    wait_until(lambda: site.admin.describe([topic], with_configs=True)[topic].configs[name] == value, "it is set")


@pytest.mark.parametrize("side", cases(SIDES, SIDES[:1]))
def test_dead_records_flow_through_a_joiner_without_being_held(side: str, make_site: MakeSite) -> None:
    """200 MB of them, which no mark counts before all are read: memory grows by a fraction of that, each has its letter
    and is counted; a joiner that begins again needs no more, and writes no letter twice.
    """
    site = make_site(scenario("plain", 1), join={"buffer": "4MiB"})
    topic = getattr(site, side)
    with process_of(site, "join") as joiner:
        joiner.wait_for("partition_begun")
        before = peak_rss(joiner.pid)
        for first in range(0, MANY, 200):
            site.append(topic, 0, *[b"%06d" % number + b"x" * MANY_BYTES for number in range(first, first + 200)])
        site.produce()
        wait_until(site.closed, "every partition closed")
        assert peak_rss(joiner.pid) - before < MANY * MANY_BYTES / 2
    assert getattr(balance_of(site), side).dead == MANY
    assert letters_of(site) == [(topic, 0, offset) for offset in range(MANY)]
    with process_of(site, "join") as joiner:
        joiner.wait_for("partition_resumed")
        assert peak_rss(joiner.pid) - before < MANY * MANY_BYTES / 2
    metrics = Metrics(site.model)
    with running(site.joiner(metrics=metrics)):
        wait_until(lambda: values_of(metrics.text().decode()).get(("joiner_attempts_total", "")), "an attempt")
    assert values_of(metrics.text().decode())["joiner_dead_letter_bytes", ""] == 0
    assert len(letters_of(site)) == MANY


def peak_rss(pid: int) -> int:
    """The most memory that a process has had so far, bytes."""
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("VmHWM:"))
    return int(line.split()[1]) << 10


def letters_of(site: Site) -> list[tuple[str, int, int]]:
    """The records that have letters: topic, partition, offset, rising, once for each letter."""
    keys = [
        key.decode().rsplit("/", 2)
        for partition in range(site.partitions)
        for _, key, _, _ in site.records(site.config.dead_letters_topic, partition)
    ]
    return sorted((topic, int(partition), int(offset)) for topic, partition, offset in keys)


def send_something_else(site: Site, topic: str, partition: int, count: int) -> None:
    """Records that are no events, as old as the first event: a joiner begins with the impressions whose clicks are
    there, and goes by the timestamps of the records."""
    first_ms = site.scenario.impressions[partition][0].timestamp_ms
    site.send(topic, partition, [Message(first_ms, b"bad", b"something else")] * count)


@pytest.mark.parametrize("side", cases(SIDES, SIDES[:1]))
def test_too_many_bad_records_stop_the_joiner_again_and_again(side: str, make_site: MakeSite) -> None:
    """A topic of something else is not drained into the dead letters: the joiner stops and says how many, and where;
    the letters are there when it does, and those of what it read after that are not. To drop the records all the same
    takes another setting.
    """
    site = make_site(scenario("plain", 1), join={"max_bad_share": 0.1, "on_bad_share": "stop"})
    topic = getattr(site, side)
    send_something_else(site, topic, 0, 5_000)
    site.produce(0, 0.05)  # too few good ones to tell that the bad ones are over
    errors = [failure_of(site.joiner(), TooManyBadRecords) for _ in range(2)]
    for error in errors:
        assert topic in str(error)
        assert "10%" in str(error)
        assert "on_bad_share" in error.action
    latest = int(str(errors[0]).partition(" at offset ")[2].partition(" ")[0])
    assert {offset for _, _, offset in letters_of(site)} >= set(range(latest + 1))
    assert len(set(letters_of(site))) < 5_000
    site.produce(0.05, 1)
    with running(site.joiner(site.changed(join={"max_bad_share": 1.0}))):
        wait_until(site.closed, "every partition closed")
    assert getattr(balance_of(site), side).dead == 5_000
    assert set(letters_of(site)) == {(topic, 0, offset) for offset in range(5_000)}


@pytest.mark.parametrize("partitions", cases([1, 4], [4]))
@pytest.mark.parametrize("side", cases(SIDES, SIDES[:1]))
def test_once_the_producer_is_mended_the_bad_records_before_are_passed(
    side: str, partitions: int, make_site: MakeSite
) -> None:
    """The joiner stops while the newest records are bad. Started again when they are right, it goes on by itself: each
    bad one is counted and has its letter, and the rest is as the oracle says. How many are new in one partition alone
    does not matter.
    """
    made = scenario("plain", partitions)
    site = make_site(made, join={"max_bad_share": 0.1, "on_bad_share": "stop"})
    topic = getattr(site, side)
    for partition in range(partitions):
        send_something_else(site, topic, partition, 3_000)
    failure_of(site.joiner(), TooManyBadRecords)
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    assert getattr(balance_of(site), side).dead == 3_000 * partitions
    bad = {(topic, partition, offset) for partition in range(partitions) for offset in range(3_000)}
    assert set(letters_of(site)) == bad
    assert_learned(site, made, side)


@pytest.mark.parametrize("side", cases(SIDES, SIDES[:1]))
def test_too_many_bad_records_hold_the_joiner_until_the_newest_are_right(side: str, make_site: MakeSite) -> None:
    """It says so, is alive and not ready, and appends nothing; the letters are there. A joiner that takes its place
    holds as well. Once the producer is mended it goes on by itself, and the examples are the oracle's.
    """
    made = scenario("plain", 2)
    site = make_site(made, join={"max_bad_share": 0.1})
    topic = getattr(site, side)
    for partition in range(2):
        send_something_else(site, topic, partition, 3_000)
    site.produce(0, 0.05)
    for _ in range(2):
        joiner, metrics = held_joiner(site)
        with running(joiner):
            wait_until(lambda metrics=metrics: held_partitions(site, metrics) == 2, "both partitions are held")
            assert topic in joiner.why_not_ready
            assert "10%" in joiner.why_not_ready
            held = letters_of(site)
            assert {partition for _, partition, _ in held} == {0, 1}
    assert sum(len(log.examples()) for log in site.logs()) == 0
    joiner, metrics = held_joiner(site)
    with running(joiner):
        wait_until(lambda: held_partitions(site, metrics) == 2, "both partitions are held")
        site.produce(0.05, 1)
        wait_until(site.closed, "every partition closed")
        assert joiner.why_not_ready == ""
    assert getattr(balance_of(site), side).dead == 6_000
    assert set(letters_of(site)) == {(topic, partition, offset) for partition in range(2) for offset in range(3_000)}
    assert_learned(site, made, side)


@pytest.mark.parametrize("side", cases(SIDES, SIDES[:1]))
def test_bad_records_between_right_ones_are_passed_though_all_is_read_at_once(side: str, make_site: MakeSite) -> None:
    """A joiner that comes when the producer is mended already, with all there is in one batch: nothing newer may ever
    come to show that the newest are right.
    """
    made = scenario("plain", 1)
    site = make_site(made, join={"max_bad_share": 0.1})
    topic = getattr(site, side)
    site.produce(0, 0.02)
    send_something_else(site, topic, 0, 500)
    site.produce(0.02, 1)
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    assert getattr(balance_of(site), side).dead == 500
    assert len(set(letters_of(site))) == 500
    assert_learned(site, made, side)


def assert_learned(site: Site, made: Scenario, side: str) -> None:
    """All examples that the oracle makes are there; but where clicks could not be read, no impression that they may
    belong to is learned as if nobody had clicked: it is late.
    """
    found = [log.marks for log in site.logs()]
    late = sum(mark.counts.impressions.late for marks in found for mark in marks)
    examples = sum(len(log.examples()) for log in site.logs())
    wanted = [joined.impressions for joined in made.expected()]
    assert examples + late == sum(joined["examples"] + joined["late"] for joined in wanted)
    if side == "impressions":
        assert late == sum(joined["late"] for joined in wanted)
        return
    for marks, messages in zip(found, made.clicks, strict=True):
        first_ms = min(message.timestamp_ms for message in messages)
        assert marks[-1].labels_from_ms >= first_ms, "impressions before the first right click have no label"


def held_joiner(site: Site) -> tuple[JoinerRole, Metrics]:
    """A joiner and its metrics."""
    metrics = Metrics(site.model)
    return site.joiner(metrics=metrics), metrics


def held_partitions(site: Site, metrics: Metrics) -> float:
    """How many partitions the joiner says are not read."""
    line = f'{names.JOINER_UNREAD.full_name}{{model="{site.model}"}} '
    found = [text for text in metrics.text().decode().splitlines() if text.startswith(line)]
    return float(found[0].split()[-1]) if found else 0.0


@pytest.mark.parametrize("side", cases(SIDES, SIDES[:1]))
def test_too_many_bad_records_may_be_dropped(side: str, make_site: MakeSite) -> None:
    """`drop` goes on whatever the share is; each bad record is counted and has one letter, the rest is the oracle's."""
    made = scenario("plain", 1)
    site = make_site(made, join={"max_bad_share": 0.1, "on_bad_share": "drop"})
    topic = getattr(site, side)
    send_something_else(site, topic, 0, 3_000)
    with capture_logs() as logged, running(site.joiner()):
        site.produce(0, 0.05)
        wait_until(lambda: len(letters_of(site)) == 3_000, "every letter")
        site.produce(0.05, 1)
        wait_until(site.closed, "every partition closed")
    assert [event["topic"] for event in logged if event["event"] == "bad_records_dropped"] == [topic]
    assert letters_of(site) == [(topic, 0, offset) for offset in range(3_000)]
    assert getattr(balance_of(site), side).dead == 3_000
    assert len(site.log(0).examples()) == len(made.expected()[0].examples)


def test_a_tolerable_share_of_bad_records_does_not_stop_the_joiner(make_site: MakeSite) -> None:
    """Below the limit they are counted, and that is all."""
    site = make_site(spoilt(scenario("plain"), seed=3), join={"max_bad_share": 0.5})
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    assert_balance(site)


def test_clicks_without_impressions_are_said_with_what_their_share_is_a_sign_of(make_site: MakeSite) -> None:
    """Once a thousand are final: in a topic of one partition no partitioner is to blame."""
    made = scenario("plain", 1)
    site = make_site(made)
    first = made.clicks[0][0]
    site.send(site.clicks, 0, [first._replace(value=b'{"id": "nobody-%d"}' % number) for number in range(1_500)])
    site.produce()
    with capture_logs() as logged, running(site.joiner()):
        wait_until(site.closed, "every partition closed")
        wait_until(lambda: any(event["event"] == "many_orphans" for event in logged), "it says so")
    (said,) = (event for event in logged if event["event"] == "many_orphans")
    assert said["matched_share"] < 0.5
    assert "murmur2" not in said["note"]
    assert "join.window" in said["note"] or "other ids" in said["note"]
