"""What is made of a sample, without a broker: parts of a topic, rare records, what must not be taken for a mistake."""

from __future__ import annotations

import base64
import itertools
import json
import random
import re
import zlib
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_learner.operations.doctor as package
from stream_learner.adapters.kafka import Retention
from stream_learner.cli.doctor_command import _print
from stream_learner.config import load_config
from stream_learner.config.rules import doubtful
from stream_learner.config.values import DAY_MS, MINUTE_MS
from stream_learner.operations.doctor.delays import ROUND_MS, lateness_ms
from stream_learner.operations.doctor.events import side_of
from stream_learner.operations.doctor.fields import fields_of
from stream_learner.operations.doctor.findings import quantile
from stream_learner.operations.doctor.proposal import LATENESS_MS, Proposal
from stream_learner.operations.doctor.run import Report, examine, propose
from stream_learner.operations.doctor.sample import Record, TopicSample
from stream_learner.operations.doctor.times import Clock, time_fields, unit_of
from stream_learner.roles.common.event_decoders import EventForms
from tests.operations.doctor.site import (
    EPOCH_MS,
    WEEK_MS,
    Happened,
    Site,
    click,
    configuration,
    happened,
    impression,
    iso,
    samples,
)
from tests.oracles.events import Click, Impression
from tests.oracles.join import join_by_log_time
from tests.oracles.schema_events import Shape, avro_bytes, avro_schema, proto_bytes, proto_file
from tests.schema_registry import SchemaRegistry, running_registry

PAGE = (Path(__file__).parents[3] / "docs" / "doctor.md").read_text(encoding="utf-8")
Change = Callable[[TopicSample], TopicSample]


def same(sample: TopicSample) -> TopicSample:
    """Nothing is changed."""
    return sample


def report_of(site: Site, impressions: Change = same, clicks: Change = same) -> Report:
    """The report on a site, with samples that are changed before."""
    first, second = samples(site)
    config = configuration(site)
    return examine(config, side_of("impressions", impressions(first)), side_of("clicks", clicks(second)))


OF_IMPRESSIONS: Shape = {
    "imp": {"id": "text", "slot": "long"},
    "ts": "text",
    "device": {"os": "text", "w": "long"},
    "price": "double",
    "user": {"id": "text"},
    "site": "text",
    "ad": {"id": "long"},
}
OF_CLICKS: Shape = {
    "event": "text",
    "ref": {"impression_id": "text"},
    "at": "double",
    "user": {"id": "text"},
    "site": "text",
}


def formatted(site: Site, registry: SchemaRegistry, impressions: Change = same, clicks: Change = same) -> Report:
    """The report on a site whose impressions are Avro (schema id 1) and whose clicks are Protobuf (schema id 2)."""
    registry.ids[1] = {"schema": json.dumps(avro_schema(OF_IMPRESSIONS))}
    descriptor = base64.b64encode(proto_file(OF_CLICKS).SerializeToString()).decode()
    registry.ids[2] = {"schema": descriptor, "schemaType": "PROTOBUF"}
    of_formats = 'input.impressions.format="avro"', 'input.clicks.format="protobuf"', f'registry.url="{registry.url}"'
    config = configuration(site.with_settings(*of_formats))
    avro = each(
        lambda one: one._replace(value=b"\0\0\0\0\1" + avro_bytes(OF_IMPRESSIONS, json.loads(one.value or b"")))
    )
    proto = each(lambda one: one._replace(value=b"\0\0\0\0\2\0" + proto_bytes(OF_CLICKS, json.loads(one.value or b""))))
    (first, second), forms = samples(site), EventForms(config)
    shown = side_of("impressions", impressions(avro(first)), forms.impressions_as_json(config.feature_spec()))
    return examine(config, shown, side_of("clicks", clicks(proto(second)), forms.clicks_as_json()))


def names(report: Report) -> list[tuple[str, str]]:
    """Severity and name of all findings."""
    return [(finding.severity, finding.name) for finding in report.findings]


def each(write: Callable[[Record], Record | None]) -> Change:
    """A change of each record; None leaves it out."""

    def change(sample: TopicSample) -> TopicSample:
        blocks = [
            {
                partition: [new for one in records if (new := write(one)) is not None]
                for partition, records in block.items()
            }
            for block in sample.blocks
        ]
        return replace(sample, blocks=tuple(blocks))

    return change


def newest(count: int, of_first: int | None = None) -> Change:
    """Only so many of the newest records of each partition, of a topic that holds more. of_first: of partition 0."""

    def change(sample: TopicSample) -> TopicSample:
        counts = {0: of_first or count}
        block = {partition: records[-counts.get(partition, count) :] for partition, records in sample.blocks[0].items()}
        return replace(sample, blocks=(block,), whole=False)

    return change


def test_a_healthy_site() -> None:
    """Nothing is found; quantiles and fields are told."""
    report = report_of(Site())
    assert report.findings == [] and report.in_the_way == []
    assert 1_000 < report.delays["p50_ms"] < report.delays["p99_ms"] <= 12_000
    fields = {field["path"]: field for field in report.fields}
    assert fields["device.w"]["kind"] == "whole number" and fields["device.w"]["distinct"] == 3
    assert (fields["price"]["least"], fields["price"]["largest"], fields["site"]["kind"]) == (0.5, 2.1, "text")


def test_what_is_printed_of_a_healthy_site(capsys: pytest.CaptureFixture[str]) -> None:
    """Versions, how old the newest record is, the pairs of fields that share values, and how long clicks take."""
    last_ms = max(one.time_ms for of in samples(Site())[1].blocks[0].values() for one in of)
    report = report_of(Site(), clicks=lambda one: replace(one, read_at_ms=last_ms + 7_200_000))
    _print(report, None, fields=False)
    lines = capsys.readouterr().out.splitlines()
    assert re.fullmatch(r"versions: stream_learner \d\S*, librdkafka \d\S*, key rule 3", lines[0])
    assert "the `ref.impression_id` of 172 of 172 clicks is an impression's `imp.id`" in lines
    assert [line for line in lines if line.startswith("delays of 172 clicks: median 1 s, 90 % ")]
    assert [line for line in lines if "newest" in line] == ["  newest record 120 min before now"]
    assert [topic["newest_age_ms"] for topic in report.topics] == [None, 7_200_000]
    cut = report_of(Site(), clicks=lambda one: replace(one, read_at_ms=last_ms, cut_short=True))
    assert cut.topics[1]["newest_age_ms"] is None, "the newest was not read"
    assert report.findings == cut.findings == []
    assert report.versions == {**report.versions, "key_rule": 3} and len(report.versions) == 3


