"""`doctor` on a real Kafka: mistakes of a first day, each told with its cause and nothing else; and healthy topics."""

from __future__ import annotations

import json
import time
import zlib
from typing import Any

import pytest

from stream_learner.operations.doctor.findings import Finding
from stream_learner.operations.doctor.run import Report, doctor
from stream_learner.operations.doctor.sample import Limits
from tests.conftest import MakeTopic
from tests.operations.doctor import site as sites
from tests.operations.doctor.site import Happened, Site, by_user, click, configuration, impression, iso, produce

MONTH_MS, HOUR_MS = 30 * 86_400_000, 3_600_000
SITE = Site()


def changed(event: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """An event with other fields."""
    return {**event, **fields}


def other_site(one: Happened) -> dict[str, Any]:
    """Half of the clicks are of a site whose impressions are elsewhere."""
    if one.number % 2:
        return click(one)
    return changed(click(one), site="sport", ref={"impression_id": f"s{one.id}"})


def sometimes_null(one: Happened) -> dict[str, Any] | None:
    """A quarter of the impressions are deleted."""
    return None if one.number % 4 == 0 else impression(one)


def avro(one: Happened) -> bytes:
    """What a serializer of a schema registry writes."""
    return b"\0\0\0\0\x2a" + json.dumps(click(one)).encode()[::-1]


MISTAKES: dict[str, tuple[Site, str, str, tuple[str, ...]]] = {
    "the click's id is another field": (
        SITE.with_settings('input.clicks.id="event"'),
        "id_fields",
        "input.clicks.id: ref.impression_id",
        ("0 of", "`event`", "`ref.impression_id`"),
    ),
    "the path of the id is not there": (
        SITE.with_settings('input.impressions.id="id"'),
        "impressions_id",
        "input.impressions.id: imp.id",
        ("0 of 600", "`imp.id`"),
    ),
    "keys of another field": (
        SITE.with_impressions(key=by_user),
        "keys_differ",
        "the same key in both",
        ("`user.id`", "`ref.impression_id`", "CRC32"),
    ),
    "no keys": (SITE.with_clicks(key=lambda one: None), "no_keys", "the producer of clicks", ("100 %",)),
    "murmur2 against CRC32": (
        SITE.with_impressions(partitioner="murmur2_random"),
        "partitioners_differ",
        "partitioner=murmur2_random",
        ("murmur2 (Java's default)", "CRC32 (librdkafka's default)"),
    ),
    "partition counts differ": (
        SITE.with_clicks(partitions=3),
        "partition_counts",
        "copy one input",
        ("4 partitions", "3"),
    ),
    "seconds read as milliseconds": (
        SITE.with_settings('input.impressions.time_unit="iso"', 'input.clicks.time_unit="ms"'),
        "clicks_time_unit",
        "input.clicks.time_unit: s",
        ("1970-01-21", "read as s it is 20"),
    ),
    "text with the unit ms": (
        SITE.with_settings('input.impressions.time_unit="ms"'),
        "impressions_time_unit",
        "input.impressions.time_unit: iso",
        ("no time",),
    ),
    "milliseconds read as seconds": (
        SITE.with_clicks(write=lambda one: changed(click(one), at=one.time_ms)).with_settings(
            'input.impressions.time_unit="iso"', 'input.clicks.time_unit="s"'
        ),
        "clicks_time_unit",
        "input.clicks.time_unit: ms",
        ("no time", "read as ms it is 20"),
    ),
    "local time without a zone": (
        SITE.with_impressions(write=lambda one: changed(impression(one), ts=iso(one.time_ms + 7_200_000)[:-1])),
        "impressions_time_ahead",
        "zone",
        ("100 %", "120 min"),
    ),
    "ids of different types": (
        SITE.with_impressions(
            write=lambda one: changed(impression(one), imp={"id": 10**9 + one.number, "slot": 1})
        ).with_clicks(write=lambda one: changed(click(one), ref={"impression_id": float(10**9 + one.number)})),
        "clicks_id",
        "write the id as text",
        ("neither text nor whole numbers", ".0"),
    ),
    "ids in other letters": (
        SITE.with_clicks(write=lambda one: changed(click(one), ref={"impression_id": one.id.lower()})),
        "id_forms",
        "write the id as the other does",
        ("upper and lower case",),
    ),
    "nulls": (SITE.with_impressions(write=sometimes_null), "impressions_null", "join.max_bad_share", ("25 %",)),
    "a schema registry's frame": (
        SITE.with_clicks(write=avro),
        "clicks_framed",
        "input.clicks.format: avro (or protobuf), and registry.url",
        ("schema id 42", "100 %"),
    ),
    "clicks of another site": (
        SITE.with_clicks(write=other_site),
        "matches",
        "input.clicks.topic",
        ("`site` 'sport'",),
    ),
    "retention too short": (
        SITE.with_impressions(configs={"retention.ms": "600000"}),
        "impressions_retention",
        "retention.ms:",
        ("10 min", "46 min"),
    ),
    "topics that keep the last event of each key": (
        SITE.with_impressions(key=by_user, configs={"cleanup.policy": "compact"}).with_clicks(key=by_user),
        "compacted",
        "cleanup.policy of impressions",
        ("has cleanup.policy compact", "a user's earlier impressions"),
    ),
    "a number without a scale": (
        SITE.with_settings('features.categorical=["imp.slot", "ad.id"]', "features.key_rule=2"),
        "number_without_scale",
        "features.categorical: [device.w]",
        ("`device.w`", "1440"),
    ),
    "the window is shorter than delays": (
        SITE.with_settings('join.window="2s"', 'join.skew="1s"'),
        "window",
        "join.window: ",
        ("covers", "95 %"),
    ),
    "clocks of the producers disagree": (
        SITE.with_clicks(write=lambda one: changed(click(one), at=one.time_ms / 1000 - 60)),
        "clocks_differ",
        "join.skew",
        ("before their impression",),
    ),
    "a clock three hours behind": (
        SITE.with_impressions(write=lambda one: changed(impression(one), ts=iso(one.time_ms - 3 * HOUR_MS))),
        "clocks_differ",
        "the clock or the zone of the producer of impressions",
        ("`ts` of impressions", "lies 3 h before its record's timestamp", "lies 50 ms before", "100 % of them"),
    ),
    "seconds and milliseconds in one topic": (
        SITE.with_clicks(
            write=lambda one: changed(click(one), at=one.time_ms / (1000 if one.number % 10 < 3 else 1))
        ).with_settings('input.clicks.time_unit="ms"'),
        "clicks_time_units",
        "input.clicks.time_unit: auto",
        ("in several units", "in s, such as 17", "in ms, such as 17"),
    ),
    "partitions that the producer names": (
        SITE.with_clicks(partition=lambda one: one.number % 4),
        "partitions_chosen",
        "which names partitions itself or has a partitioner of its own",
        ("no known partitioner", "by no known partitioner of the key or a field"),
    ),
    "partitions by another field than the key": (
        SITE.with_clicks(partition=lambda one: zlib.crc32(by_user(one)) % 4),
        "partitioners_differ",
        "partitioner",
        ("placed CRC32 (librdkafka's default) of `user.id`",),
    ),
    "a third of the ids is null": (
        SITE.with_clicks(
            write=lambda one: changed(click(one), ref={"impression_id": one.id if one.number % 3 else None})
        ),
        "clicks_id",
        "the producer: an id in every event; or join.max_bad_share above 3",
        ("`ref.impression_id`",),
    ),
    "a third of the times is null": (
        SITE.with_clicks(write=lambda one: changed(click(one), at=one.time_ms / 1000 if one.number % 3 else None)),
        "clicks_time_missing",
        "input.clicks.time: null",
        ("have a `at`",),
    ),
    "times of records, not of events": (
        SITE.with_impressions(delay_ms=MONTH_MS).with_settings("input.impressions.time=null"),
        "impressions_record_time",
        "input.impressions.time: ts",
        ("`ts`", "30 d"),
    ),
    "a request's id among the features": (
        SITE.with_impressions(write=lambda one: changed(impression(one), bid={"req": f"r{one.number}"})),
        "unique_field",
        "features.exclude: [bid.req]",
        ("`bid.req`", "600 distinct"),
    ),
    "a label among the features": (
        SITE.with_impressions(
            write=lambda one: changed(impression(one), outcome=one.number in {c.number for c in sites.happened(0)[1]})
        ),
        "label_leaks",
        "features.exclude: [outcome]",
        ("`outcome`",),
    ),
}

PLACED = {"murmur2_random": "murmur2", "consistent_random": "CRC32", "fnv1a_random": "FNV-1a"}
"""The words for each partitioner of librdkafka."""
HEALTHY: dict[str, Site] = {
    "keyed by the id, Sarama's partitioner": SITE.with_impressions(partitioner="fnv1a_random").with_clicks(
        partitioner="fnv1a_random"
    ),
    "keyed by the id, times of records": SITE.with_settings(
        "input.impressions.time=null", "input.clicks.time=null", 'features.exclude=["ts"]'
    ),
    "keyed by the user": SITE.with_impressions(key=by_user).with_clicks(key=by_user),
    "keyed by the user, Java's partitioner": SITE.with_impressions(
        key=by_user, partitioner="murmur2_random"
    ).with_clicks(key=by_user, partitioner="murmur2_random"),
    "ids in lists": SITE.with_impressions(
        write=lambda one: changed(impression(one), imps=[{"id": one.id, "cats": ["a", f"c{one.number % 5}"]}])
    ).with_settings(
        'input.impressions.id="imps.id"', 'features.exclude=["imp"]', 'features.categorical=["ad.id", "device.w"]'
    ),
    "times as text and as numbers": SITE.with_settings(
        'input.time_unit="ms"', 'input.impressions.time_unit="iso"', 'input.clicks.time_unit="s"'
    ),
    "a month that is replayed": SITE.with_impressions(delay_ms=MONTH_MS).with_clicks(delay_ms=MONTH_MS),
    "whole numbers against text, a few nulls": SITE.with_impressions(
        write=lambda one: (
            None if one.number == 7 else changed(impression(one), imp={"id": 10**9 + one.number, "slot": 1})
        )
    ).with_clicks(write=lambda one: changed(click(one), ref={"impression_id": str(10**9 + one.number)})),
}


def look(kafka: str, topics: MakeTopic, site: Site) -> Report:
    """Make the topics, send the events, and look."""
    names = tuple(
        topics(name, topic.partitions, **topic.configs)
        for name, topic in (("impressions", site.impressions), ("clicks", site.clicks))
    )
    now_ms = int(time.time() * 1000)
    replayed = max(site.impressions.delay_ms, site.clicks.delay_ms)
    produce(kafka, (names[0], names[1]), site, now_ms - replayed if replayed == MONTH_MS else now_ms)
    own = site.with_settings(f'model="of-{names[0]}"', f'topics.control="control-of-{names[0]}"')
    config = configuration(own, bootstrap=kafka, impressions=names[0], clicks=names[1])
    return doctor(config, Limits(), lambda text: None)


def text_of(finding: Finding) -> str:
    """All that a person reads of a finding."""
    return f"{finding.seen} {finding.means}"


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_with_its_cause_and_no_other_is(mistake: str, kafka: str, topics: MakeTopic) -> None:
    """One finding: its name, its evidence, and the line to change."""
    site, name, change, words = MISTAKES[mistake]
    report = look(kafka, topics, site)
    assert [finding.name for finding in report.findings] == [name], report.findings
    (finding,) = report.findings
    assert finding.severity in ("stops", "warns")
    assert report.in_the_way == [name] * (finding.severity == "stops")
    assert change in finding.change, finding
    assert [word for word in words if word not in text_of(finding)] == [], finding


@pytest.mark.parametrize("shape", HEALTHY)
def test_nothing_is_found_where_nothing_is_wrong(shape: str, kafka: str, topics: MakeTopic) -> None:
    """No finding at all; what was read is told, and by what field and partitioner it is keyed."""
    site = HEALTHY[shape]
    report = look(kafka, topics, site)
    assert report.findings == []
    assert [topic["records"] for topic in report.topics] == [topic["held"] for topic in report.topics]
    assert report.delays["clicks"] > 100
    for topic, written in zip(report.topics, (site.impressions, site.clicks), strict=True):
        assert f"placed {PLACED[written.partitioner]} " in topic["keys"]
        assert ("`user.id`" in topic["keys"]) == (written.key is by_user)
