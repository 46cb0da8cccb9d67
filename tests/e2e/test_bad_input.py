"""Any bytes on the input topics of a real Kafka: dead letters that name the record, and nothing else disturbed."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from stream_learner.errors import Stop, TooManyBadRecords
from tests import oracle
from tests.e2e.checks import assert_balance, assert_log_equals, balance_of
from tests.e2e.conftest import MakeSite
from tests.e2e.site import Site, failure_of, running, wait_until
from tests.scenarios import Message, Scenario, records, scenario

LIMIT_BYTES = 4_000


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
        for message in part[:-1]:
            if rng.random() < 0.2:
                out.append(message._replace(value=bad(message)))
            out.append(message)
        return [*out, part[-1]]

    return replace(made, impressions=[*map(mixed, made.impressions)], clicks=[*map(mixed, made.clicks)])


def dead_of(site: Site) -> dict[tuple[str, int, int], bytes | None]:
    """What must be dead-lettered: topic, partition, offset and the bytes."""
    s, made = site.scenario.settings, site.scenario
    dead = {}
    for topic, parts, read in (
        (site.impressions, made.impressions, oracle.read_impression),
        (site.clicks, made.clicks, oracle.read_click),
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
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    ((_, _, value, headers),) = list(site.records(site.config.dead_letters_topic, 0))
    assert value == b"x" * (8 << 20)
    assert dict(headers)["value_bytes"] == b"%d" % (10 << 20)
    assert balance_of(site).impressions.dead == 1


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
    """Change a setting of a topic."""
    entry = ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    for answer in site.plain_admin.incremental_alter_configs([resource]).values():
        answer.result()


@pytest.mark.parametrize("side", ["impressions", "clicks"])
def test_too_many_bad_records_stop_the_joiner(side: str, make_site: MakeSite) -> None:
    """A topic of something else is not drained into the dead letters: the joiner stops and says how many, and where."""
    site = make_site(scenario("plain"), join={"max_bad_share": 0.1})
    topic = getattr(site, side)
    site.append(topic, 0, *[b"something else"] * 400)  # in front: what is behind the other side is not read yet
    site.produce(0, 0.3)
    error = failure_of(site.joiner(), TooManyBadRecords)
    assert topic in str(error)
    assert "10%" in str(error)


def test_a_tolerable_share_of_bad_records_does_not_stop_the_joiner(make_site: MakeSite) -> None:
    """Below the limit they are counted, and that is all."""
    site = make_site(spoilt(scenario("plain"), seed=3), join={"max_bad_share": 0.5})
    site.produce()
    with running(site.joiner()):
        wait_until(site.closed, "every partition closed")
    assert_balance(site)