def test_the_pairs_of_fields_that_share_values(capsys: pytest.CaptureFixture[str]) -> None:
    """The one to join by first, then by how many clicks share them; five at the most, three in the text."""
    many = Site().with_impressions(write=lambda one: {**impression(one), "req": f"r{one.number}", "imp2": one.id})
    site = many.with_clicks(
        write=lambda one: {
            **click(one),
            "req": f"r{one.number}" if one.number % 3 else "none",
            "old": one.id if one.number % 3 == 1 else "none",
        }
    )
    report = report_of(site)
    shared = [(one["impressions"], one["clicks"], one["shared"] / one["of"]) for one in report.ids]
    assert shared[:2] == [("imp.id", "ref.impression_id", 1.0), ("imp2", "ref.impression_id", 1.0)]
    assert [one[:2] for one in shared[2:]] == [("req", "req"), ("imp.id", "old"), ("imp2", "old")]
    assert 0.6 < shared[2][2] < 0.7 and 0.3 < shared[3][2] == shared[4][2] < 0.4
    _print(report, None, fields=False)
    assert capsys.readouterr().out.count(" is an impression's `") == 3


@pytest.mark.parametrize(("count", "told"), [(120, []), (60, []), (10, ["matches_unknown"])])
def test_a_part_of_a_healthy_topic_is_no_mistake(count: int, told: list[str]) -> None:
    """Where it is longer than the window nothing is found; what it is too small for is told, and is no warning. A
    partition of which less was read leaves less to judge."""
    site = Site().with_settings('join.window="15s"', 'join.lateness="5m"')
    assert names(report_of(site, impressions=newest(count))) == [("tells", name) for name in told]
    assert names(report_of(site, impressions=newest(count, of_first=30))) == [("tells", "matches_unknown")]


def test_a_sample_without_the_impressions_of_its_clicks() -> None:
    """Clicks come long after their impressions, of which only the newest were read: that is said, not guessed."""
    late = Site().with_clicks(write=lambda one: {**click(one), "at": one.time_ms / 1000 + 900}, delay_ms=900_050)
    first, _ = samples(Site(), EPOCH_MS + 900_000, seed=2)
    assert names(report_of(late, impressions=lambda _: replace(first, whole=False))) == [("warns", "matches_unknown")]


def often(sample: TopicSample) -> TopicSample:
    """Each event five times, with a number of its own, as the watched quarters of a video are."""

    def of(records: list[Record]) -> list[Record]:
        events = ((one, {**json.loads(one.value or b""), "quarter": n}) for one in records for n in range(5))
        return [one._replace(value=json.dumps(event).encode()) for one, event in events]

    return replace(sample, blocks=tuple({place: of(block[place]) for place in block} for block in sample.blocks))


@pytest.mark.parametrize("clicks", [same, often, newest(30)], ids=["once", "often", "a part"])
@pytest.mark.parametrize("impressions", [same, newest(60)], ids=["whole", "a part"])
@pytest.mark.parametrize(
    "paths", [(), ("ref.impression_id", "at", "imp.id", "ts")], ids=["of the role", "of the topic"]
)
def test_topics_that_are_swapped(impressions: Change, clicks: Change, paths: tuple[str, ...]) -> None:
    """That alone is told, with the lines to change, however the paths of ids and times are configured; a model's cores
    are not. Nobody is told so of the same topics in their places."""
    of = ("impressions.id", "impressions.time", "clicks.id", "clicks.time")
    site = Site().with_settings(*(f'input.{name}="{path}"' for name, path in zip(of, paths, strict=False)))
    first, second = samples(site)
    sides = side_of("impressions", clicks(second)), side_of("clicks", impressions(first))
    report = examine(configuration(site), *sides)
    assert names(report) == [("stops", "swapped")] and report.sizing is None
    assert report.findings[0].change == (
        "input.impressions.topic: impressions, with input.impressions.id: imp.id; "
        "and input.clicks.topic: clicks, with input.clicks.id: ref.impression_id"
    )
    assert " in 100 % of them, by " in report.findings[0].seen
    assert "swapped" not in [name for _, name in names(report_of(site, impressions, clicks))]


def test_what_looks_like_swapped_topics_by_one_sign() -> None:
    """Clicks before their impressions are those of a wrong clock, where most find one; a few tell nothing."""
    early = Site().with_clicks(write=lambda one: {**click(one), "at": one.time_ms / 1000 - 60})
    assert names(report_of(early)) == [("stops", "clocks_differ")]
    first, second = samples(Site())
    few = examine(configuration(Site()), side_of("impressions", newest(3)(second)), side_of("clicks", first))
    assert "swapped" not in [name for _, name in names(few)]


def test_users_are_no_ids() -> None:
    """Where there are many users, most impressions have one of their own. Clicks that share few of them, and no id, are
    told as clicks of other impressions: nobody is told to join by the user."""

    def elsewhere(one: Happened) -> dict[str, Any]:
        user = f"u{one.number % 570}" if one.number % 5 == 0 else f"x{one.number}"
        return {**click(one), "user": {"id": user}, "ref": {"impression_id": f"s{one.id}"}}

    many = Site().with_impressions(write=lambda one: {**impression(one), "user": {"id": f"u{one.number % 570}"}})
    site = many.with_clicks(write=elsewhere).with_settings('features.exclude=["user"]')
    assert names(report_of(site)) == [("stops", "matches")]


@pytest.mark.parametrize("slow", [2, 3])
def test_slow_clicks_in_a_part_of_a_topic_are_no_mistake(slow: int) -> None:
    """Every second or third click takes 40 s more, and the sample reaches back 40 s: within the window it cannot be
    said. With a window of 15 s they are later than that, and it can."""

    def late(one: Happened) -> dict[str, Any]:
        return {**click(one), "at": (one.time_ms + (40_000 if one.number % slow == 0 else 0)) / 1000}

    site = Site().with_clicks(write=late)
    short = site.with_settings('join.window="15s"')
    assert names(report_of(site, impressions=newest(50))) == [("tells", "matches_unknown")]
    assert "matches" in [name for _, name in names(report_of(short, impressions=newest(50)))]


