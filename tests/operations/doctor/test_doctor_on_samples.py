"""What is made of a sample, without a broker: parts of a topic, rare records, what must not be taken for a mistake."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import stream_learner.operations.doctor as package
from stream_learner.adapters.kafka import Retention
from stream_learner.config import load_config
from stream_learner.operations.doctor.delays import lateness_ms
from stream_learner.operations.doctor.events import side_of
from stream_learner.operations.doctor.findings import quantile
from stream_learner.operations.doctor.run import Report, examine, propose
from stream_learner.operations.doctor.sample import Record, TopicSample
from stream_learner.operations.doctor.times import time_fields, unit_of
from tests.operations.doctor.site import EPOCH_MS, Happened, Site, click, configuration, impression, iso, samples

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


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (b"[1, 2]", "impressions_no_object"),
        (b'{"p": 1e400}', "impressions_beyond"),
        (b"a,b,c", "impressions_text"),
        (b"\x9f\x01\x02", "impressions_binary"),
        (b"\0\0\0\0\x09{}", "impressions_framed"),
        (None, "impressions_null"),
    ],
)
@pytest.mark.parametrize(("every", "severity"), [(5, "stops"), (30, "warns"), (200, None)])
def test_records_that_are_no_objects(value: bytes | None, name: str, every: int, severity: str | None) -> None:
    """More than `join.max_bad_share` stops, more than one in a hundred warns, fewer are not told."""
    count = itertools.count()
    report = report_of(Site(), impressions=each(lambda one: one if next(count) % every else one._replace(value=value)))
    assert names(report) == ([] if severity is None else [(severity, name)])


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
    sides = [side_of(*one) for one in zip(("impressions", "clicks"), samples(site), strict=True)]  # type: ignore[arg-type]
    topics = [f"input.{side.name}.topic={side.name}" for side in sides]
    least = ["model=ctr", "kafka.bootstrap.servers=localhost:1", *topics]
    proposal = propose(lambda overrides: load_config(None, overrides=[*least, *overrides]), *sides)
    assert proposal.settings["join.window"] == "15s"
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


NANOSECONDS = Site().with_clicks(write=lambda one: {**click(one), "at": one.time_ms * 10**6})
LONG_AGO = Site().with_clicks(write=lambda one: {**click(one), "at": one.time_ms / 1000 - 3 * 366 * 86_400})
NO_TIME: Mapping[str, tuple[Site, str]] = {
    "nanoseconds": (NANOSECONDS, "clicks_time_unreadable"),
    "years ago": (LONG_AGO, "clicks_time_far"),
    "another field": (Site().with_settings('input.clicks.time="when"'), "clicks_time_missing"),
}


@pytest.mark.parametrize("case", NO_TIME)
def test_times_that_no_unit_mends(case: str) -> None:
    """They are told as what they are."""
    site, name = NO_TIME[case]
    assert name in [one for _, one in names(report_of(site))]


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