def test_a_moment_long_ago_is_no_time_of_an_event() -> None:
    """A field that holds times, but neither near those of the records nor rising, as when a user has registered."""
    site = Site().with_impressions(
        write=lambda one: {**impression(one), "since": iso(10**12 * 1.6 + one.number * 7919 % 601 * 10**8)}
    )
    assert [clock.path for clock in time_fields(side_of("impressions", samples(site)[0]))] == ["ts"]


def test_a_few_clicks_are_too_few_to_judge() -> None:
    """Ten clicks that find their impressions, and ten that do not: neither is called right nor wrong."""
    few = newest(3)
    wrong = Site().with_settings('input.clicks.id="event"')
    assert names(report_of(Site(), clicks=few)) == [("tells", "matches_unknown")]
    assert names(report_of(wrong, clicks=few)) == [("warns", "matches_unknown")]


def test_empty_topics_are_told() -> None:
    """Neither topic, nor one of them, must hold anything."""

    def empty(sample: TopicSample) -> TopicSample:
        return replace(sample, blocks=({0: []},), held=0)

    assert names(report_of(Site(), clicks=empty)) == [("warns", "clicks_empty")]
    assert names(report_of(Site(), empty, empty)) == [("warns", "impressions_empty"), ("warns", "clicks_empty")]


OTHERS: Mapping[str, bytes | None] = {"text": b"a,b,c", "null": None, "utf16": '{"p": 1}'.encode("utf-16-be")}


@pytest.mark.parametrize(
    ("kinds", "every", "severity"),
    [
        (["text"], 5, "stops"),
        (["text"], 30, "warns"),
        (["text"], 200, None),
        (["text", "null"], 15, "stops"),
        (["utf16"], 30, "warns"),
    ],
)
def test_records_that_are_no_objects(kinds: list[str], every: int, severity: str | None) -> None:
    """More than `join.max_bad_share` of all kinds together stop, more than one in a hundred of a kind warns, fewer are
    not told."""
    count, values = itertools.count(), dict(enumerate(OTHERS[kind] for kind in kinds))
    broken = each(lambda one: one._replace(value=values.get(next(count) % every, one.value)))
    told = names(report_of(Site(), impressions=broken))
    assert sorted(told) == ([] if severity is None else sorted((severity, f"impressions_{kind}") for kind in kinds))


@pytest.mark.parametrize(
    "site",
    [
        Site(),
        Site().with_settings('input.impressions.id="id"', 'input.clicks.id="event"'),
        Site().with_settings('input.impressions.time_unit="ms"', "features.key_rule=2", "features.categorical=[]"),
        Site().with_impressions(write=lambda one: impression(one) | {"ts": iso(one.time_ms + 7_200_000)}),
        Site().with_clicks(key=lambda one: None),
    ],
)
def test_avro_and_protobuf_are_judged_as_their_json(site: Site) -> None:
    """The same findings with the same words, of ids, times, keys and fields; `as_json` is the form of both. Only bytes
    are fewer."""
    with running_registry() as registry:
        ours, plain = formatted(site, registry), report_of(site)
    assert replace(ours, sizing=None) == replace(plain, sizing=None)
    sizes = [{**report.sizing} for report in (ours, plain) if report.sizing is not None]
    fewer = [(of.pop("event_bytes"), of.pop("needs"))[0] for of in sizes]
    assert not sizes or (fewer[0] < fewer[1] and sizes[0] == sizes[1])


def test_records_that_their_format_does_not_fit() -> None:
    """Each is told with its reason and schema id: of another length, of a schema that the registry lacks, unframed."""
    count = itertools.count()

    def broken(one: Record) -> Record:
        value = one.value or b""
        ways = {0: value[:-3], 1: b"\0\0\0\0\7" + value[5:], 2: b'{"id": "x"}'}
        return one._replace(value=ways.get(next(count) % 5, value))

    with running_registry() as registry:
        report = formatted(Site(), registry, impressions=each(broken))
    seen = {one.name: one.seen for one in report.findings if one.severity == "stops"}
    assert set(seen) == {"impressions_not_of_schema", "impressions_unusable_schema", "impressions_not_framed"}
    assert seen["impressions_not_of_schema"].startswith("20 % of 600 records of impressions cannot be read")
    assert "the bytes are not what the schema says" in seen["impressions_not_of_schema"]
    assert "(schema id 1)" in seen["impressions_not_of_schema"]
    assert "the registry has no such schema (schema id 7)" in seen["impressions_unusable_schema"]
    assert "do not begin with 0 and a schema id" in seen["impressions_not_framed"]


@pytest.mark.parametrize(
    ("behind", "change"),
    [
        (lambda value: value, "input.clicks.framed: true"),
        (lambda value: value[::-1], "input.clicks.format: avro (or protobuf), and registry.url:"),
    ],
)
def test_a_frame_is_told_with_the_settings_that_read_it(behind: Callable[[bytes], bytes], change: str) -> None:
    """Where no format is configured."""
    frame = each(lambda one: one._replace(value=b"\0\0\0\0\x2a" + behind(one.value or b"")))
    found = {one.name: one for one in report_of(Site(), clicks=frame).findings}["clicks_framed"]
    assert "are behind a schema registry: schema id 42, such as" in found.seen
    assert found.change.startswith(change)


@pytest.mark.parametrize(
    ("retention_ms", "found"),
    [
        (2_100_000, [("stops", "impressions_retention")]),
        (3_600_000, [("warns", "impressions_retention")]),
        (8_000_000, []),
        (None, []),
    ],
)
def test_retention(retention_ms: int | None, found: list[tuple[str, str]]) -> None:
    """Window, dedupe and idle_after, 45.6 minutes by default, have to be held, and an hour without a joiner."""
    report = report_of(Site(), impressions=lambda one: replace(one, retention=Retention(retention_ms, None)))
    assert names(report) == found


@pytest.mark.parametrize(
    ("kept_min", "held_min", "is_found"), [(30, 2, True), (90, 2, True), (130, 2, False), (30, 130, False)]
)
def test_retention_by_bytes(kept_min: int, held_min: int, is_found: bool) -> None:
    """By the rate of the sample, of the partition that has the most: an estimate, and so a warning at most. Where the
    topic holds more by the same rate, as with compression, that counts."""

    def limited(sample: TopicSample) -> TopicSample:
        (block,) = sample.blocks
        times = [record.time_ms for records in block.values() for record in records]
        most = max(sum(len(r.key or b"") + len(r.value or b"") + 10 for r in records) for records in block.values())
        kept = most * kept_min * 60_000 // (max(times) - min(times))
        held = sample.held * held_min * 60_000 // (max(times) - min(times))
        return replace(sample, retention=Retention(None, kept), held=held)

    report = report_of(Site(), impressions=limited)
    assert names(report) == [("warns", "impressions_retention")] * is_found
    assert all(
        "retention.bytes" in one.seen and "the topic's retention.bytes: " in one.change for one in report.findings
    )


def test_no_window_is_proposed_from_a_wrong_clock() -> None:
    """Impressions are three hours behind: the window is of the delays between records, and the clock is told."""
    site = Site().with_impressions(write=lambda one: {**impression(one), "ts": iso(one.time_ms - 10_800_000)})
    assert proposed(site)[0]["join.window"] == "15s"
    assert names(report_of(site.with_settings('join.window="6h"'))) == [("warns", "clocks_differ")]


def test_what_may_not_be_asked_for_is_told() -> None:
    """Without the right DescribeConfigs nothing is said of retention."""
    report = report_of(Site(), clicks=lambda one: replace(one, retention=None))
    assert names(report) == [("tells", "clicks_retention_unknown")]


def test_events_that_the_joiner_would_refuse() -> None:
    """By the decoder that defines it, with the words of its reason."""
    site = Site().with_settings('input.impressions.weight="price"', "input.impressions.max_weight=2.0")
    (finding,) = report_of(site).findings
    assert (finding.severity, finding.name) == ("warns", "impressions_bad_weight")
    assert "the weight is not a number from 0 to max_weight" in finding.seen


def test_impressions_that_come_late() -> None:
    """A twentieth lies a quarter of an hour behind; with as much lateness nothing is found."""
    late = Site().with_impressions(
        write=lambda one: {**impression(one), "ts": iso(one.time_ms - (900_000 if one.number % 20 == 0 else 0))}
    )
    hour = late.with_settings('join.lateness="1h"')
    found = [[one for one in report_of(site).findings if one.name == "disorder"] for site in (late, hour)]
    assert len(found[0]) == 1 and found[1] == []
    assert found[0][0].change == "join.lateness: 15m"


def is_held(one: Record) -> bool:
    return zlib.crc32(one.key or b"") % 20 == 0


def held_back(sample: TopicSample) -> TopicSample:
    """Those of one id in twenty come half a minute later than they would; of one partition."""
    records = (one._replace(time_ms=one.time_ms + 30_000 * is_held(one)) for one in sample.blocks[0][0])
    ordered = sorted(records, key=lambda one: one.time_ms)
    return replace(sample, blocks=({0: [one._replace(offset=n) for n, one in enumerate(ordered)]},))


LATE_CLICKS: dict[str, tuple[str, Change, Change, Callable[[int], int], str | None]] = {
    "in order": ("15s", same, same, lambda n: 0, None),
    "held back for longer than the window": ("15s", same, held_back, lambda n: 0, "join.window: 30s"),
    "held back within the window": ("45s", same, held_back, lambda n: 0, None),
    "held back with their impressions": ("15s", held_back, held_back, lambda n: 0, None),
    "after a batch of a clock that is ahead": ("15s", same, same, lambda n: 30_000 * (300 <= n < 400), "join.window: "),
}


@pytest.mark.parametrize("case", LATE_CLICKS)
def test_clicks_that_come_when_the_windows_of_their_impressions_are_closed(case: str) -> None:
    """Told where the oracle of the join loses more than one positive in a hundred, whatever `join.lateness` is; the
    window that is proposed loses none."""
    window, impressions, clicks, ahead_ms, change = LATE_CLICKS[case]
    site = Site().with_impressions(partitions=1)
    site = site.with_clicks(
        partitions=1, write=lambda one: {**click(one), "at": (one.time_ms + ahead_ms(one.number)) / 1000}
    )

    def judged(window: str) -> tuple[float, list[str]]:
        settings = site.with_settings(f'join.window="{window}"', 'join.lateness="5s"', 'join.max_skew="5s"')
        first, second = (of(sample) for of, sample in zip((impressions, clicks), samples(settings), strict=True))
        config = configuration(settings)
        shown, clicked = side_of("impressions", first), side_of("clicks", second)
        numbers = {str(one.fields["imp.id"]): number for number, one in enumerate(shown.events)}
        of_shown = [
            Impression(n, Clock("ts", "iso").of(one), numbers[one.fields["imp.id"]], 1.0, ())
            for n, one in enumerate(shown.events)
        ]
        of_clicked = [
            Click(n, Clock("at", "s").of(one), numbers[one.fields["ref.impression_id"]], 1.0)
            for n, one in enumerate(clicked.events)
        ]
        spec = config.join_spec()
        labels = join_by_log_time(of_shown, of_clicked, {**spec.__dict__, "keep_negatives": 1.0}).examples
        delays = {one.id_hash: (one.time_ms or 0) - (of_shown[one.id_hash].time_ms or 0) for one in of_clicked}
        counting = [one.label for one in labels if delays.get(one.id_hash, 10**9) <= spec.window_ms]
        found = [one for one in examine(config, shown, clicked).findings if one.name == "disorder"]
        told = [one.change for one in found if " clicks lie so far behind " in one.seen]
        return 1 - sum(counting) / len(counting), told

    lost, told = judged(window)
    assert [one[: len(change or "")] for one in told] == ([] if change is None else [change])
    assert (lost > 0.01) == (change is not None)
    if change is not None:
        assert judged(told[0].split()[1].strip(","))[0] < 0.01


BY_VALUE = "features.key_rule=2"
"""By this rule numbers that are left to `auto` are features of their value."""


@pytest.mark.parametrize("optimizer", ["ftrl_proximal", "vw"])
def test_an_optimizer_that_scales_by_itself_takes_any_number(optimizer: str) -> None:
    """The number is told of the others only."""
    only_slots = 'features.categorical=["imp.slot", "ad.id"]'
    site = Site().with_settings(only_slots, BY_VALUE, f'learner.optimizer={{"name": "{optimizer}"}}')
    assert names(report_of(site)) == ([("warns", "number_without_scale")] if optimizer != "vw" else [])


def test_numbers_of_large_scale_get_a_kind_that_fits() -> None:
    """Many distinct values are a quantity, few whole numbers are names. By the rule of now all have their size."""
    site = Site().with_impressions(write=lambda one: {**impression(one), "age_s": one.number * 977 % 90_001})
    (finding,) = report_of(site.with_settings(BY_VALUE)).findings
    assert finding.change == "features.fields: {age_s: {kind: log}}"
    assert report_of(site).findings == []


def test_times_as_text_of_digits_are_told_and_no_feature() -> None:
    """Of which many events share one, in the sample as on the page of a first configuration."""

    def in_seconds(one: Happened) -> dict[str, Any]:
        return {**{k: v for k, v in impression(one).items() if k != "ts"}, "sent_at": str(one.time_ms // 60_000 * 60)}

    site = Site().with_impressions(write=in_seconds)
    settings, _ = proposed(site)
    assert "sent_at" in settings["features.exclude"]
    found = report_of(site.with_settings("input.impressions.time=null")).findings
    assert [one.name for one in found if "sent_at" in one.seen] == ["impressions_time_unread"]


def test_times_of_years_ago() -> None:
    """They may be right, as where old events are replayed."""
    site = Site().with_clicks(write=lambda one: {**click(one), "at": one.time_ms / 1000 - 3 * 366 * 86_400})
    assert ("warns", "clicks_time_far") in names(report_of(site))


CLICKED = {one.number for one in happened(EPOCH_MS)[1]}


def sometimes(share: float, one: Happened) -> bool:
    """True for a share of the clicked impressions, and for no other."""
    return one.number in CLICKED and random.Random(one.number).random() < share


LEAKS: Mapping[str, tuple[Callable[[Happened], Any], str | None]] = {
    "a number that is 0 without a click": (lambda one: 900 + one.number if one.number in CLICKED else 0, "stops"),
    "a number only clicks have": (lambda one: 900.5 + one.number if one.number in CLICKED else None, "stops"),
    "a state": (lambda one: "landed" if one.number in CLICKED else ("seen", "queued")[one.number % 2], "stops"),
    "an element of a list": (lambda one: ["a", f"b{one.number % 5}", *["clicked"] * (one.number in CLICKED)], "stops"),
    "a state of four clicks in five": (lambda one: "landed" if sometimes(0.8, one) else "seen", "warns"),
    "a number with noise": (
        lambda one: random.Random(one.number).gauss(100 + 40 * (one.number in CLICKED), 14),
        "warns",
    ),
    "strong and honest": (
        lambda one: "top" if random.Random(one.number).random() < (0.8 if one.number in CLICKED else 0.1) else "foot",
        None,
    ),
    "a price that clicks like": (
        lambda one: round(random.Random(one.number).gauss(5 + 2 * (one.number in CLICKED), 2), 2),
        None,
    ),
}


@pytest.mark.parametrize("case", LEAKS)
def test_a_field_that_tells_the_label(case: str) -> None:
    """A full leak stands in the way, one of many clicks is told; a first configuration leaves it out and says so. A
    strong honest feature is neither: of those that click it is eight times as often as of the others."""
    write, severity = LEAKS[case]
    site = Site().with_impressions(write=lambda one: {**impression(one), "extra": write(one)})
    assert names(report_of(site)) == ([] if severity is None else [(severity, "label_leaks")])
    settings, text = proposed(site)
    assert ("extra" in settings.get("features.exclude", [])) == (severity is not None)
    assert ("extra is left out: it tells the label" in text) == (severity is not None)


def test_a_time_among_the_features_is_told_unless_its_kind_reads_it() -> None:
    """The finding names the kind; the event's own time may have one; a field without times is told for what it is."""
    site = Site().with_impressions(
        write=lambda one: {**impression(one), "seen": iso(one.time_ms), "no": f"n{one.number}"}
    )
    told = [one for one in report_of(site).findings if one.name == "unique_field" and "`seen`" in one.seen]
    assert [one.change for one in told] == [
        "features.exclude: [seen], or features.fields: {seen: {kind: hour_of_week}}"
    ]
    kinds = {"seen": {"kind": "hour_of_week"}, "ts": {"kind": "hour", "zone": "Asia/Kolkata"}}
    timed = site.with_settings('features.exclude=["no"]', f"features.fields={json.dumps(kinds)}")
    assert names(report_of(timed)) == []
    wrong = site.with_settings(f"features.fields={json.dumps({'seen': {'kind': 'hour'}, 'no': {'kind': 'hour'}})}")
    assert names(report_of(wrong)) == [("stops", "impressions_not_a_time")]


@pytest.mark.parametrize(("count", "users", "is_id"), [(4_000, 30_000, False), (300, 30_000, False), (4_000, 0, True)])
def test_users_that_come_again_are_no_ids(count: int, users: int, is_id: bool) -> None:
    """However few are read, so that nearly all differ; what never comes again is, also of events that are sent twice.

    users: how many there are, 0 for a new one each time.
    """
    for seed in range(20):
        draw = random.Random(seed)
        values = [{"user": f"u{draw.randrange(users or 1 << 40)}", "n": n} for n in range(count)]
        records = [Record(0, n, n, b"", json.dumps(one).encode()) for n, one in enumerate([*values, *values[::5]])]
        sample = TopicSample("impressions", 1, ({0: records},), False, 10 * count, None)
        (user,) = [one for one in fields_of(side_of("impressions", sample)) if one.path == "user"]
        assert user.is_unique and user.is_id == is_id


def proposed(site: Site, sampled: tuple[TopicSample, TopicSample] | None = None) -> tuple[Mapping[str, Any], str]:
    """The settings of the first configuration of a site, and its notes."""
    both = zip(("impressions", "clicks"), sampled or samples(site), strict=True)
    sides = [side_of(*one) for one in both]  # type: ignore[arg-type]
    topics = [f"input.{side.name}.topic={side.name}" for side in sides]
    least = ["model=ctr", "kafka.bootstrap.servers=localhost:1", *topics]
    proposal, _ = propose(lambda overrides: load_config(None, overrides=[*least, *overrides]), *sides)
    load_config(None, overrides=[*least, *proposal.overrides()])
    return proposal.settings, "\n".join(proposal.notes)


@pytest.mark.parametrize("longest_ms", [one - 1 for one in ROUND_MS])
@pytest.mark.parametrize("disorder_ms", [0, 900, 4_000, 70_000, 10**7])
def test_a_proposal_raises_no_doubt(longest_ms: int, disorder_ms: int) -> None:
    """Whatever the delays and the disorder: `config check` has no word for what doctor writes."""
    proposal = Proposal()
    proposal.add_join([longest_ms] * 100, disorder_ms)
    topics = "input.impressions.topic=a", "input.clicks.topic=b"
    least = ["model=ctr", "kafka.bootstrap.servers=localhost:1", *topics]
    config = load_config(None, overrides=[*least, *proposal.overrides()])
    assert [*doubtful(config)] == []
    assert longest_ms <= config.join.window_ms
    assert 2 * disorder_ms <= config.join.lateness_ms or config.join.lateness_ms == LATENESS_MS


def days(habit: Callable[[int, int], float]) -> tuple[TopicSample, TopicSample]:
    """Five days of an impression a minute. habit: the click rate by day and hour, in UTC."""
    draw, begin_ms = random.Random(4), EPOCH_MS // DAY_MS * DAY_MS
    shown, clicked = [], []
    for number in range(5 * 1_440):
        time_ms = begin_ms + number * MINUTE_MS
        one = Happened(number, time_ms, f"i{number}", "u")
        shown.append(Record(0, number, time_ms, None, json.dumps(impression(one)).encode()))
        if draw.random() < habit(number // 1_440, number // 60 % 24):
            at_ms = time_ms + 5_000
            clicked.append(
                Record(0, len(clicked), at_ms, None, json.dumps(click(one._replace(time_ms=at_ms))).encode())
            )
    kept = Retention(30 * DAY_MS, None)
    made = (
        TopicSample(name, 1, ({0: of},), True, len(of), kept)
        for name, of in (("impressions", shown), ("clicks", clicked))
    )
    return next(made), next(made)


@pytest.mark.parametrize(
    ("habit", "is_proposed"),
    [
        (lambda day, hour: 0.3 if 18 <= hour < 23 else 0.08, True),
        (lambda day, hour: 0.12, False),
        (lambda day, hour: 0.9 if day == 2 and 10 <= hour < 16 else 0.1, False),
        (lambda day, hour: (0.3 if 18 <= hour < 23 else 0.08) if day == 1 else 0.0, False),
        (lambda day, hour: 0.03 if 18 <= hour < 23 else 0.008, False),
    ],
    ids=["an evening", "no habit", "one day's campaign", "one day of clicks", "too few clicks"],
)
def test_the_hour_is_proposed_where_days_agree_on_it(habit: Callable[[int, int], float], is_proposed: bool) -> None:
    """With the rates that say so; an hour of one day is none, and what is proposed can be loaded."""
    settings, notes = proposed(Site(), days(habit))
    assert settings.get("features.fields") == ({"ts": {"kind": "hour"}} if is_proposed else None)
    found = re.search(r"hour of ts: click rates from (.*) % at (\d+):00 to (.*) % at (\d+):00 UTC", notes)
    assert (found is not None) == is_proposed
    if found is not None:
        assert 18 <= int(found[4]) < 23 and not 18 <= int(found[2]) < 23
        assert 3 * float(found[1]) < float(found[3])


def test_clicks_of_a_quiet_night_begin_with_their_impressions() -> None:
    """Six hours without a click but two, then days of them: one click in a hundred is no beginning."""
    quiet = days(lambda day, hour: 0.0 if day == 0 and 0 < hour < 7 else 0.2)
    config = configuration(Site())
    report = examine(config, side_of("impressions", quiet[0]), side_of("clicks", quiet[1]))
    assert "clicks_begin_late" not in [finding.name for finding in report.findings]


def test_the_hour_of_the_events_own_time_is_a_feature() -> None:
    """And be it the only one: the model has it."""
    only = 'features.include=["ts"]', "features.categorical=[]"
    timed = Site().with_settings(*only, 'features.fields={"ts": {"kind": "hour"}}')
    assert names(report_of(timed)) == []
    assert names(report_of(Site().with_settings(*only))) == [("stops", "no_features")]


def test_a_proposal_names_no_field_without_a_name() -> None:
    """An event may have one, and a configuration must not."""
    site = Site().with_impressions(write=lambda one: {**impression(one), "": f"r{one.number}", "n": {"": one.number}})
    settings, _ = proposed(site)
    assert "" not in settings.get("features.exclude", [])


CLICKS_SINCE = samples(Site())[0].blocks[0][0][110].time_ms
"""Long after the first impression."""


@pytest.mark.parametrize(
    ("settings", "deleted", "is_found"),
    [
        ((), False, True),
        ((), True, False),
        (('join.start="latest"',), False, False),
        ((f'join.start="{iso(CLICKS_SINCE)}"',), False, False),
    ],
)
def test_clicks_that_begin_later_than_impressions(settings: tuple[str, ...], deleted: bool, is_found: bool) -> None:
    """All impressions before them would be negatives. Not where the joiner begins later, as it does where older clicks
    are deleted."""

    def late(sample: TopicSample) -> TopicSample:
        found = each(lambda one: one if one.time_ms >= CLICKS_SINCE else None)(sample)
        return replace(found, held=sum(map(len, found.blocks[0].values())), deleted=deleted)

    report = report_of(Site().with_settings(*settings), clicks=late)
    assert names(report) == [("stops", "clicks_begin_late")] * is_found
    assert [one.change[:14] for one in report.findings] == ["join.start: 20"] * is_found


@pytest.mark.parametrize(
    ("early", "others", "is_found"), [(2, 1_000, False), (8, 600, False), (15, 600, False), (150, 600, True)]
)
def test_a_few_impressions_long_before_the_first_click(early: int, others: int, is_found: bool) -> None:
    """Their share of the impressions counts, and not how long they were alone."""
    draw = random.Random(early)
    times = [EPOCH_MS - 12 * 3_600_000 + n * 60_000 for n in range(early)]
    times += [EPOCH_MS + n * 1_000 for n in range(others)]
    events = [Happened(n, time_ms, f"i{n}", "u") for n, time_ms in enumerate(times)]
    clicks = [one._replace(time_ms=one.time_ms + 900) for one in events[early:] if draw.random() < 0.3]
    made = [
        TopicSample(
            name,
            1,
            ({0: [Record(0, n, e.time_ms, None, json.dumps(write(e)).encode()) for n, e in enumerate(of)]},),
            True,
            len(of),
            Retention(WEEK_MS, None),
        )
        for name, of, write in (("impressions", events, impression), ("clicks", clicks, click))
    ]
    report = report_of(Site(), lambda _: made[0], lambda _: made[1])
    assert ("clicks_begin_late" in report.in_the_way) == is_found


def test_a_topic_that_begins_late_is_known_by_its_first_records() -> None:
    """Where the sample has the newest ones only."""
    first, second = samples(Site())
    begins = {partition: records[30:] for partition, records in second.blocks[0].items()}
    late = replace(second, firsts={partition: of for partition, of in begins.items() if of}, whole=False, held=100)
    early = replace(first, firsts={partition: of[:5] for partition, of in first.blocks[0].items()}, whole=False)
    assert names(report_of(Site(), lambda _: early, lambda _: late)) != []
    assert names(report_of(Site(), lambda _: early, lambda one: replace(late, firsts={0: one.blocks[0][0][:1]}))) == []


def test_features_of_which_no_event_has_any() -> None:
    """Names that are not there. What few events have may be left out beside what all have."""
    absent = report_of(Site().with_settings('features.include=["device.oss", "sites"]', "features.categorical=[]"))
    assert names(absent) == [("stops", "no_features")]
    rare = Site().with_settings('features.exclude=["user.mail", "debug"]')
    assert names(report_of(rare)) == []


def test_ids_that_are_not_unique() -> None:
    """Ids are users': an impression is left out where its id came before. A few repeats are usual, some are told."""

    def repeated(share: float) -> Change:
        return lambda sample: replace(
            sample,
            blocks=tuple({p: [*of, *of[: int(share * len(of))]] for p, of in block.items()} for block in sample.blocks),
        )

    users = Site().with_settings('input.impressions.id="user.id"', 'input.clicks.id="user.id"')
    (found,) = report_of(users).findings
    assert (found.severity, found.name) == ("stops", "id_not_unique"), "nothing else is judged by users"
    assert found.change == "input.impressions.id: imp.id; input.clicks.id: ref.impression_id"
    assert names(report_of(Site(), impressions=repeated(0.2))) == [("warns", "id_not_unique")]
    assert names(report_of(Site(), impressions=repeated(0.05))) == []


@pytest.mark.parametrize(("share", "severity"), [(1.0, "stops"), (0.7, "warns"), (0.4, None)])
def test_clicks_on_most_impressions(share: float, severity: str | None) -> None:
    """Such as views, or the impressions themselves."""

    def views(sample: TopicSample) -> TopicSample:
        of = happened(EPOCH_MS)[0]
        kept = [one for one in of if random.Random(one.number).random() < share]
        values = [json.dumps(click(one)).encode() for one in kept]
        records = [Record(0, n, of.time_ms + 50, of.id.encode(), values[n]) for n, of in enumerate(kept)]
        block: dict[int, list[Record]] = {partition: [] for partition in range(4)}
        for record in records:
            partition = zlib.crc32(record.key or b"") % 4
            block[partition].append(record._replace(partition=partition, offset=len(block[partition])))
        return replace(sample, blocks=(block,), held=len(kept))

    assert names(report_of(Site(), clicks=views)) == ([] if severity is None else [(severity, "mostly_clicked")])


def test_the_clock_of_one_producer_in_three() -> None:
    """A third of the positives is lost by it: as much stands in the way as where partitions lose it. The window is
    right, and is not to be changed. Where a window is too small for a third, that is told with the same weight."""
    hour = Site().with_impressions(
        write=lambda one: {**impression(one), "ts": iso(one.time_ms - (3_600_000 if one.number % 3 == 0 else 0))}
    )
    (one,) = report_of(hour).findings
    assert (one.severity, one.name) == ("stops", "clocks_differ")
    assert "60 min further before" in one.seen and "not join.window" in one.change
    short = Site().with_settings('join.window="4s"', 'join.skew="1s"')
    assert ("stops", "window") in names(report_of(short))


def test_the_clock_of_one_producer_of_clicks() -> None:
    """The topic of the clicks is named, where that of the impressions has times that lie always as far."""
    behind = Site().with_clicks(
        write=lambda one: {**click(one), "at": (one.time_ms - (3_600_000 if one.number % 5 == 0 else 0)) / 1000}
    )
    (one,) = report_of(behind).findings
    assert one.name == "clocks_differ" and "a producer of clicks;" in one.change
    assert "`at` of clicks lies 60 min further before" in one.seen


@pytest.mark.parametrize("ids", [("imps", "imps"), ("imp.id", "imps")])
def test_ids_in_a_list_of_values(ids: tuple[str, str]) -> None:
    """They are not read as ids: that is said, no such path is proposed, and one in a list of objects is."""
    paths = f'input.impressions.id="{ids[0]}"', f'input.clicks.id="{ids[1]}"'
    listed = Site().with_clicks(write=lambda one: {"imps": [one.id, "zz"], "at": one.time_ms / 1000})
    (one,) = report_of(listed.with_settings(*paths)).findings
    assert (one.severity, one.name) == ("stops", "clicks_id_in_list") and "`imps`" in one.seen
    assert "input.clicks.id" not in proposed(listed)[0]
    objects = Site().with_clicks(write=lambda one: {"imps": [{"id": one.id}], "at": one.time_ms / 1000})
    assert proposed(objects)[0]["input.clicks.id"] == "imps.id"
    assert report_of(objects.with_settings('input.clicks.id="imps.id"')).findings == []


def test_ids_of_impressions_that_are_sent_twice_are_found() -> None:
    """The pair of ids is that of the events, and only the repeats are told."""

    def twice(sample: TopicSample) -> TopicSample:
        return replace(sample, blocks=tuple({p: [*of, *of] for p, of in block.items()} for block in sample.blocks))

    first, second = samples(Site())
    settings, _ = proposed(Site(), (twice(first), second))
    assert (settings["input.impressions.id"], settings["input.clicks.id"]) == ("imp.id", "ref.impression_id")
    assert names(report_of(Site(), impressions=twice)) == [("stops", "id_not_unique")]


@pytest.mark.parametrize(("ads", "told"), [(1, []), (3, [("warns", "several_in_one")])])
@pytest.mark.parametrize("by", ["view", "ads.id"])
def test_one_event_of_several_things_is_told(by: str, ads: int, told: list[tuple[str, str]]) -> None:
    """A page view with three ads, each with an id, and clicks that name the ad and the view: whatever id is configured
    joins other things than were clicked. With one ad a view there is nothing to tell."""

    def view(one: Happened) -> dict[str, Any]:
        return {"view": one.id, "ts": iso(one.time_ms), "ads": [{"id": f"{one.id}-{n}", "ad": n} for n in range(ads)]}

    def clicked(one: Happened) -> dict[str, Any]:
        return {"view": one.id, "ad": f"{one.id}-{one.number % ads}", "at": one.time_ms / 1000}

    ids = f'input.impressions.id="{by}"', f'input.clicks.id="{"view" if by == "view" else "ad"}"'
    site = (
        Site()
        .with_impressions(write=view)
        .with_clicks(write=clicked)
        .with_settings(*ids, 'features={"include": ["ads.ad"]}')
    )
    found = [one for one in names(report_of(site)) if one[1] == "several_in_one"]
    assert found == told


def test_clicks_of_another_site() -> None:
    """That nothing is shared is said before what field is configured."""
    other = Site().with_clicks(write=lambda one: {"ref": f"x{one.id}", "at": one.time_ms / 1000})
    told = [one for one in report_of(other).findings if one.name == "clicks_id"]
    assert [one.seen[:64] for one in told] == ["no field of the clicks shares its values with an id of the impre"]


def test_clicks_of_other_times_are_not_called_those_of_another_site() -> None:
    """Clicks that come an hour late, and a sample that does not reach back so far: the ids tell nothing."""
    hour_ms = 3_600_000

    def an_hour_ago(one: Happened) -> dict[str, Any]:
        return {"ref": f"x{one.id}", "at": (one.time_ms - hour_ms) / 1000}

    (told,) = (one for one in report_of(Site().with_clicks(write=an_hour_ago)).findings if one.name == "clicks_id")
    assert "another site" not in told.seen and "larger --records" in told.seen
    (began, ended), (shown, last) = re.findall(r"of (\S+ \S+) to (\S+ [^,;]+)[,;]", told.seen)
    assert began[:10] == ended[:10] == shown[:10] == last[:10] and ended < shown


def test_what_is_printed_of_an_empty_topic_and_of_one_that_does_not_fit(capsys: pytest.CaptureFixture[str]) -> None:
    """No times of no record, and no next step over what stands in the way."""
    empty = report_of(Site(), lambda one: replace(one, blocks=({0: []},), held=0))
    _print(empty, Path("m.yaml"), fields=False)
    printed = capsys.readouterr().out
    assert "times none" not in printed and ", 0 ms" not in printed and "next: " in printed
    _print(report_of(Site().with_settings('input.clicks.id="event"')), Path("m.yaml"), fields=False)
    assert "next: " not in capsys.readouterr().out


@given(st.lists(st.integers(0, 50), max_size=30), st.integers(1, 5))
def test_lateness_by_the_definition_of_log_time(times: list[int], agree: int) -> None:
    """Log time is the largest least time of all rows that are complete by then."""

    def log_time(before: int) -> int:
        return max([min(times[i : i + agree]) for i in range(before - agree + 1)], default=0)

    assert lateness_ms(times, agree) == [max(log_time(i) - time, 0) for i, time in enumerate(times)]


@given(st.lists(st.integers(-5, 5), min_size=1), st.sampled_from([0.01, 0.5, 0.9, 0.99, 1.0]))
def test_a_quantile_by_counting(values: list[int], share: float) -> None:
    """The least value that so many do not exceed."""
    found = next(v for v in sorted(values) if sum(one <= v for one in values) >= share * len(values) - 1e-9)
    assert quantile(sorted(values), share) == found


@pytest.mark.parametrize(
    ("values", "unit"),
    [
        ([EPOCH_MS, EPOCH_MS + 5], "ms"),
        ([EPOCH_MS / 1000], "s"),
        ([EPOCH_MS * 1000], "us"),
        ([iso(EPOCH_MS)], "iso"),
        ([EPOCH_MS * 10**6], None),
        ([17, 4_000], None),
        (["news"], None),
        ([], None),
    ],
)
def test_the_unit_of_times(values: list[Any], unit: str | None) -> None:
    """The one in which they are of this century."""
    assert unit_of(values) == unit


def test_every_finding_is_on_its_page() -> None:
    """By its name, without the topic."""
    source = "".join(path.read_text(encoding="utf-8") for path in Path(package.__path__[0]).glob("*.py"))
    found = set(
        re.findall(r'"(?:stops|warns|tells)"(?: if [^"]+ else "\w+")?,\s*f?"(?:\{side\.name\}_)?(\w+)"', source)
    )
    found |= {*re.findall(r'return "(\w+)", ', source)} | {
        "null",
        "framed",
        "no_object",
        "text",
        "binary",
        "beyond",
        "time_ahead",
        "time_units",
    }
    assert len(found) > 20
    assert [name for name in sorted(found) if f"`{name}`" not in PAGE] == []


def test_a_site_is_made_of_its_seed() -> None:
    """The same events each time, clicks on impressions, none before them."""
    (first, _), (second, _) = samples(Site()), samples(Site())
    assert first == second and isinstance(Happened(1, 2, "a", "b"), tuple)
